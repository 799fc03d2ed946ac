"""Whether anything was lost or doubled, told from what the sources showed and what the store has at the end.

It shares no code with matching: it knows the rules only as promises. Each occurrence that a source showed is recorded
once, each trigger that listens has a verdict on it, and each one that matches is in exactly one run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from harken.event import Recorded, Verdict
from harken.feed import INTERNAL, Feed, Join, Trigger
from harken.language.cel import bind, compile_condition, needs_of
from harken.runs import OPEN, Run
from harken.schedule import activations
from harken.simulation.engine import Simulation
from harken.simulation.script import Arrival
from harken.simulation.simulated_replicas import Fleet
from harken.simulation.sources import Occurrence, RecordedSource, ScriptedPoll, ScriptedPush, ScriptedStream
from harken.simulation.ticket_platform import TicketPlatform
from harken.tickets import Lifecycle, feed_name, tracker_of, trigger_name
from harken.tickets.settings import FIRST_STEP

__all__ = ["Fault", "Judgement", "judge", "judge_tickets"]

STARTED = frozenset({"fired", "gathered", "held"})
MANY = 1_000_000


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was lost or doubled, or a ticket whose label does not tell how its run ended.

    `trigger` is empty where the event itself is not as it should be.
    """

    kind: Literal["lost", "doubled", "mislabelled"]
    feed: str
    subject: str
    reason: str
    trigger: str = ""

    def __str__(self) -> str:
        where = f"{self.feed} → {self.trigger}" if self.trigger else self.feed
        return f"{self.kind}: {self.subject} ({where}): {self.reason}"


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a script. `shown`: occurrences that the sources showed; `recorded`: events without Harken's own."""

    shown: int
    recorded: int
    runs: int
    done: int
    failed: int
    tickets: int = 0
    faults: tuple[Fault, ...] = ()

    @property
    def lost(self) -> int:
        return sum(fault.kind == "lost" for fault in self.faults)

    @property
    def doubled(self) -> int:
        return sum(fault.kind == "doubled" for fault in self.faults)

    @property
    def mislabelled(self) -> int:
        return sum(fault.kind == "mislabelled" for fault in self.faults)


async def judge(simulation: Simulation) -> Judgement:
    """Compare. The simulation has been played to its end, and is still open."""
    events, runs = await simulation.events(), await simulation.runs()
    lines = {state.name: state.start_line for state in await simulation.store.triggers()}
    faults: list[Fault] = []
    shown = 0
    for feed in simulation.configuration.feeds:
        if feed.way == "internal" or tracker_of(feed.name) in simulation.platforms:
            continue
        expected = _expected(simulation, feed)
        shown += sum(expected.values())
        faults += _compare(feed, expected, [event for event in events if event.feed == feed.name])
        faults += _activations(simulation, feed, [event for event in events if event.feed == feed.name])
    faults += _verdicts(simulation, events, {run.id: run for run in runs}, lines)
    faults += _memberships(simulation, events, runs)
    faults += await _journals(simulation, runs)
    faults += _writers(simulation)
    for platform in simulation.platforms.values():
        feed = simulation.configuration.feed(feed_name(platform.settings.name))
        faults += judge_tickets(platform, feed, events, runs, read=feed.name not in simulation.unread)
    outside = [event for event in events if event.feed != INTERNAL]
    return Judgement(
        shown=shown,
        recorded=len(outside),
        runs=len(runs),
        done=sum(run.status == "done" for run in runs),
        failed=sum(run.status in ("failed", "dead") for run in runs),
        tickets=sum(len(platform.tickets) for platform in simulation.platforms.values()),
        faults=tuple(dict.fromkeys(faults)),
    )


def _expected(simulation: Simulation, feed: Feed) -> Counter[Occurrence]:
    """How often each occurrence must have been recorded, by the feed's identity."""
    source = simulation.sources[feed.name]
    if isinstance(source, RecordedSource):
        return Counter(dict.fromkeys(source.served.occurrences, 1))
    arrivals = sorted(simulation.script.of(feed.name), key=lambda one: one.at)
    shown = set(source.served.occurrences)
    if isinstance(source, ScriptedPoll | ScriptedStream) and feed.name not in simulation.unread:
        # what is still there must have been asked for
        shown |= source.visible()
    ordered = isinstance(source, ScriptedPush | ScriptedStream) or source.view == "log"
    if feed.identity == "transition" and ordered:
        return _changes(arrivals)
    return Counter(dict.fromkeys((_named(occurrence, feed) for occurrence in shown), 1))


def _changes(arrivals: Sequence[Arrival]) -> Counter[Occurrence]:
    last: dict[str, str | None] = {}
    found: Counter[Occurrence] = Counter()
    for one in arrivals:
        if one.subject not in last or last[one.subject] != one.state:
            found[(one.subject, one.state)] += 1
        last[one.subject] = one.state
    return found


def _named(occurrence: Occurrence, feed: Feed) -> Occurrence:
    return (occurrence[0], None) if feed.identity == "once" else occurrence


def _compare(feed: Feed, expected: Counter[Occurrence], events: Sequence[Recorded]) -> Iterator[Fault]:
    found = Counter(_named((event.subject, event.state), feed) for event in events)
    name = feed.display_name
    for (subject, _), count in (expected - found).items():
        reason = "the source showed it, and it was not recorded" + (f" ({count} times)" if count > 1 else "")
        yield Fault(kind="lost", feed=name, subject=subject, reason=reason)
    for (subject, state), count in (found - expected).items():
        times = found[(subject, state)]
        reason = f"recorded {times} times" if times > count else "recorded, and no source has shown it"
        yield Fault(kind="doubled", feed=name, subject=subject, reason=reason)


def _activations(simulation: Simulation, feed: Feed, events: Sequence[Recorded]) -> Iterator[Fault]:
    """Of a schedule, each activation has an event or is counted in a later one; the last one may still be due."""
    query: Any = simulation.configuration.loaded.queries.get(feed.name)
    if feed.kind != "cron" or query is None or query.missed == "skip":
        return
    start, end = simulation.script.start, simulation.clock.now()
    due = activations(query.schedule(), start, end, MANY)
    told = sum(1 + int(event.data.get("missed", 0)) for event in events)
    # a clock that was set back makes activations due a second time, which their keys tell
    if told + 1 < len(due):
        reason = f"{len(due)} activations were due, and events tell of {told}"
        yield Fault(kind="lost", feed=feed.display_name, subject=due[told].isoformat(), reason=reason)


def _verdicts(
    simulation: Simulation, events: Sequence[Recorded], runs: Mapping[str, Run], lines: Mapping[str, datetime]
) -> Iterator[Fault]:
    listeners: dict[str, list[Trigger]] = {}
    for trigger in simulation.configuration.triggers:
        listeners.setdefault(trigger.feed, []).append(trigger)
    feeds = {feed.name: feed for feed in simulation.configuration.feeds}
    for event in events:
        given = {verdict.trigger: verdict for verdict in event.verdicts}
        for trigger in listeners.get(event.feed, ()):
            if trigger.types and event.type not in trigger.types:
                continue
            reason = _wrong(event, given.get(trigger.name), trigger, feeds[event.feed], runs, lines)
            if reason:
                name = feeds[event.feed].display_name
                yield Fault(kind="lost", feed=name, trigger=trigger.name, subject=event.subject, reason=reason)


def _wrong(
    event: Recorded,
    verdict: Verdict | None,
    trigger: Trigger,
    feed: Feed,
    runs: Mapping[str, Run],
    lines: Mapping[str, datetime],
) -> str:
    """Why this verdict is not as promised; empty if it is."""
    if verdict is None:
        return "it has no verdict"
    if _is_of_a_join(trigger, verdict):
        return ""
    if verdict.outcome in STARTED:
        return _wrong_run(event, verdict, runs)
    if verdict.outcome == "filtered" and _is_true(trigger.condition, event, feed):
        return f"filtered although its condition is true: {verdict.reason}"
    if verdict.outcome == "before_start" and trigger.startup == "since_last":
        occurred, line = event.occurred_at, lines.get(trigger.name, datetime.max.replace(tzinfo=UTC))
        return f"taken for one before the start: {verdict.reason}" if occurred is not None and occurred >= line else ""
    plain = trigger.overlap == "allow" and not trigger.routes and not trigger.gathers
    if verdict.outcome == "skipped" and plain:
        return f"skipped: {verdict.reason}"
    return ""


def _is_of_a_join(trigger: Trigger, verdict: Verdict) -> bool:
    """Whether the event is no part of the trigger's join, or one that the join is without: neither is in a run."""
    join = trigger.gather
    if not isinstance(join, Join):
        return False
    ending = verdict.outcome == "gathered" and any(verdict.reason.endswith(f"part {name}") for name in join.none)
    return ending or verdict.outcome == "filtered"


def _wrong_run(event: Recorded, verdict: Verdict, runs: Mapping[str, Run]) -> str:
    run = runs.get(verdict.run_id)
    if run is None:
        return f"its verdict is {verdict.outcome}, and there is no such run"
    if event.id not in run.event_ids:
        return f"its verdict is {verdict.outcome}, and it is not in the run"
    if run.status in OPEN and run.status not in ("held", "waiting"):
        return f"its run never ended: it is {run.status}"
    return ""


def _is_true(condition: str, event: Recorded, feed: Feed) -> bool:
    if not condition:
        return True
    compiled = compile_condition(condition)
    meta = {
        "key": event.key,
        "subject": event.subject,
        "state": event.state,
        "type": event.type,
        "occurred_at": event.occurred_at,
        "feed": feed.name,
    }
    return compiled.decide(bind({"event": event.data, "meta": meta}, needs_of([compiled]))).outcome == "true"


def _memberships(simulation: Simulation, events: Sequence[Recorded], runs: Sequence[Run]) -> Iterator[Fault]:
    """No event is in two runs of a trigger; runs that a step has started are not the trigger's."""
    triggers = {trigger.name: trigger for trigger in simulation.configuration.triggers}
    feeds = {feed.name: feed.display_name for feed in simulation.configuration.feeds}
    by_id = {event.id: event for event in events}
    found: Counter[tuple[str, int]] = Counter()
    for run in runs:
        trigger = triggers.get(run.trigger)
        if trigger is not None and not run.parent and run.workflow in trigger.workflows:
            found.update((run.trigger, event_id) for event_id in run.event_ids)
    for (name, event_id), count in found.items():
        event = by_id.get(event_id)
        if count > 1 and event is not None:
            reason = f"it is in {count} runs"
            feed = feeds.get(event.feed, event.feed)
            yield Fault(kind="doubled", feed=feed, trigger=name, subject=event.subject, reason=reason)


def judge_tickets(
    platform: TicketPlatform, feed: Feed, events: Sequence[Recorded], runs: Sequence[Run], *, read: bool
) -> Iterator[Fault]:
    """Each wish has one run, and each ticket ends with the label of its newest run and no other of ours."""
    subjects = {event.id: event.subject for event in events if event.feed == feed.name}
    made: dict[str, list[Run]] = {}
    for run in runs:
        if run.event_ids and run.event_ids[0] in subjects and not run.parent:
            made.setdefault(subjects[run.event_ids[0]], []).append(run)
    for found in platform.tickets.values():
        mine = made.get(found.now.id, [])
        trigger = trigger_name(platform.settings.name, found.project.name)
        told = {"feed": feed.display_name, "trigger": trigger, "subject": found.now.ref}
        wishes = f"{found.wishes} wishes" if found.wishes != 1 else "one wish"
        if len(mine) < found.least and read:
            yield Fault(kind="lost", reason=f"{wishes}, and {len(mine)} runs", **told)
        elif read and platform.asks(found) and mine and mine[-1].status == "cancelled":
            yield Fault(kind="lost", reason="it is wanted, and its newest run was cancelled", **told)
        if len(mine) > found.wishes:
            yield Fault(kind="doubled", reason=f"{wishes}, and {len(mine)} runs", **told)
        shown = [label for label in found.now.labels if platform.settings.lifecycle.others([label]) == []]
        allowed = [[platform.settings.lifecycle.label(state)] for state in _end_labels(mine)] or [[]]
        if found.withdrawn and not platform.asks(found):
            # taken back when the run had just ended, it counts as cancelled
            allowed.append([])
        if shown not in allowed and read:
            ended = mine[-1].status if mine else "no run"
            reason = f"it shows {', '.join(shown) or 'no label of ours'}, and its run is {ended}"
            yield Fault(kind="mislabelled", reason=reason, **told)


def _end_labels(runs: Sequence[Run]) -> list[Lifecycle]:
    """The label that the ticket must show at the end: that of its newest run. None for one that was cancelled."""
    if not runs:
        return []
    return {"done": [Lifecycle.DONE], "failed": [Lifecycle.FAILED], "dead": [Lifecycle.FAILED]}.get(
        runs[-1].status, [Lifecycle.WAITING] if runs[-1].status in ("waiting", "held") else []
    )


def _writers(simulation: Simulation) -> Iterator[Fault]:
    """Of several replicas, one at a time writes what a lease or a claim is about."""
    if isinstance(simulation.processes, Fleet):
        try:
            simulation.processes.history.check()
        except AssertionError as error:
            reason, _, story = str(error).partition("\n")
            last = " ".join(story.rpartition("\n")[2].split())
            yield Fault(kind="doubled", feed="", subject="a write without its lease", reason=f"{reason}: {last}")


async def _journals(simulation: Simulation, runs: Sequence[Run]) -> list[Fault]:
    """No step is recorded twice as done. Only runs that may have been interrupted can have that."""
    processes = simulation.processes
    if not (processes.kills or processes.restarts or processes.freezes or processes.cuts):
        return []
    faults: list[Fault] = []
    for run in runs:
        journal = (await simulation.run(run.id)).journal
        # the look at a ticket is made anew each time that its run goes on
        done = Counter(record.path for record in journal if record.status == "ok" and record.path != FIRST_STEP)
        subject = run.event_keys[0] if run.event_keys else run.id
        for path, count in done.items():
            if count > 1:
                reason = f"its step {path} is recorded {count} times"
                faults.append(Fault(kind="doubled", feed="", trigger=run.trigger, subject=subject, reason=reason))
    return faults
