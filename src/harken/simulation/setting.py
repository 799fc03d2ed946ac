"""What the engine of a simulated process is built on, whether it is alone or one of several."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, TypeAlias

from harken.clock import Clock
from harken.feed import INTERNAL, Feed
from harken.ingest.commit import RuleCache
from harken.ingest.intake import Intake
from harken.ingest.internal_events import has_listeners, internal_matcher
from harken.run.worker import Worker
from harken.services import registry
from harken.simulation.configuration import Configuration, SharedPlans
from harken.simulation.effects import Effects
from harken.simulation.sources import RecordedSource, ScriptedPoll, ScriptedPush, ScriptedStream
from harken.source import Source
from harken.testing import VirtualClock
from harken.timings import Timings

__all__ = ["Setting", "StandInSource", "build_engine"]

StandInSource: TypeAlias = ScriptedPoll | ScriptedPush | ScriptedStream | RecordedSource


@dataclass(frozen=True, kw_only=True)
class Setting:
    """`clock` is ours, and may be set wrong; `true` is that of the world outside."""

    configuration: Configuration
    clock: VirtualClock
    true: VirtualClock
    random: Random
    effects: Effects
    plans: SharedPlans
    sources: Mapping[str, StandInSource]


def build_engine(
    setting: Setting,
    store: Any,
    clock: Clock,
    source: Callable[[Feed], Source],
    *,
    holders: tuple[str, str],
    timings: Timings,
    shards: int = 1,
) -> tuple[Worker, Intake]:
    """A worker and an intake on this store, which hold what they claim and lease under these two names."""
    rule_cache = RuleCache(store)
    loaded = setting.configuration.loaded
    setting.plans.effects = setting.effects
    worker = Worker(
        store,
        clock,
        setting.random,
        workflows=setting.plans.cache,
        environment=setting.effects.environment(loaded, registry(), setting.random),
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
    )
    return worker, intake
