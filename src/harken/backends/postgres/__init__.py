"""The store for a fleet: PostgreSQL by asyncpg, one transaction per call, and the server's clock for every token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Self

from harken.backends.notify import nothing
from harken.backends.postgres.connection import Database, Settings
from harken.backends.postgres.documents_and_audit import PostgresRegistry
from harken.backends.postgres.feed_memory_and_failures import PostgresFeeds
from harken.backends.postgres.last_event_ids_by_outcome import PostgresBank
from harken.backends.postgres.record_queries import PostgresRecords
from harken.backends.postgres.runs import PostgresRuns
from harken.backends.postgres.subject_index import PostgresObjects
from harken.backends.postgres.upkeep import PostgresUpkeep
from harken.clock import Clock

__all__ = ["PostgresStore", "Settings"]


class PostgresStore(
    PostgresFeeds, PostgresRuns, PostgresRegistry, PostgresRecords, PostgresObjects, PostgresBank, PostgresUpkeep
):
    """A store that several processes write. It connects with the first call, or with `connect`."""

    shared: ClassVar[bool] = True

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.place = database.place

    @classmethod
    def at(
        cls,
        url: str,
        clock: Clock | None = None,
        *,
        readonly: bool = False,
        key: str = "",
        settings: Settings | None = None,
    ) -> Self:
        """Without a clock the server's counts, as it must where several replicas write.

        Raise Misconfigured for a URL of another kind. The first call raises it for a wrong key or a newer schema.
        """
        return cls(Database(url, clock, key, settings or Settings(), readonly=readonly))

    async def connect(self) -> Sequence[str]:
        """Connect and bring the schema up to date now, so that trouble shows at the start."""
        await self._database.connect()
        return ()

    def listen(self, on_ready: Callable[[], object], on_released: Callable[[], object] = nothing) -> None:
        """Call these when another replica made runs ready, or released a lease. Calls may get lost: poll as well."""
        self._database.listen(on_ready, on_released)

    @property
    def queued(self) -> int:
        """How many calls wait for a connection."""
        return self._database.queued

    def abandon(self) -> None:
        """Drop all connections without waiting, as a process that dies does."""
        self._database.abandon()

    @staticmethod
    async def rekey(url: str, old: str, new: str) -> None:
        """Make the store open with another key. Running replicas go on with the keys that they have."""
        await Database(url, None, old, Settings(pool=1), readonly=False).rekey(new)
