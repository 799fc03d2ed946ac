"""A scenario as Harken's own values: feeds, triggers, workflows and the sources behind them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import Any

import msgspec

from harken.clock import Clock
from harken.feed import INTERNAL, Digest, Feed, Trigger
from harken.schedule import Cron, Every, Quiet
from harken.services.cron import Activations, Query
from harken.source import Host
from harken.store import Definitions
from harken.testing import World, WorldSource
from tests.system.property import scenarios
from tests.system.property.sources import Noted

LOOKBACK = 120.0
CRON_LINE = "*/37 * * * *"
EVERY_MINUTES = 37
SLOW = {"steps": [{"id": "one", "action": "desk.do"}, {"id": "two", "action": "desk.do"}]}
QUIET = Quiet(start="10:00", end="10:50", tz="Europe/Berlin")
FLOWS = {"quick": ("quick@1", b'{"steps":[]}'), "slow": ("slow@1", msgspec.json.encode(SLOW))}


def sources_of(scenario: scenarios.Scenario, worlds: Sequence[World], clock: Clock) -> dict[str, Noted]:
    sources = {f"f{number}": _source(feed, worlds[number]) for number, feed in enumerate(scenario.feeds)}
    if scenario.cron:
        nothing: Any = None
        missed: Any = scenario.cron
        host = Host(http=nothing, clock=clock, random=Random(1))
        sources["cron"] = Noted(Activations(Query(cron=CRON_LINE, missed=missed), host), unnamed=False)
    return sources


def _source(feed: scenarios.FeedPlan, world: World) -> Noted:
    view: Any = feed.view
    source = WorldSource(world, view, feed.page_size, feed.cap, feed.conditional)
    return Noted(source, unnamed=not feed.named or feed.identity == "once")


def trigger_of(scenario: scenarios.Scenario, number: int) -> Trigger:
    one = scenario.triggers[number]
    overlap: Any = one.overlap
    startup: Any = one.startup
    return Trigger(
        name=f"t{number}",
        feed=f"f{one.feed}",
        workflow=one.flow,
        workflow_rev=f"{one.flow}@1",
        condition=scenarios.CONDITIONS[one.condition],
        gather=Digest(window=one.gather[0], max=one.gather[1]) if one.gather else None,
        overlap=overlap,
        startup=startup,
        backfill=one.backfill,
        max_age=one.max_age,
        quiet=QUIET if one.quiet else None,
    )


def definitions_of(
    scenario: scenarios.Scenario, triggers: Iterable[Trigger], generation: str, *, starting: bool
) -> Definitions:
    return Definitions(
        generation=generation,
        feeds=_feeds(scenario),
        triggers=[*triggers, *_standing(scenario)],
        workflows=FLOWS,
        starting=starting,
    )


def _feeds(scenario: scenarios.Scenario) -> list[Feed]:
    feeds = [_feed(f"f{number}", one) for number, one in enumerate(scenario.feeds)]
    feeds.append(
        Feed(name=INTERNAL, kind=INTERNAL, integration=INTERNAL, way="internal", lookback=0.0, first="deliver")
    )
    if scenario.cron:
        schedule = Cron(expression=CRON_LINE)
        cron = Feed(name="cron", kind="cron", integration="", schedule=schedule, lookback=0.0, first="deliver")
        feeds.append(cron)
    if scenario.push:
        feeds.append(Feed(name="push", kind="webhook", integration="", way="push"))
    return feeds


def _feed(name: str, one: scenarios.FeedPlan) -> Feed:
    identity: Any = one.identity
    schedule = Every(seconds=one.interval)
    return Feed(name=name, kind="world", integration="world", identity=identity, schedule=schedule, lookback=LOOKBACK)


def _standing(scenario: scenarios.Scenario) -> list[Trigger]:
    """The triggers that are there from beginning to end."""
    triggers: list[Trigger] = []
    if scenario.cron:
        triggers.append(Trigger(name="cron", feed="cron", workflow="quick", workflow_rev="quick@1", flood_limit=0))
    if scenario.push:
        triggers.append(Trigger(name="hook", feed="push", workflow="quick", workflow_rev="quick@1"))
    if scenario.announced:
        after = Trigger(name="after", feed=INTERNAL, workflow="quick", workflow_rev="quick@1", types=("run.done",))
        triggers.append(msgspec.structs.replace(after, condition='event.trigger != "after"'))
    return triggers
