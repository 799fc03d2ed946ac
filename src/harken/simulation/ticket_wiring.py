"""The tickets of a simulated process: how it reads them and writes back on them, on platforms that are stand-ins."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from harken.app.ticket_and_run_sync import TicketWork
from harken.clock import Clock
from harken.config.loaded import Loaded
from harken.event import Known
from harken.feed import Feed
from harken.ingest.intake import Intake
from harken.run.plan import Bracket
from harken.run.services_given_to_steps import unbracketed
from harken.run.worker import Worker
from harken.runs import Claimed
from harken.simulation.ticket_platform import NoticesAsSent, TicketPlatform
from harken.ticket import Notice, TicketTracker
from harken.tickets import TicketMemories, TicketSource, TrackerSettings, tracker_of
from harken.tickets.webhook_loss import DeliveryCounter
from harken.tickets.write_pace import WritePace
from harken.timings import Timings

__all__ = ["TicketDesk"]

KEY = b"a key that signs nothing outside"


class TicketDesk:
    """What of the application's factory concerns tickets, for one process. `attend` makes it write back on them."""

    def __init__(self, loaded: Loaded, platforms: Mapping[str, TicketPlatform], store: Any, clock: Clock) -> None:
        trackers = {name: settings for name, settings in loaded.trackers.items() if name in platforms}
        self.loaded = replace(loaded, trackers=trackers)
        self.bracket: Callable[[Claimed], Bracket | None] = unbracketed
        self.on_comment: Callable[[str, Notice], Awaitable[object]] | None = None
        self.pace: Callable[[TrackerSettings], WritePace] | None = None
        self.on_wake: Callable[[str], Awaitable[object]] | None = None
        self._platforms = platforms
        self._store = store
        self._clock = clock

    @property
    def tickets(self) -> TicketDesk:
        return self

    def bracket_of(self, claimed: Claimed) -> Bracket | None:
        """What is done around a run; only known once `begin` was called."""
        return self.bracket(claimed)

    def secrets(self) -> frozenset[str]:
        return self.loaded.secrets

    def trackers(self, name: str) -> Mapping[str, TicketTracker]:
        return self._platforms[name].trackers

    def source(self, feed: Feed) -> TicketSource:
        """The source of a tracker's feed: the real one, on a platform that is not."""
        settings = self.loaded.trackers[tracker_of(feed.name)]
        return TicketSource(
            settings,
            self.trackers(settings.name),
            TicketMemories(self._store, settings.name),
            self._clock,
            NoticesAsSent() if settings.webhook else None,
            recall=self._recall(feed.name),
            wake=lambda: self._wake(feed.name),
            on_comment=self._forward_comment,
            pace=self.pace(settings) if self.pace is not None else None,
            deliveries=DeliveryCounter(self._clock, self._store, settings.name),
        )

    def _recall(self, feed: str) -> Callable[[Sequence[str]], Awaitable[Mapping[str, Known]]]:
        async def recall(subjects: Sequence[str]) -> Mapping[str, Known]:
            known: Mapping[str, Known] = await self._store.recall(feed, subjects)
            return known

        return recall

    async def _wake(self, feed: str) -> None:
        await self._store.wake(feed)
        if self.on_wake is not None:
            await self.on_wake(feed)

    async def _forward_comment(self, tracker: str, notice: Notice) -> None:
        if self.on_comment is not None:
            await self.on_comment(tracker, notice)

    def begin(self, worker: Worker, intake: Intake, timings: Timings) -> TicketWork:
        """What shows runs on tickets and ends those that were withdrawn; `keep` it with a lease."""
        factory: Any = self
        work = TicketWork(self._store, factory, intake.committer, worker, self._clock, _key, timings)
        self.on_wake = intake.refresh
        intake.committer.on_commit = lambda feed, commit, committed: work.note_commit(feed)
        return work


async def _key(loaded: Loaded) -> bytes:
    return KEY
