"""The store in Redis. Every write is one Lua script, so it happens completely or not at all.

`RedisStore` joins the parts of the store and opens it. Each method is in the file of its role, beside its script.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from typing import ClassVar, Self

from harken.backends.notify import RELEASED, Notifications, nothing
from harken.backends.redis import durability, format_and_encryption_keys, notify
from harken.backends.redis.claims import RedisClaims
from harken.backends.redis.commit import RedisCommits
from harken.backends.redis.connection import Connection
from harken.backends.redis.connection_and_name_cache import Session
from harken.backends.redis.documents_and_audit import RedisRegistry
from harken.backends.redis.feed_memory_and_failures import RedisFeeds
from harken.backends.redis.feeds_and_triggers import RedisDefinitions
from harken.backends.redis.last_event_ids_by_outcome import RedisBank
from harken.backends.redis.leases import RedisLeases
from harken.backends.redis.record_queries import RedisRecords
from harken.backends.redis.runs import RedisRuns
from harken.backends.redis.subject_index import RedisObjects
from harken.backends.redis.upkeep import RedisUpkeep
from harken.backends.redis.watched_run_changes import RedisMoved
from harken.backends.watched_run_changes import Turns
from harken.clock import Clock

__all__ = ["RedisStore"]


class RedisStore(
    RedisDefinitions,
    RedisLeases,
    RedisFeeds,
    RedisCommits,
    RedisClaims,
    RedisRuns,
    RedisMoved,
    RedisRegistry,
    RedisRecords,
    RedisObjects,
    RedisBank,
    RedisUpkeep,
):
    """All protocols of the store on one Redis primary. After `connect`, `durability` says what a crash can lose."""

    shared: ClassVar[bool] = True

    def __init__(self, connection: Connection, key: str) -> None:
        self.durability: durability.Durability | None = None
        self._connection = connection
        connection.on_write = self._on_write
        self._hints = Notifications(
            lambda hint: notify.listen(connection, hint), lambda name: notify.publish(connection, name)
        )
        self._key = key
        self._turns = Turns()
        self._session: Session | None = None
        self._connecting = asyncio.Lock()

    @classmethod
    def at(
        cls,
        url: str,
        clock: Clock | None = None,
        *,
        readonly: bool = False,
        key: str = "",
        space: str = "harken",
        limit: int = 10_000,
    ) -> Self:
        """The store at a URL; the server is reached with the first verb, or `connect`.

        Without a clock the server's time counts, as it must where several replicas write. Stores of different `space`
        on one server are independent. Raise Misconfigured for an invalid URL.
        """
        return cls(_connection(url, space, clock, limit=limit, readonly=readonly), key)

    @staticmethod
    async def rekey(url: str, old: str, new: str, *, space: str = "harken") -> None:
        """Make the store open with another key."""
        connection = _connection(url, space)
        try:
            await format_and_encryption_keys.rekey(connection, old, new)
        finally:
            await connection.close()

    async def connect(self) -> Sequence[str]:
        checked = await self.check_durability()
        return checked.words, str(await self.forecast())

    async def check_durability(self) -> durability.Durability:
        """Check the server's settings. Call it again now and then: replicas and settings change.

        Raise Misconfigured for a server that may delete rows, or a wrong key.
        """
        self.durability = await durability.require_durable(self._connection, self.durability)
        await format_and_encryption_keys.refuse_newer(self._connection)
        if self._session is None:
            seal = await format_and_encryption_keys.seal_for(self._connection, self._key)
            self._session = Session(self._connection, seal, secrets.token_hex(8))
        return self.durability

    async def _ready(self) -> Session:
        if self._session is None:
            async with self._connecting:
                if self._session is None:
                    await self.check_durability()
        assert self._session is not None
        return self._session

    def listen(self, on_ready: Callable[[], object], on_released: Callable[[], object] = nothing) -> None:
        """Call these when another replica made runs ready, or released a lease. Calls may get lost: poll as well."""
        self._hints.listen(on_ready, on_released)

    def _on_write(self, verb: str) -> None:
        if verb in notify.WAKING:
            self._hints.give()
        elif verb == "leases.release_lease":
            self._hints.give(RELEASED)

    async def forecast(self, events_per_day: float | None = None) -> durability.Forecast:
        """How much memory a day of retention takes, judging by the events that are stored."""
        return await durability.forecast(await self._ready(), events_per_day)


def _connection(
    url: str, space: str, clock: Clock | None = None, *, limit: int = 10_000, readonly: bool = False
) -> Connection:
    # all keys share the tag in braces, so that a cluster keeps them on one node
    return Connection(url, f"{{{space}:0}}:", clock, limit=limit, readonly=readonly)
