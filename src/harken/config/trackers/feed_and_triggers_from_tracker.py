"""Compile a tracker to the feed that reads it, and to a trigger for each of its projects. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from harken.config.loaded import Account
from harken.config.trackers.tracker_from_projects import SWEEP_SECONDS
from harken.feed import Feed, Trigger
from harken.runs import Workflow
from harken.schedule import Every
from harken.tickets import ProjectSettings, TrackerSettings, feed_name, trigger_name

__all__ = ["Compiled", "compile_all", "compile_tracker", "storable", "with_projects"]

MEMORY_SECONDS = 30 * 86_400.0
"""A ticket may rest for weeks; forgetting it would make its next change look like a new ticket."""

LOOKBACK_SECONDS = 600.0
"""How far before its mark each read begins: lists of changes lag."""

PAGE_TIMEOUT = 60.0
"""For one page: a list within 20 s, and the single tickets of it that have to be read again."""

TICK_TIMEOUT = 300.0


class Compiled(msgspec.Struct, frozen=True, kw_only=True):
    feeds: tuple[Feed, ...] = ()
    triggers: tuple[Trigger, ...] = ()


def compile_all(
    trackers: Mapping[str, TrackerSettings],
    workflows: Mapping[str, Workflow],
    accounts: Mapping[str, Account],
    source: str,
) -> Compiled:
    """The feeds and triggers of all trackers that have a project. `source` is the file that they are written in."""
    feeds: list[Feed] = []
    triggers: list[Trigger] = []
    for tracker in trackers.values():
        found = compile_tracker(tracker, workflows, accounts[tracker.account].backoff, source)
        if found is not None:
            feeds.append(found[0])
            triggers += found[1]
    return Compiled(feeds=tuple(feeds), triggers=tuple(triggers))


def compile_tracker(
    tracker: TrackerSettings,
    workflows: Mapping[str, Workflow],
    backoff: tuple[float, float] | None,
    source: str,
) -> tuple[Feed, tuple[Trigger, ...]] | None:
    """The feed and its triggers; None without a project whose pipelines are there."""
    triggers = []
    for project in tracker.projects:
        trigger = _trigger(tracker, project, workflows, source)
        if trigger is not None:
            triggers.append(trigger)
    if not triggers:
        return None
    feed = Feed(
        name=feed_name(tracker.name),
        kind=tracker.kind,
        integration=tracker.account,
        query=storable(tracker),
        schedule=Every(seconds=tracker.interval if tracker.polled else SWEEP_SECONDS),
        identity="transition",
        lookback=LOOKBACK_SECONDS,
        first="all",
        memory_seconds=MEMORY_SECONDS,
        page_timeout=PAGE_TIMEOUT,
        tick_timeout=TICK_TIMEOUT,
        jitter=tracker.jitter,
        backoff=backoff,
        path=f"{tracker.kind}/{tracker.name}" if tracker.webhook else "",
    )
    return feed, tuple(triggers)


def _trigger(
    tracker: TrackerSettings, project: ProjectSettings, workflows: Mapping[str, Workflow], source: str
) -> Trigger | None:
    wanted = dict.fromkeys([*project.routes.by_label.values(), project.routes.default])
    routes = {name: workflows[name].rev for name in wanted if name in workflows}
    if not routes:
        return None
    first = next(iter(routes))
    return Trigger(
        name=trigger_name(tracker.name, project.name),
        feed=feed_name(tracker.name),
        workflow=first,
        workflow_rev=routes[first],
        types=("ticket.ready",),
        # JSON and CEL quote strings alike
        condition=f"event.project == {json.dumps(project.name)}",
        overlap="skip",
        concurrency_key="{{.trigger.subject}}",
        flood_limit=tracker.flood_limit,
        routes=routes,
        source=source,
    )


def with_projects(tracker: TrackerSettings, projects: tuple[ProjectSettings, ...]) -> TrackerSettings:
    """The tracker with these projects, and the locations that they need."""
    locations = tuple(dict.fromkeys(project.location for project in projects))
    return msgspec.structs.replace(tracker, projects=projects, locations=locations)


def storable(tracker: TrackerSettings) -> dict[str, Any]:
    """The settings as the feed keeps them and people see them. They have no secrets.

    Label maps are lists here: their order counts, and mappings are compared without it.
    """
    # as it comes back from the store, with lists in place of tuples
    shown: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(tracker))
    for project, row in zip(tracker.projects, shown["projects"], strict=True):
        row["routes"]["by_label"] = [list(pair) for pair in project.routes.by_label.items()]
    for name in ("open_states", "trigger_statuses"):
        shown[name] = sorted(shown[name])
    return shown
