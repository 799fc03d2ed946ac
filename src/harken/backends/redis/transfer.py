"""Copying the store to another home, or filling it from one.

Redis has no snapshot and no transaction of any length. So nobody else may use the store that is read, and one that is
being filled is marked until all is there.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec

from harken.backends.encryption import unwrap
from harken.backends.redis import RedisStore
from harken.backends.redis.connection import Connection
from harken.backends.redis.definitions import now_of
from harken.backends.redis.durability import keep_promise
from harken.backends.redis.encryption import seal_for
from harken.backends.redis.export import DOCUMENT, all_rows, document_kinds
from harken.backends.redis.load import Loader
from harken.backends.redis.transaction import Transaction
from harken.backends.redis.upkeep import literal
from harken.backends.transfer import Staying, arrive, place_of, refuse_full
from harken.clock import Clock
from harken.errors import Misconfigured, Refused
from harken.store.documents import THIS_STORE, TRANSFER
from harken.store.export_rows import Chunk
from harken.store.transfer import Counts

__all__ = ["RedisTransfer"]


class RedisTransfer:
    """Nobody else uses the store once `writers` found nobody: its leases are ours then."""

    def __init__(self, url: str, clock: Clock | None, key: str, space: str) -> None:
        self._connection = Connection(url, f"{{{space}:0}}:", clock)
        self.place = place_of("Redis", url)
        self._url, self._clock, self._space = url, clock, space
        self._key = key
        self._staying = Staying(self.place, self._opened)

    @classmethod
    def at(cls, url: str, clock: Clock | None = None, *, key: str = "", space: str = "harken") -> RedisTransfer:
        """Without a clock the server's counts. Raise Misconfigured for a URL that is none."""
        return cls(url, clock, key, space)

    async def _opened(self) -> RedisStore:
        """The store as everybody uses it."""
        key = self._key if await self._wrapped() else ""
        return RedisStore.at(self._url, self._clock, key=key, space=self._space)

    async def _wrapped(self) -> bytes:
        """The store's keys, empty for one without encryption: that is read as it is, also with a key for the other."""
        wrapped, begun = await self._connection.read(
            ("GET", self._connection.key("seal")), ("EXISTS", self._connection.key("defs"), self._connection.key("n"))
        )
        if not begun:
            raise Misconfigured(f"there is no store in {self.place}", fix="Name the store that is to be copied")
        return bytes(wrapped or b"")

    async def writers(self) -> Sequence[str]:
        return await self._staying.writers(self._shards)

    async def _shards(self) -> set[int]:
        [names] = await self._connection.read(("SMEMBERS", self._connection.key("feeds")))
        found = await self._connection.read(*(("HGET", self._connection.key("f:") + name, "shard") for name in names))
        return {int(shard or 0) for shard in found}

    async def stay(self) -> None:
        await self._staying.stay()

    async def _tx(self) -> tuple[Transaction, bytes]:
        """The store that is there, and the key of its names."""
        wrapped = (await self._wrapped()).decode()
        seal = await seal_for(self._connection, self._key if wrapped else "")
        return Transaction(self._connection, seal, secrets.token_hex(8)), unwrap(self._key, wrapped)[
            1
        ] if wrapped else b""

    async def rows(self) -> AsyncIterator[Chunk]:
        tx, identity = await self._tx()
        before = await self._traces()
        async for chunk in all_rows(tx, identity):
            yield chunk
        if await self._traces() != before:
            fix = "Stop whatever uses it, then copy into an empty store again"
            raise Refused(f"{self.place} was written while it was copied", fix=fix)

    async def _traces(self) -> list[Any]:
        """What hardly any verb leaves as it was."""
        key = self._connection.key
        numbers, *others = await self._connection.read(
            ("HGETALL", key("n")), ("GET", key("defs")), ("LLEN", key("audit")), ("LLEN", key("tq"))
        )
        # ours is the only token that may be taken meanwhile
        return [{field: value for field, value in numbers.items() if field != b"token"}, *others]

    async def take(self, rows: AsyncIterator[Chunk], origin: str, *, force: bool = False) -> None:
        """Interrupted, it leaves a store with which nobody can start; `force` wipes such a one and begins anew."""
        await keep_promise(self._connection)
        await self._refuse_full(force)
        arrival = await arrive(rows, self._key)
        tx = Transaction(self._connection, arrival.seal, secrets.token_hex(8))
        await self._connection.read(("SET", self._connection.key("half"), origin))
        if arrival.wrapped:
            await self._connection.read(("SET", self._connection.key("seal"), arrival.wrapped))
        await self._mark_half(tx, origin)
        taking = Loader(tx)
        await taking.begin(arrival.beginning)
        async for chunk in arrival.rows:
            await taking.take(chunk)
        await taking.end()
        # the last write waits for the replicas, and so for all before it
        await self._connection.write("moving_end", tx.ask(), ())

    async def _mark_half(self, tx: Transaction, origin: str) -> None:
        words = f"{self.place} is being filled by a copy from {origin}, or was when that stopped"
        fix = "Wait for it, or copy again with --force"
        value = tx.seal.shut(msgspec.json.encode({"words": words, "fix": fix, "holder": ""}))
        row = DOCUMENT.pack(1, await now_of(tx)) + value
        await self._connection.read(("HSET", self._connection.key(f"d:{TRANSFER}"), THIS_STORE, row))

    async def _refuse_full(self, force: bool) -> None:
        [half] = await self._connection.read(("GET", self._connection.key("half")))
        if half is not None:
            if not force:
                message = f"{self.place} has half of a copy from {half.decode()}"
                raise Refused(message, fix="If nobody is copying any more: copy again with --force")
            await self._wipe()
            return
        fix = "Name another database of the server (redis://host/1), or empty it"
        refuse_full(self.place, await self.counts(), fix)
        await self._wipe()

    async def _wipe(self) -> None:
        """Drop what is left: half a copy, or the keys of a store that never had a row."""
        pattern, cursor = literal(self._connection.key("")) + b"*", 0
        while True:
            [[cursor, keys]] = await self._connection.read(("SCAN", cursor, "MATCH", pattern, "COUNT", 1000))
            if keys:
                await self._connection.read(("UNLINK", *keys))
            if not cursor:
                return

    async def counts(self) -> Counts:
        key = self._connection.key
        numbers, feeds, triggers, ticks, buried, audits = await self._connection.read(
            ("HGETALL", key("n")),
            ("SCARD", key("feeds")),
            ("HLEN", key("tn")),
            ("LLEN", key("tq")),
            ("HLEN", key("buried")),
            ("LLEN", key("audit")),
        )
        names = await self._connection.read(("SMEMBERS", key("feeds")))
        kinds = await document_kinds(self._connection)
        return {
            "feeds": feeds,
            "triggers": triggers,
            "documents": sum(await self._connection.read(*(("HLEN", key("d:") + kind) for kind in kinds))),
            "events": int(numbers.get(b"events", 0)),
            "seen keys": sum(await self._connection.read(*(("HLEN", key("m:") + name) for name in names[0]))),
            "runs": sum(int(numbers.get(f"s{state}".encode(), 0)) for state in range(10)),
            "ticks": ticks,
            "refused events": buried,
            "audits": audits,
        }

    async def mark(self, words: str, fix: str) -> None:
        await self._staying.mark(words, fix)

    async def close(self) -> None:
        await self._staying.close()
        await self._connection.close()
