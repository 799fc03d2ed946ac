"""Copies a Redis store into another one, or fills it from another one.

Redis has no snapshots and no long transactions. So no other process may use the store that is read, and a store that is
being filled is marked until the copy is complete.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec

from harken.backends.copy_encryption_and_exclusive_access import (
    ExclusiveAccess,
    place_of,
    prepare_import,
    refuse_nonempty,
)
from harken.backends.encryption import unwrap
from harken.backends.redis import RedisStore
from harken.backends.redis.codec import DOCUMENT
from harken.backends.redis.connection import Connection
from harken.backends.redis.connection_and_name_cache import Session
from harken.backends.redis.durability import require_durable
from harken.backends.redis.export_rows import all_rows, document_kinds
from harken.backends.redis.format_and_encryption_keys import seal_for
from harken.backends.redis.import_rows import Loader
from harken.backends.redis.upkeep import keys_beginning_with
from harken.clock import Clock
from harken.errors import Misconfigured, Refused
from harken.store.document_kinds import THIS_STORE, TRANSFER
from harken.store.transfer_protocol_and_exclusive_access import Counts
from harken.store.transfer_rows import Chunk

__all__ = ["RedisTransfer"]


class RedisTransfer:
    """Once `writers` has found none, this process holds the leases of the store and nobody else uses it."""

    def __init__(self, url: str, clock: Clock | None, key: str, space: str) -> None:
        self._connection = Connection(url, f"{{{space}:0}}:", clock)
        self.place = place_of("Redis", url)
        self._url, self._clock, self._space = url, clock, space
        self._key = key
        self._staying = ExclusiveAccess(self.place, self._open_store)

    @classmethod
    def at(cls, url: str, clock: Clock | None = None, *, key: str = "", space: str = "harken") -> RedisTransfer:
        """Without a clock the server's time counts. Raise Misconfigured for an invalid URL."""
        return cls(url, clock, key, space)

    async def _open_store(self) -> RedisStore:
        key = self._key if await self._wrapped_keys() else ""
        return RedisStore.at(self._url, self._clock, key=key, space=self._space)

    async def _wrapped_keys(self) -> bytes:
        """The store's wrapped keys, empty without encryption. The operator's key may be for the other store only."""
        wrapped, begun = await self._connection.execute(
            ("GET", self._connection.key("seal")), ("EXISTS", self._connection.key("defs"), self._connection.key("n"))
        )
        if not begun:
            raise Misconfigured(f"there is no store in {self.place}", fix="Name the store that is to be copied")
        return bytes(wrapped or b"")

    async def writers(self) -> Sequence[str]:
        return await self._staying.writers(self._shards)

    async def _shards(self) -> set[int]:
        key = self._connection.key
        [names] = await self._connection.execute(("SMEMBERS", key("feeds")))
        found = await self._connection.execute(*(("HGET", key("f:") + name, "shard") for name in names))
        return {int(shard or 0) for shard in found}

    async def stay(self) -> None:
        await self._staying.stay()

    async def _existing(self) -> tuple[Session, bytes]:
        """The store that is to be copied, and the key from which its names are made."""
        wrapped = (await self._wrapped_keys()).decode()
        seal = await seal_for(self._connection, self._key if wrapped else "")
        identity = unwrap(self._key, wrapped)[1] if wrapped else b""
        return Session(self._connection, seal, secrets.token_hex(8)), identity

    async def rows(self) -> AsyncIterator[Chunk]:
        session, identity = await self._existing()
        before = await self._change_marks()
        async for chunk in all_rows(session, identity):
            yield chunk
        if await self._change_marks() != before:
            fix = "Stop whatever uses it, then copy into an empty store again"
            raise Refused(f"{self.place} was written while it was copied", fix=fix)

    async def _change_marks(self) -> list[Any]:
        """Counters of which almost every write changes one."""
        key = self._connection.key
        numbers, *others = await self._connection.execute(
            ("HGETALL", key("n")), ("GET", key("defs")), ("LLEN", key("audit")), ("LLEN", key("tq"))
        )
        # without the last token: we renew our own leases meanwhile
        return [{field: value for field, value in numbers.items() if field != b"token"}, *others]

    async def take(self, rows: AsyncIterator[Chunk], origin: str, *, force: bool = False) -> None:
        """An interrupted copy stays marked, so that no process starts with it. `force` wipes it and copies again."""
        await require_durable(self._connection)
        await self._refuse_full(force)
        arrival = await prepare_import(rows, self._key)
        session = Session(self._connection, arrival.seal, secrets.token_hex(8))
        await self._connection.execute(("SET", self._connection.key("half"), origin))
        if arrival.wrapped:
            await self._connection.execute(("SET", self._connection.key("seal"), arrival.wrapped))
        await self._mark_incomplete(session, origin)
        loader = Loader(session)
        await loader.begin(arrival.beginning)
        async for chunk in arrival.rows:
            await loader.take(chunk)
        await loader.end()
        # this write waits until the replicas have it, and so all writes before it
        await self._connection.write("load.finish", session.arguments(), ())

    async def _mark_incomplete(self, session: Session, origin: str) -> None:
        words = f"{self.place} is being filled by a copy from {origin}, or was when that stopped"
        fix = "Wait for it, or copy again with --force"
        value = session.seal.shut(msgspec.json.encode({"words": words, "fix": fix, "holder": ""}))
        row = DOCUMENT.pack(1, await session.now()) + value
        await self._connection.execute(("HSET", self._connection.key(f"d:{TRANSFER}"), THIS_STORE, row))

    async def _refuse_full(self, force: bool) -> None:
        [half] = await self._connection.execute(("GET", self._connection.key("half")))
        if half is not None:
            if not force:
                message = f"{self.place} has half of a copy from {half.decode()}"
                raise Refused(message, fix="If nobody is copying any more: copy again with --force")
            await self._wipe()
            return
        fix = "Name another database of the server (redis://host/1), or empty it"
        refuse_nonempty(self.place, await self.counts(), fix)
        await self._wipe()

    async def _wipe(self) -> None:
        """Delete an incomplete copy, or the keys of a store without rows."""
        prefix, cursor = self._connection.key(""), 0
        while True:
            [[cursor, keys]] = await self._connection.execute(keys_beginning_with(prefix, cursor))
            if keys:
                await self._connection.execute(("UNLINK", *keys))
            if not cursor:
                return

    async def counts(self) -> Counts:
        key = self._connection.key
        numbers, feeds, triggers, ticks, buried, audits = await self._connection.execute(
            ("HGETALL", key("n")),
            ("SCARD", key("feeds")),
            ("HLEN", key("tn")),
            ("LLEN", key("tq")),
            ("HLEN", key("buried")),
            ("LLEN", key("audit")),
        )
        names = await self._connection.execute(("SMEMBERS", key("feeds")))
        kinds = await document_kinds(self._connection)
        return {
            "feeds": feeds,
            "triggers": triggers,
            "documents": sum(await self._connection.execute(*(("HLEN", key("d:") + kind) for kind in kinds))),
            "events": int(numbers.get(b"events", 0)),
            "seen keys": sum(await self._connection.execute(*(("HLEN", key("m:") + name) for name in names[0]))),
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
