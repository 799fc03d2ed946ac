"""What the engine of a simulated process is built on, whether it is alone or one of several."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any, TypeAlias

from harken.app.ticket_and_run_sync import TicketWork
from harken.clock import Clock
from harken.feed import INTERNAL, Feed
from harken.ingest.commit import RuleCache
from harken.ingest.intake import Intake
from harken.ingest.internal_event_matcher import has_listeners, internal_matcher
from harken.run.worker import Worker
from harken.services import registry
from harken.simulation.reduced_configuration import Configuration, SharedPlans
from harken.simulation.sources import RecordedSource, ScriptedPoll, ScriptedPush, ScriptedStream
from harken.simulation.step_stand_ins import Effects
from harken.simulation.ticket_platform import TicketPlatform
from harken.simulation.ticket_wiring import TicketDesk
from harken.source import Source
from harken.testing import VirtualClock
from harken.tickets import tracker_of
from harken.timings import Timings

__all__ = ["Setting", "StandInSource", "build_engine"]

StandInSource: TypeAlias = ScriptedPoll | ScriptedPush | ScriptedStream | RecordedSource


@dataclass(frozen=True, kw_only=True)
class Setting:
    """`clock` is ours, and may be set wrong; `true` is that of the world outside. `platforms` are those of trackers."""

    configuration: Configuration
    clock: VirtualClock
    true: VirtualClock
    random: Random
    effects: Effects
    plans: SharedPlans
    sources: Mapping[str, StandInSource]
    platforms: Mapping[str, TicketPlatform]

    def source(self, feed: Feed) -> StandInSource:
        return self.sources[feed.name]


def build_engine(
    setting: Setting,
    store: Any,
    clock: Clock,
    *,
    holders: tuple[str, str],
    timings: Timings,
    shards: int = 1,
    around: Callable[[Feed, Any], Source] = lambda feed, source: source,
) -> tuple[Worker, Intake, TicketWork | None]:
    """A worker and an intake on this store, which hold what they claim and lease under these two names.

    With trackers there is work on tickets too, to be kept with a lease. Each source is used as `around` returns it.
    """
    rule_cache = RuleCache(store)
    loaded = setting.configuration.loaded
    setting.plans.effects = setting.effects
    desk = TicketDesk(loaded, setting.platforms, store, clock)
    environment = setting.effects.environment(loaded, registry(), setting.random)

    def source(feed: Feed) -> Source:
        ours = tracker_of(feed.name) in setting.platforms
        return around(feed, desk.source(feed) if ours else setting.source(feed))

    worker = Worker(
        store,
        clock,
        setting.random,
        workflows=setting.plans.cache,
        environment=replace(environment, bracket=desk.bracket_of),
        holder=holders[0],
        internal=internal_matcher(rule_cache, clock),
        learn=lambda: rule_cache.learn(INTERNAL),
        listens=has_listeners(rule_cache),
        parallel=loaded.settings.agent.queue.max_parallel_jobs,
        timings=timings,
    )
    intake = Intake(
        store,
        clock,
        setting.random,
        worker,
        source,
        holder=holders[1],
        rule_cache=rule_cache,
        shards=shards,
        timings=timings,
        is_prompt=lambda feed: bool(tracker_of(feed.name)),
    )
    return worker, intake, desk.begin(worker, intake, timings) if setting.platforms else None
