"""Makes the trackers of the configuration, and the source of each tracker's feed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from harken.app.redacted_tracker_answers import redacting_tracker
from harken.clock import Clock
from harken.config.loaded import Account, Loaded
from harken.config.trackers.schema import Hook
from harken.errors import NotFound
from harken.event import Known
from harken.feed import Feed
from harken.source import Host, Plugin, Request
from harken.store import Store
from harken.ticket import Notice, NoticeReader, TicketTracker
from harken.tickets import TicketMemories, TicketSource, TrackerSettings, feed_name, tracker_of
from harken.tickets.webhook_loss import DeliveryCounter
from harken.tickets.write_pace import WritePace

__all__ = ["TicketSources"]


class FactoryPart(Protocol):
    """What of the factory is needed here."""

    loaded: Loaded
    plugins: Mapping[str, Plugin]

    def host_for(self, account: Account, who: str) -> Host: ...

    def secrets(self) -> frozenset[str]: ...


class TicketSources:
    """`store` holds what is remembered of tickets; without one there are trackers, but no sources.

    `on_wake` is called when a feed was made due by a webhook. `on_comment` is told of comments, by tracker. `pace` is
    that of everything that writes with the credential of a tracker.
    """

    def __init__(self, factory: FactoryPart, clock: Clock, store: Store | None) -> None:
        self._factory = factory
        self._clock = clock
        self._store = store
        self._tracker_sets: dict[str, _TrackerSet] = {}
        self._deliveries: dict[str, DeliveryCounter] = {}
        self.on_wake: Callable[[], object] = lambda: None
        self.on_comment: Callable[[str, Notice], Awaitable[object]] | None = None
        self.pace: Callable[[TrackerSettings], WritePace] | None = None

    def trackers(self, name: str) -> Mapping[str, TicketTracker]:
        """The trackers of this name by their locations; the same ones until the configuration of it changes."""
        settings, account, plugin = self._parts(name)
        found = self._tracker_sets.get(name)
        if found is None or found.account != account or found.locations != settings.locations:
            found = self._tracker_sets[name] = self._make(settings, account, plugin)
        return found.trackers

    def host(self, name: str) -> Host:
        """The host through which the trackers of this name are asked."""
        self.trackers(name)
        return self._tracker_sets[name].host

    def _parts(self, name: str) -> tuple[TrackerSettings, Account, Plugin]:
        loaded = self._factory.loaded
        settings = loaded.trackers.get(name)
        account = loaded.integrations.get(settings.account) if settings else None
        plugin = self._factory.plugins.get(settings.kind) if settings else None
        if settings is None or account is None or plugin is None or plugin.tracker is None:
            raise NotFound(f"there is no tracker {name!r}", fix="See: harken config check")
        return settings, account, plugin

    def _make(self, settings: TrackerSettings, account: Account, plugin: Plugin) -> _TrackerSet:
        assert plugin.tracker is not None
        host = self._factory.host_for(account, feed_name(settings.name))
        trackers = {
            location: redacting_tracker(
                plugin.tracker(location, account.model, host), self._factory.secrets, plugin.kind, account.name
            )
            for location in settings.locations
        }
        return _TrackerSet(account, settings.locations, trackers, host)

    def source(self, feed: Feed) -> TicketSource:
        """The source of a tracker's feed. Raise NotFound when there is no such tracker, and no store to remember in."""
        settings, account, plugin = self._parts(tracker_of(feed.name))
        store = self._store
        if store is None:
            raise NotFound(f"the tracker {settings.name} needs a store to be read", fix="Run: harken start")
        # each has a memory of its own of what it was shown
        return TicketSource(
            settings,
            self.trackers(settings.name),
            TicketMemories(store, settings.name),
            self._clock,
            self._notices(feed, settings, account, plugin),
            recall=self._recall(store, feed.name),
            wake=lambda: self._wake(store, feed.name),
            on_comment=self._forward_comment,
            pace=self.pace(settings) if self.pace is not None else None,
            deliveries=self._counter(store, settings.name),
        )

    def _counter(self, store: Store, tracker: str) -> DeliveryCounter:
        """The same one for every source of a tracker: what it has counted outlives a reload."""
        if tracker not in self._deliveries:
            self._deliveries[tracker] = DeliveryCounter(self._clock, store, tracker)
        return self._deliveries[tracker]

    async def save_deliveries(self) -> None:
        """Write down what was counted of webhooks, for all replicas."""
        for counter in self._deliveries.values():
            await counter.save()

    def _notices(self, feed: Feed, settings: TrackerSettings, account: Account, plugin: Plugin) -> NoticeReader | None:
        hook = self._factory.loaded.queries.get(feed.name)
        if not isinstance(hook, Hook):
            return None
        if hook.secret is None:
            return UnsignedNotices(settings)
        return plugin.notices(hook.secret.get_secret_value(), account.model, self._clock) if plugin.notices else None

    def _recall(self, store: Store, feed: str) -> Callable[[Sequence[str]], Awaitable[Mapping[str, Known]]]:
        async def recall(subjects: Sequence[str]) -> Mapping[str, Known]:
            return await store.recall(feed, subjects)

        return recall

    async def _wake(self, store: Store, feed: str) -> None:
        await store.wake(feed)
        self.on_wake()

    async def _forward_comment(self, tracker: str, notice: Notice) -> None:
        if self.on_comment is not None:
            await self.on_comment(tracker, notice)


class _TrackerSet(msgspec.Struct, frozen=True):
    account: Account
    locations: tuple[str, ...]
    trackers: Mapping[str, TicketTracker]
    host: Host


class UnsignedNotices:
    """Reads webhooks that nobody signed: they say nothing but that it is time to read."""

    def __init__(self, settings: TrackerSettings) -> None:
        self._locations = settings.locations

    def read(self, request: Request) -> Sequence[Notice]:
        return [Notice(location=location, id="") for location in self._locations[:1]]
