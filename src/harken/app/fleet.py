"""The replicas that share a store: which are alive, what each runs, and how they notify each other of changes."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence

import msgspec
import structlog

from harken.clock import Clock
from harken.errors import HarkenError, Refused, StoreUnavailable
from harken.operate.fleet import Member, living
from harken.store import HOUSEKEEPING, Generation, Store
from harken.store.document_kinds import FLEET, NEWS, REPLICA
from harken.store.transfer_protocol_and_exclusive_access import refuse_marked
from harken.task_cancellation import cancel_and_wait
from harken.timings import Timings

__all__ = ["HousekeepingLease", "Membership", "OtherGeneration", "drop_dead_replicas", "host", "notify_replicas"]

log = structlog.get_logger("harken.app")

NUDGE_SECONDS = 0.1
GONE_SECONDS = 3_600.0
ABANDONED_SECONDS = 15.0
"""A generation that no live replica runs for so long is abandoned. Longer than a new replica needs to show up."""


class Membership:
    """Writes every few seconds that this replica is alive, and reads which others are.

    `describe` returns this replica's row. `on_members` is called with the live replicas and the configuration that the
    store is at; `on_change` when another replica, or a command, has changed something in the store; `on_moved` when the
    store was moved elsewhere and must not be used any more.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        describe: Callable[[], Member],
        on_members: Callable[[Sequence[Member], Generation], Awaitable[None]],
        on_change: Callable[[], None],
        on_moved: Callable[[Refused], None] = lambda error: None,
        timings: Timings = Timings(),
    ) -> None:
        self._store = store
        self._clock = clock
        self._describe = describe
        self._on_members = on_members
        self._on_change = on_change
        self._on_moved = on_moved
        self._timings = timings
        self._known_revision: int | None = None
        self._nudged = asyncio.Event()

    def nudge(self) -> None:
        """A replica may have left: beat now instead of at the next time."""
        self._nudged.set()

    async def keep(self) -> None:
        """Beat until cancelled. A beat that fails is not repeated: the next one follows soon."""
        while True:
            try:
                if not await self._is_moved():
                    await self.beat()
            except HarkenError as error:
                away = isinstance(error, StoreUnavailable)
                (log.debug if away else log.warning)("fleet.trouble", reason=str(error))
            except Exception:
                log.exception("fleet.failed")
            await self._wait()

    async def _wait(self) -> None:
        sleeping = asyncio.ensure_future(self._clock.sleep(self._timings.beat))
        nudged = asyncio.ensure_future(self._nudged.wait())
        try:
            await asyncio.wait((sleeping, nudged), return_when=asyncio.FIRST_COMPLETED)
        finally:
            await cancel_and_wait((sleeping, nudged))
        if self._nudged.is_set():
            # several leases are released one after the other
            await self._clock.sleep(NUDGE_SECONDS)
            self._nudged.clear()

    async def _is_moved(self) -> bool:
        try:
            await refuse_marked(self._store)
        except Refused as error:
            self._on_moved(error)
            return True
        return False

    async def beat(self) -> None:
        me = self._describe()
        mine = await self._store.put(REPLICA, me.holder, msgspec.to_builtins(me))
        assert mine is not None
        members = living(await self._store.documents(REPLICA), mine.updated_at, self._timings.alive)
        await self._on_members(members, await self._store.generation())
        await self._check_changes()

    async def leave(self) -> None:
        """Remove this replica's row, so that the others need not wait until it expires."""
        await self._store.delete(REPLICA, self._describe().holder)

    async def _check_changes(self) -> None:
        document = await self._store.get(FLEET, NEWS)
        revision = document.revision if document else 0
        if self._known_revision is not None and revision != self._known_revision:
            self._on_change()
        self._known_revision = revision


class OtherGeneration:
    """The generation that the store is at, while this replica runs another one; `name` is empty when they agree."""

    def __init__(self) -> None:
        self.name = ""
        self._last_run_at = 0.0

    def clear(self) -> None:
        self.name = ""

    def is_abandoned(self, name: str, is_run: bool, now: float) -> bool:
        """Note that we do not run `name`; `is_run`: a live replica does. True when none has for a while."""
        if is_run or self.name != name:
            self._last_run_at = now
        self.name = name
        return now - self._last_run_at >= ABANDONED_SECONDS


class HousekeepingLease:
    """The right to do housekeeping, which one replica at a time has. A store that is not shared needs no lease."""

    def __init__(
        self, store: Store, clock: Clock, holder: str, *, shared: bool, seconds: float = Timings().lease_seconds
    ) -> None:
        self._store = store
        self._clock = clock
        self._holder = holder
        self._shared = shared
        self._seconds = seconds
        self._taken_at: float | None = None
        self.kept = not shared

    async def keep(self) -> bool:
        """Take or renew the lease when due; whether it is ours."""
        now = self._clock.monotonic()
        due = self._taken_at is None or now - self._taken_at >= self._seconds / 3
        if self._shared and due:
            self.kept = await self._store.lease(HOUSEKEEPING, self._holder, self._seconds) is not None
            self._taken_at = now if self.kept else None
        return self.kept

    async def leave(self) -> None:
        if self._shared and self.kept:
            self.kept = False
            lease = await self._store.lease(HOUSEKEEPING, self._holder, self._seconds)
            if lease is not None:
                await self._store.release_lease(lease, self._holder)


async def notify_replicas(store: Store) -> None:
    """Make every replica read again what was changed in the store."""
    await store.put(FLEET, NEWS, {})


async def drop_dead_replicas(store: Store) -> None:
    """Delete the rows of replicas that stopped long ago."""
    documents = await store.documents(REPLICA)
    newest = max((document.updated_at for document in documents), default=None)
    for document in documents:
        if newest is not None and (newest - document.updated_at).total_seconds() > GONE_SECONDS:
            await store.delete(REPLICA, document.name)


def host() -> str:
    return socket.gethostname()
