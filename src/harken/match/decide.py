"""What each trigger wants of each new event: intents, or a verdict with the reason why not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from harken.durations import format_duration
from harken.errors import HarkenError
from harken.event import Event, Outcome, Span, Verdict
from harken.feed import Debounce, Gather, Join
from harken.language.cel import Bound, Key, bind
from harken.language.go_template import Template
from harken.match.compiled_rules import Rule, RulePart, Rules
from harken.match.new_feed_items import Sighting
from harken.schedule import Quiet, quiet_hours, zone_of
from harken.store import Distinct, Entry, GatherInto, Intent, JoinPart, RateLimit

__all__ = ["CATCH_UP", "SPREAD", "Read", "gather_into", "match", "spaced_due", "variables_of"]

CATCH_UP = timedelta(seconds=60)
"""The shared run of old events is due when no further one has come for so long: all pages of a read share one run."""

SPREAD = timedelta(seconds=60)
"""Runs that waited for the end of the quiet hours become due within this time, in their order."""

OLD = "\0max_age"
"""The gather key of the run that old events share."""


class Read(msgspec.Struct, frozen=True, kw_only=True):
    """The circumstances of a batch. `first`: the feed has not yet been read to its end. `page` counts from 0.

    `spaced`: runs of earlier pages and reads that are not all due yet, by trigger uid; `spaced_from`: when the first
    of them was due. `resumed`: the first read since this process started. `again`: the events are stored ones that
    are decided again. `by_hand`: the trigger for which a person requested the read. `lag`: how many seconds the
    service's clock is behind ours, so that what happens now is dated before now. `following`: so many events of the
    same page come after this part of it.
    """

    now: datetime
    first: bool = False
    page: int = 0
    spaced: Mapping[str, int] = {}
    spaced_from: Mapping[str, datetime] = {}
    resumed: bool = False
    again: bool = False
    by_hand: str = ""
    lag: int = 0
    following: int = 0


def match(sightings: Sequence[Sighting], rules: Rules, read: Read) -> list[Entry]:
    """Entries for the commit: one per new event, each with a decision per trigger that listens to it."""
    spaced = dict(read.spaced)
    deliver_from = _deliver_from(len(sightings), rules, read)
    return [
        Entry(
            event=sighting.event,
            memory_id=sighting.memory_id,
            expect=sighting.expect,
            seq=sighting.seq,
            decisions=_decide_all(sighting.event, rules, read, spaced, position >= deliver_from),
        )
        for position, sighting in enumerate(sightings)
    ]


def _deliver_from(count: int, rules: Rules, read: Read) -> int:
    """The position from which events are delivered even if they are before the start line; `count` for none of them."""
    if rules.feed.first == "all":
        return 0
    if not read.first or rules.feed.first != "deliver" or read.page:
        return count
    newest = max((rule.trigger.spacing.per_tick for rule in rules.rules if rule.trigger.spacing), default=0)
    return max(0, count + read.following - newest) if newest else 0


def _decide_all(
    event: Event, rules: Rules, read: Read, spaced: dict[str, int], deliver: bool
) -> tuple[Verdict | Intent, ...]:
    bound: Bound | None = None
    decisions: list[Verdict | Intent] = []
    occurred_at = event.occurred_at
    for rule in rules.rules:
        if rule.trigger.types and event.type not in rule.trigger.types:
            continue
        begun = deliver or (occurred_at is not None and occurred_at >= rule.start_line)
        early = None if begun else _before_start(event, rule, rules, read)
        if early is not None:
            decisions.append(Verdict(trigger=rule.name, outcome="before_start", reason=early))
            continue
        if rule.condition is not None:
            if bound is None:
                bound = bind(_variables(event, rules), rules.needs)
            decision = rule.condition.decide(bound)
            if decision.outcome != "true":
                outcome: Outcome = "filtered" if decision.outcome == "false" else "error"
                decisions.append(Verdict(trigger=rule.name, outcome=outcome, reason=decision.reason))
                continue
        part: RulePart | None = None
        if rule.joins:
            bound = bound or bind(_variables(event, rules), rules.needs)
            found = _part(rule, bound)
            if isinstance(found, Verdict):
                decisions.append(found)
                continue
            part = found
        decisions.append(_intent(event, rule, rules, read, spaced, bound, part))
    return tuple(decisions)


def _part(rule: Rule, bound: Bound) -> RulePart | Verdict:
    """The first part of the trigger's join that the event is, or why it is none."""
    reasons: list[str] = []
    for part in rule.parts:
        decision = part.when.decide(bound) if part.when is not None else None
        if decision is None or decision.outcome == "true":
            return part
        if decision.outcome == "error":
            return Verdict(trigger=rule.name, outcome="error", reason=f"part {part.name}: {decision.reason}")
        reasons.append(f"not {part.name}: {decision.reason}")
    reason = "; ".join(reasons) or "no part of its join comes from this feed"
    return Verdict(trigger=rule.name, outcome="filtered", reason=reason)


def _before_start(event: Event, rule: Rule, rules: Rules, read: Read) -> str | None:
    """Why the event counts as before the trigger's start line; None if it does not."""
    if rules.feed.way == "internal" and not read.again:
        # a trigger that listens now was there when it happened, even if the clock was set back since
        return None
    if rules.feed.way == "push" and not read.again and rule.start_line <= rule.state.created_at:
        # it was sent to the trigger after its creation, whenever it happened. Only a line that was moved on counts
        return None
    if event.occurred_at is None:
        if read.first and rules.feed.way == "poll":
            return "undated, and part of the first read, which is the baseline"
        if read.resumed and rule.trigger.startup == "ignore_historical":
            return "undated, and part of the first read after a start (startup: ignore_historical)"
        return None
    if rule.begun_by(event.occurred_at, read.lag):
        return None
    happened, start = f"{event.occurred_at:%Y-%m-%d %H:%M:%S}Z", f"{rule.start_line:%Y-%m-%d %H:%M:%S}Z"
    behind = f" (also by the service's clock, which is {format_duration(read.lag)} behind)" if read.lag else ""
    return f"happened at {happened}, before the start line {start}{behind}{_moved_by(rule)}"


def _moved_by(rule: Rule) -> str:
    """Name the startup mode, if it was one that moved the start line."""
    begun = rule.state.reads_from or rule.start_line
    ignored = rule.trigger.startup == "ignore_historical" and begun < rule.start_line
    return f" (startup: {rule.trigger.startup})" if ignored or rule.trigger.startup == "backfill" else ""


def _variables(event: Event, rules: Rules) -> dict[str, Any]:
    if rules.reads_replay and "replay" not in event.data:
        # a replay brings it along; everything else is none
        event = msgspec.structs.replace(event, data={**event.data, "replay": False})
    return variables_of(event, rules.feed.name) if rules.reads_meta else {"event": event.data}


def variables_of(event: Event, feed: str) -> dict[str, Any]:
    """Everything that a condition may read of an event."""
    return {
        "event": event.data,
        "meta": {
            "key": event.key,
            "subject": event.subject,
            "state": event.state,
            "type": event.type,
            "occurred_at": event.occurred_at,
            "feed": feed,
        },
    }


def _intent(
    event: Event,
    rule: Rule,
    rules: Rules,
    read: Read,
    spaced: dict[str, int],
    bound: Bound | None,
    part: RulePart | None,
) -> Verdict | Intent:
    trigger = rule.trigger
    revision = trigger.workflow_rev
    if trigger.routes:
        wanted = str(event.data.get("pipeline", ""))
        if wanted not in trigger.routes:
            return Verdict(trigger=rule.name, outcome="skipped", reason=f"there is no pipeline {wanted!r}")
        revision = trigger.routes[wanted]
    slot = ""
    mapped = b""
    into: GatherInto | None = None
    distinct: Distinct | None = None
    rate: RateLimit | None = None
    try:
        if rule.mapping is not None:
            mapped = msgspec.json.encode(_render(rule.mapping, _context(event, rule, rules)))
        if trigger.overlap != "allow":
            slot = f"{rule.uid}\0{_value(rule.slot, event, rule, rules)}"
        if trigger.gather is not None:
            key = rule.gather_by if part is None else part.by
            into = gather_into(trigger.gather, _value(key, event, rule, rules, bound), read.now)
            if part is not None:
                into = msgspec.structs.replace(into, part=_join_part(event, rule, part, read.now))
        if rule.limited:
            distinct, rate = _limits(event, rule, rules, bound)
    except HarkenError as error:
        return Verdict(trigger=rule.name, outcome="error", reason=str(error))
    position = spaced.get(rule.uid, 0)
    spaced[rule.uid] = position + 1
    intent = Intent(
        trigger=rule.uid,
        epoch=rule.state.epoch,
        run_key=event.key,
        workflow_rev=revision,
        due_at=spaced_due(rule, rules, read.spaced_from.get(rule.uid, read.now), position),
        input=mapped,
        gather=into,
        overlap=trigger.overlap,
        slot=slot,
        hold=_hold(rule, rules, read),
        priority=trigger.priority,
        max_attempts=trigger.max_attempts,
        reason=f"part {part.name}" if part is not None else "",
        watched=bool(trigger.routes),
        distinct=distinct,
        rate=rate,
    )
    return _timed(intent, event, rule, read) if rule.timed else intent


def gather_into(gather: Gather, key: str, now: datetime) -> GatherInto:
    """Where an event that comes now is gathered, and until when."""
    if isinstance(gather, Debounce):
        due = now + timedelta(seconds=gather.window)
        return GatherInto(key, due, gather.max, extends=True, wait=gather.max_wait)
    if isinstance(gather, Join):
        return GatherInto(key, now + timedelta(seconds=gather.within))
    return GatherInto(key, now + timedelta(seconds=gather.window), gather.max)


def _join_part(event: Event, rule: Rule, part: RulePart, now: datetime) -> JoinPart:
    join = rule.trigger.gather
    assert isinstance(join, Join), "only joins have parts"
    at = event.occurred_at or now
    return JoinPart(
        part.number,
        at,
        join.within,
        join.needs,
        ordered=join.form == "then",
        ends=part.ends,
        waits=bool(join.none),
        keeps=join.on_miss == "run",
        # who looks back on purpose wants what was there before
        early=rule.trigger.startup == "since_last" and at < rule.state.created_at,
    )


def _limits(event: Event, rule: Rule, rules: Rules, bound: Bound | None) -> tuple[Distinct | None, RateLimit | None]:
    throttle, dedupe = rule.trigger.throttle, rule.trigger.dedupe
    distinct = rate = None
    if dedupe is not None:
        distinct = Distinct(_value(rule.dedupe_by, event, rule, rules, bound), dedupe.within)
    if throttle is not None:
        key = _value(rule.throttle_by, event, rule, rules, bound)
        rate = RateLimit(key, throttle.most, throttle.per, throttle.rest == "drop")
    return distinct, rate


def _hold(rule: Rule, rules: Rules, read: Read) -> str:
    if rule.state.paused:
        return "paused"
    # of the feeds that deliver all, those with routes begin with what people have labelled over the years
    first = rules.feed.first == "baseline" or (rules.feed.first == "all" and bool(rule.trigger.routes))
    guarded = read.first and rules.feed.way == "poll" and first and rule.trigger.flood_limit
    # a trigger that looks back wants its history
    return "flood" if guarded and not rule.state.backfilling else ""


def spaced_due(rule: Rule, rules: Rules, first: datetime, position: int) -> datetime:
    """When the run at this position is due, where the run at position 0 is due at `first`."""
    spacing = rule.trigger.spacing
    if spacing is None or not position:
        return first
    rounds, within = divmod(position, spacing.per_tick) if spacing.per_tick else (0, position)
    # a round may take longer than until the next read
    length = max(rules.feed.interval, spacing.per_tick * spacing.delay)
    return first + timedelta(seconds=rounds * length + within * spacing.delay)


def _value(template: Key | Template | None, event: Event, rule: Rule, rules: Rules, bound: Bound | None = None) -> str:
    if template is None:
        return ""
    if isinstance(template, Key):
        return template.text(bound or bind(_variables(event, rules), rules.needs))
    value = template.value(_context(event, rule, rules))
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _context(event: Event, rule: Rule, rules: Rules) -> dict[str, Any]:
    return {
        "trigger": {
            "event": event.data,
            "name": rule.name,
            "feed": rules.feed.name,
            "key": event.key,
            "subject": event.subject,
            "state": event.state,
            "type": event.type,
            "occurred_at": event.occurred_at,
        },
        "event": event.data,
    }


def _render(mapping: Any, context: Mapping[str, Any]) -> Any:
    if isinstance(mapping, Template):
        return mapping.value(context)
    if isinstance(mapping, dict):
        return {key: _render(inner, context) for key, inner in mapping.items()}
    return [_render(inner, context) for inner in mapping] if isinstance(mapping, list) else mapping


def _timed(intent: Intent, event: Event, rule: Rule, read: Read) -> Intent:
    """Apply `max_age` and `quiet_hours`. A run that a person requested does not wait for the end of quiet hours."""
    trigger = rule.trigger
    if trigger.max_age and _is_old(event, trigger.max_age, read.now):
        intent = _shared(intent, rule, read.now)
    return intent if trigger.quiet is None or read.by_hand == rule.name else _delayed(intent, trigger.quiet)


def _is_old(event: Event, max_age: float, now: datetime) -> bool:
    return event.occurred_at is not None and (now - event.occurred_at).total_seconds() > max_age


def _shared(intent: Intent, rule: Rule, now: datetime) -> Intent:
    """The intent of an event that is older than `max_age`: all of these share one run."""
    reason = f"older than max_age {format_duration(rule.trigger.max_age)} when it was found, so it shares one run"
    slot, overlap = intent.slot, intent.overlap
    if slot:
        # the events may have different keys, and the run must neither be skipped nor cancel the run of a newer event
        alone = rule.slot is not None or overlap == "cancel_previous"
        slot, overlap = f"{rule.uid}{OLD}" if alone else slot, "queue"
    into = GatherInto(OLD, now + CATCH_UP, extends=True)
    # one run, however many events it has, needs no throttle
    return msgspec.structs.replace(
        intent, gather=into, slot=slot, overlap=overlap, due_at=now, reason=reason, rate=None
    )


def _delayed(intent: Intent, quiet: Quiet) -> Intent:
    """The intent with a due time, of the run and of what it gathers, that is not within quiet hours."""
    begin, end = quiet_hours(quiet, intent.due_at)
    changes: dict[str, Any] = {"quiet": Span(begin, end), "due_at": _after(intent.due_at, begin, end)}
    due, into = intent.due_at, intent.gather
    if into is not None:
        due, (begin, end) = into.due_at, quiet_hours(quiet, into.due_at)
        changes["gather"] = msgspec.structs.replace(into, due_at=_after(due, begin, end))
    if begin <= due:
        until = f"waits until {end.astimezone(zone_of(quiet.tz)):%H:%M} (quiet hours)"
        changes["reason"] = f"{intent.reason}; {until}" if intent.reason else until
    return msgspec.structs.replace(intent, **changes)


def _after(due: datetime, begin: datetime, end: datetime) -> datetime:
    """`due` if it is before the quiet hours, else a time shortly after them, in the order of the due times."""
    return due if due < begin else end + SPREAD * ((due - begin) / (end - begin))
