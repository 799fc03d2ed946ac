"""The replicas that share a store: who lives, what each of them runs, and what one has to tell the others."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Sequence

import msgspec
import structlog

from harken.clock import Clock
from harken.errors import HarkenError, Refused, StoreUnavailable
from harken.operate.fleet import Member, living
from harken.store import HOUSEKEEPING, Generation, Store
from harken.store.documents import FLEET, NEWS, REPLICA
from harken.store.transfer import refuse_marked
from harken.timings import Timings

__all__ = ["HousekeepingLease", "Membership", "OtherGeneration", "drop_dead_replicas", "host", "notify_replicas"]

log = structlog.get_logger("harken.app")

GONE_SECONDS = 3_600.0
ABANDONED_SECONDS = 15.0
"""Longer than it takes to hear of a replica that has just begun."""


def _ignored(error: Refused) -> None:
    """Whoever asks for nothing more finds out by itself."""


class Membership:
    """Says every few seconds that this replica lives, and hears of the others.

    `describe` is what it says of itself; `heard` is told who lives and which configuration the store is at; `news` is
    called when another replica, or a person without one, changed something in the store; `moved` hears that the store
    is not to be used any more.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        describe: Callable[[], Member],
        heard: Callable[[Sequence[Member], Generation], Awaitable[None]],
        news: Callable[[], None],
        moved: Callable[[Refused], None] = _ignored,
        timings: Timings = Timings(),
    ) -> None:
        self._store = store
        self._clock = clock
        self._describe = describe
        self._heard = heard
        self._news = news
        self._moved = moved
        self._timings = timings
        self._known_news: int | None = None

    async def keep(self) -> None:
        """Beat for ever; a beat that fails is made up for by the next."""
        while True:
            try:
                if not await self._is_moved():
                    await self.beat()
            except HarkenError as error:
                away = isinstance(error, StoreUnavailable)
                (log.debug if away else log.warning)("fleet.trouble", reason=str(error))
            except Exception:
                log.exception("fleet.failed")
            await self._clock.sleep(self._timings.beat)

    async def _is_moved(self) -> bool:
        try:
            await refuse_marked(self._store)
        except Refused as error:
            self._moved(error)
            return True
        return False

    async def beat(self) -> None:
        me = self._describe()
        mine = await self._store.put(REPLICA, me.holder, msgspec.to_builtins(me))
        assert mine is not None
        documents = await self._store.documents(REPLICA)
        await self._heard(living(documents, mine.updated_at, self._timings.alive), await self._store.generation())
        await self._hear_news()

    async def leave(self) -> None:
        """The others need not wait until it shows."""
        await self._store.delete(REPLICA, self._describe().holder)

    async def _hear_news(self) -> None:
        document = await self._store.get(FLEET, NEWS)
        revision = document.revision if document else 0
        if self._known_news is not None and revision != self._known_news:
            self._news()
        self._known_news = revision


class OtherGeneration:
    """The configuration that the store is at and we do not run: its `name`, empty while we run the same."""

    def __init__(self) -> None:
        self.name = ""
        self._lived_at = 0.0

    def agree(self) -> None:
        self.name = ""

    def is_abandoned(self, name: str, lives: bool, now: float) -> bool:
        """We do not run `name`. Whether nobody who lives has run it for a while either, so that ours is as good."""
        if lives or self.name != name:
            self._lived_at = now
        self.name = name
        return now - self._lived_at >= ABANDONED_SECONDS


class HousekeepingLease:
    """Housekeeping is done by one replica at a time; where there is only one, by that."""

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
        """Take or renew the lease; whether the house is ours."""
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
    """Let every replica look at what was changed in the store."""
    await store.put(FLEET, NEWS, {})


async def drop_dead_replicas(store: Store) -> None:
    """Forget those that have been gone for long."""
    documents = await store.documents(REPLICA)
    newest = max((document.updated_at for document in documents), default=None)
    for document in documents:
        if newest is not None and (newest - document.updated_at).total_seconds() > GONE_SECONDS:
            await store.delete(REPLICA, document.name)


def host() -> str:
    return socket.gethostname()
