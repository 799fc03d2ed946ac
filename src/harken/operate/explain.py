"""`harken explain`: find what is stored about a key or a time, and turn it into sentences (explanations.py)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from harken.durations import parse_moment
from harken.errors import NotFound, Refused
from harken.event import Known, Recorded, Verdict
from harken.feed import INTERNAL, Feed, FeedState, TriggerState
from harken.ingest.partly_committed_page import stored_position
from harken.ingest.stream import GAP
from harken.operate.clause_blame import near_miss
from harken.operate.context import Context
from harken.operate.events_by_ticket_name import TicketEvents, find_ticket_events
from harken.operate.explanations import (
    Case,
    Explanation,
    Missing,
    explain_event,
    explain_remembered,
    explain_time,
    explain_unseen,
    named,
)
from harken.operate.output_rows import Plain, event_row, plain
from harken.operate.owner_access import heard, triggers_of, visible
from harken.operate.paging import MOST
from harken.operate.stream_message_explanations import Sought, explain_dead_letter, explain_message
from harken.operate.trigger_status import limits, next_room
from harken.operate.triggers import current_status, outcomes, refused_webhooks
from harken.operate.wording import count, stamp, when
from harken.store import DeadLetter
from harken.suggest import find_similar

__all__ = ["explain"]

RECENT = 100
"""Among how many events a similar name is looked for."""

SHOWN = 10

DEAD_PAGES = 20
"""So many pages of dead letters are searched for a key, the newest first."""


async def explain(context: Context, *, name: str, key: str = "", agent: str = "") -> Plain:
    """What happened to an event (by key, by subject or as `#ID`), to a ticket, at a time, or to the whole trigger.

    An `agent` is told of its own jobs and triggers only."""
    if agent and name not in triggers_of(context, agent):
        raise NotFound(f"there is no job {name} of {agent}", fix="List your jobs to see which there are")
    trigger = await context.trigger(name)
    feed = await context.feed_of(name)
    if not key:
        return _as_row(trigger, "", await _summary(context, trigger, feed))
    exact = heard(context, (await context.store.events(feed=feed, key=key, limit=SHOWN)).items)
    if exact:
        return _as_row(trigger, key, await _explain_recorded(context, trigger, exact))
    # of a tracker's trigger a number is that of a ticket first
    ticket = await find_ticket_events(context, name, feed, key, limit=SHOWN)
    if ticket.events:
        # its newest events tell what we showed on it; what a person asks for is what was decided
        decided = next((at for at, event in enumerate(ticket.events) if _verdict(trigger, event)), 0)
        return _as_row(trigger, key, await _explain_recorded(context, trigger, ticket.events, decided))
    found = () if ticket.id else await _find(context, name, feed, key, may_be_ticket=ticket.named)
    found = heard(context, found or await _find_part(context, name, key))
    if found:
        return _as_row(trigger, key, await _explain_recorded(context, trigger, found))
    return _as_row(trigger, key, await _explain_missing(context, trigger, feed, key, ticket))


async def _find_part(context: Context, name: str, key: str) -> Sequence[Recorded]:
    """What the further feeds of a join have of the key."""
    definition = context.triggers().get(name)
    for feed in definition.feeds[1:] if definition else ():
        exact = (await context.store.events(feed=feed, key=key, limit=SHOWN)).items
        found = exact or await context.store.events_about(feed, key, limit=SHOWN)
        if found:
            return found
    return ()


async def _find(context: Context, name: str, feed: str, key: str, *, may_be_ticket: bool) -> Sequence[Recorded]:
    """Every occurrence of the subject, newest first; for `#2` only the event of that id."""
    number = _event_id(key)
    if number is not None and may_be_ticket:
        event = await context.store.event(number)
        return [event] if event is not None and event.feed == feed else ()
    if number is not None:
        return await _of_id(context, name, feed, number)
    return await context.store.events_about(feed, key, limit=SHOWN)


def _event_id(key: str) -> int | None:
    digits = key[1:]
    # without the mark it is what the service calls an item: many number theirs
    return int(digits) if key[:1] == "#" and digits.isascii() and digits.isdigit() and len(digits) < 19 else None


async def _of_id(context: Context, name: str, feed: str, number: int) -> Sequence[Recorded]:
    event = await context.store.event(number)
    definition = context.triggers().get(name)
    own = definition.feeds if definition else (feed,)
    if event is None or not heard(context, [event]) or not (event.feed in own or await _may_see(context, event)):
        raise NotFound(f"there is no event #{number}", fix="See: harken events list")
    if event.feed not in own:
        fix = f"See: harken events show {number}"
        other, listened = context.feed_label(event.feed), context.feed_label(feed)
        raise Refused(f"event #{number} is of feed {other}, and the trigger listens to {listened}", fix=fix)
    return [event]


async def _may_see(context: Context, event: Recorded) -> bool:
    row = event_row(event, await context.names(), context.feed_label(event.feed))
    return visible(context, "verdicts")(row) is not None


async def _explain_recorded(
    context: Context, trigger: TriggerState, found: Sequence[Recorded], asked: int = 0
) -> Explanation:
    """Explain one of these events, the newest by default, with a line for each of the others."""
    event = found[asked]
    verdict = _verdict(trigger, event)
    run = await context.store.run(verdict.run_id) if verdict and verdict.run_id else None
    now, definition = context.clock.now(), context.triggers().get(trigger.name)
    spent = next_room(definition, trigger, now)
    budget = f"{spent[0]}, anew at {stamp(spent[1])}" if spent else ""
    gather = definition.gather if definition else None
    types = definition.types if definition else ()
    case = Case(
        trigger=trigger, event=event, verdict=verdict, run=run, now=now, budget=budget, gather=gather, types=types
    )
    given = explain_event(case)
    if verdict is not None and verdict.outcome == "filtered" and definition is not None and definition.condition:
        given = _with_near_miss(given, near_miss(definition.condition, event))
    if len(found) == 1:
        return given
    later = [_line(trigger, other, context.clock.now()) for other in found[:asked]]
    earlier = [_line(trigger, other, context.clock.now()) for other in found[asked + 1 :]]
    return msgspec.structs.replace(given, details={**given.details, "later": later, "earlier": earlier})


def _with_near_miss(given: Explanation, near: Plain | None) -> Explanation:
    """Add the clause that alone held the event back, and the smallest change of it."""
    if near is None or near["of"] == 1:
        return given
    change = f"; it would have fired with {near['change']}" if near["change"] else ""
    others = "the other clause was" if near["of"] == 2 else f"{near['of'] - 1} other clauses were"
    said = f"only {near['clause']} held it back, {others} true{change}"
    return msgspec.structs.replace(given, details={**given.details, "near_miss": said})


async def _explain_missing(
    context: Context, trigger: TriggerState, feed: str, key: str, ticket: TicketEvents
) -> Explanation:
    # store.feeds() leaves out the size of each memory; store.state() has it
    state = await context.store.state(feed) if await _state(context, feed) else None
    recent = (await context.store.events(feed=feed, limit=RECENT)).items if feed else ()
    names = [name for event in heard(context, recent) for name in (event.key, event.subject) if name]
    missing = Missing(
        trigger=trigger,
        key=key,
        feed=context.feeds().get(feed),
        state=state,
        near=find_similar(key, dict.fromkeys(names)),
        now=context.clock.now(),
    )
    moment = _moment(key)
    if moment is not None:
        return explain_time(missing, moment)
    is_stream = missing.feed is not None and missing.feed.way == "stream"
    # what is remembered of events of Harken itself does not say what they were about
    known = not context.principal.owner or feed != INTERNAL
    # dead letters are not found by their key: only where messages are rejected every day they are looked through
    letter = await _dead_letter(context, feed, key) if is_stream else None
    if letter is not None:
        return explain_dead_letter(missing, letter)
    sighting = await _sighting(context, feed, ticket.id or key, is_stream=is_stream) if state and known else None
    if sighting:
        given = explain_remembered(missing, *sighting)
    elif is_stream and state is not None:
        given = explain_message(missing, await _seek(context, state, key))
    else:
        given = explain_unseen(missing)
    if not ticket.problem:
        return given
    details = {**given.details, "not_asked": f"the tracker could not be asked for the ticket: {ticket.problem}"}
    return msgspec.structs.replace(given, details=details)


async def _sighting(
    context: Context, feed: str, key: str, *, is_stream: bool
) -> tuple[Known, datetime, datetime] | None:
    """The memory of a key, or of the subject before `@` in the key of a transition."""
    known = await context.store.memory_of(feed, key)
    # in the key of a message it is the stream that stands before `@`
    of_subject = "@" in key and not is_stream
    return known or (await context.store.memory_of(feed, key.rpartition("@")[0]) if of_subject else None)


async def _dead_letter(context: Context, feed: str, key: str) -> DeadLetter | None:
    """The event of that key that could not be stored, among the newest dead letters."""
    before: int | None = None
    for _ in range(DEAD_PAGES):
        page = await context.store.dead(before=before, limit=MOST)
        letters = (one for one in page.items if (one.what, one.trigger, one.key) == ("event", feed, key))
        if (found := next(letters, None)) is not None or page.next is None:
            return found
        before = page.next
    return None


async def _seek(context: Context, state: FeedState, key: str) -> Sought:
    """Where a message of a stream would be, what waits there, and what is known to be lost."""
    now = context.clock.now()
    about = await context.store.events_about(INTERNAL, state.name, limit=RECENT)
    gaps = [
        f"{when(one.recorded_at, now)}: {one.data.get('reason')}"
        for one in about
        if (one.type, one.subject) == (GAP, state.name)
    ]
    engine = context.running()
    place = await engine.place_of(state.name, key, stored_position(state.cursor)[0])
    return Sought(
        place=place,
        lag=engine.stream_lags().get(state.name),
        gaps=tuple(gaps),
        in_hand_since=engine.in_hand_since(state.name, key),
    )


async def _summary(context: Context, trigger: TriggerState, feed: str) -> Explanation:
    now = context.clock.now()
    definition = context.triggers().get(trigger.name)
    found = await current_status(context, trigger)
    recent = heard(context, (await context.store.events(trigger=trigger.name, limit=SHOWN)).items)
    counts = await outcomes(context, trigger)
    reason = f": {found.reason}" if found.reason else ""
    end = "" if reason.endswith((".", "?", "!")) else "."
    sentence = f"{trigger.name} is {found.status}{reason}{end} It has fired {count(trigger.fired, 'time')}"
    last = f", last {when(trigger.last_fired_at, now)}" if trigger.last_fired_at else ""
    details: dict[str, Any] = {
        "status": found.status,
        "start_line": stamp(trigger.start_line),
        "recent_outcomes": counts,
        **{name: said for name, said in limits(definition, trigger, now).items() if said},
        "refused_webhooks": [_refusal_line(row) for row in refused_webhooks(context, context.feeds().get(feed))],
        "recent": [_line(trigger, event, now) for event in recent],
    }
    source = context.feeds().get(feed)
    advice = [_instead(found.advice, trigger.name, source, context.feed_label(feed))] if found.advice else []
    if counts.get("held"):
        budgeted = definition is not None and definition.budget is not None
        held = "What the budget holds goes by itself; let it go now" if budgeted else "Held runs wait for you"
        advice.append(f"{held}: harken triggers release {trigger.name}")
    return Explanation(
        stage="trigger", outcome="summary", sentence=sentence + last, details=details, advice=tuple(advice)
    )


def _instead(advice: str, name: str, feed: Feed | None, label: str) -> str:
    """The advice; if it is to ask what is being answered, what shows whether the source is silent."""
    if not advice.endswith(f"harken explain {name}"):
        return advice
    if feed is not None and feed.way == "poll":
        return f"See what the source shows now: harken triggers test {name}"
    if feed is not None and feed.path:
        return "See what came last, and what was refused: harken webhooks"
    return f"See what was read last: harken feeds show {label}"


async def _state(context: Context, feed: str) -> FeedState | None:
    return next((state for state in await context.store.feeds() if state.name == feed), None)


def _verdict(trigger: TriggerState, event: Recorded) -> Verdict | None:
    return next((v for v in event.verdicts if v.trigger in (trigger.name, trigger.uid)), None)


def _line(trigger: TriggerState, event: Recorded, now: datetime) -> str:
    verdict = _verdict(trigger, event)
    said = f"{verdict.outcome} {verdict.reason}".strip() if verdict else "no verdict"
    return f"#{event.id} {named(event)}: {said} ({when(event.recorded_at, now)})"


def _refusal_line(row: Plain) -> str:
    return f"{row['at']} from {row['sender'] or 'an unknown sender'}: {row['reason']}, {row['message']}"


def _moment(key: str) -> datetime | None:
    """The time that the key is; None for what is only a key."""
    return parse_moment(key) if len(key) >= 10 and "-" in key else None


def _as_row(trigger: TriggerState, key: str, given: Explanation) -> Plain:
    lines = [given.sentence]
    for label, value in given.details.items():
        if isinstance(value, list):
            lines += [f"  {label.replace('_', ' ')}:"] + [f"    {item}" for item in value] if value else []
        elif value not in ("", None, {}):
            shown = ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else value
            lines.append(f"  {label.replace('_', ' ')}: {shown}")
    lines += [f"→ {advice}" for advice in given.advice]
    answered: Plain = plain(given)
    return {"trigger": trigger.name, "key": key} | answered | {"lines": lines}
