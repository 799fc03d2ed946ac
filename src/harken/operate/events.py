"""Operations on recorded events: list, show, replay, tail."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import msgspec

from harken.durations import parse_duration, parse_moment
from harken.errors import Malformed, Misconfigured, NotFound, Refused
from harken.event import Event, Recorded, Verdict
from harken.feed import Feed, Trigger, TriggerState
from harken.operate.context import Context
from harken.operate.idempotency import new_id
from harken.operate.list_filter import EVENT_FIELDS, Where, filter_page
from harken.operate.output_rows import Plain, event_row, plain
from harken.operate.owner_access import visible
from harken.operate.paging import MOST, bounded, id_after, page_by, to_cursor
from harken.operate.starred_and_last_events import is_starred
from harken.runs import REPLAYED
from harken.store import NewRun

__all__ = ["input_for", "list_events", "list_types", "mark_replay", "moment_of", "newest_id", "replay", "show", "tail"]


ALWAYS = datetime(1970, 1, 1, tzinfo=UTC)


def input_for(event: Recorded, trigger: Trigger, state: TriggerState, feed: Feed, now: datetime) -> bytes:
    """The trigger's mapped input for a replay of the event as JSON. Conditions are not evaluated."""
    from harken.match import Read, Rule, Rules, Sighting, match

    willing = msgspec.structs.replace(
        trigger, feed=feed.name, condition="", gather=None, throttle=None, dedupe=None, overlap="allow", types=()
    )
    rule = Rule(willing, msgspec.structs.replace(state, start_line=ALWAYS, paused=""))
    again = Event(
        subject=event.subject,
        type=event.type,
        data={**event.data, "replay": True},
        key=event.key,
        state=event.state,
        occurred_at=event.occurred_at,
    )
    entries = match([Sighting(again, "", 0, 1)], Rules(0, feed, (rule,)), Read(now=now))
    decision = entries[0].decisions[0]
    if isinstance(decision, Verdict):
        message = f"the input of {trigger.name} cannot be made of event {event.id}: {decision.reason}"
        raise Refused(message, fix="Mend its input_mapping, then replay")
    return mark_replay(decision.input)


def mark_replay(input: bytes) -> bytes:
    """The input of a run that is a replay: its steps see `event.replay`."""
    given = msgspec.json.decode(input) if input else {}
    return msgspec.json.encode({**given, REPLAYED: True}) if isinstance(given, dict) else input


HEARTBEAT_SECONDS = 15.0

TAIL_SLICE = 200

PREVIOUS = 20
"""Among so many of the newest events of a subject the one before is looked for."""

TYPE_PAGES = 10
"""So many pages of the newest events are looked through for their types."""


async def list_events(
    context: Context,
    *,
    feed: str = "",
    trigger: str = "",
    key: str = "",
    since: str = "",
    include: Sequence[str] = ("data",),
    where: str = "",
    after: int | None = None,
    before: int | None = None,
    cursor: str = "",
    limit: int = 50,
) -> Plain:
    """Recorded events, newest first; their data only if `include` has `data`. `where` is a filter in CEL.

    `before` is an id: only older ones. With `after` the events that came after that id, oldest first, so that who
    follows them misses none.
    """
    if where:
        given = {"feed": feed, "trigger": trigger, "key": key, "since": since, "after": after, "before": before}
        found_by = ("feed", "key") if after is None else ()
        read, known, see = partial(list_events, context), Where(where, EVENT_FIELDS), visible(context, "verdicts")
        size, follows = bounded(limit), after is not None
        filtered = await filter_page(read, known, given, found_by, see, cursor, size, follows=follows)
        for row in () if include else filtered["items"]:
            del row["data"]
        return filtered
    for name in include:
        if name != "data":
            raise Malformed(f"nothing called {name} can be included", fix="Include data, or nothing")
    if min(after or 0, before or 0) < 0:
        raise Malformed("after and before are ids of events", fix="Send the id of an event, or 0")
    begin, feed = moment_of(since, context.clock.now()), context.feed_id(feed)
    names = await context.names()
    if after is None:
        last = id_after(cursor) or before
        page = await context.store.events(
            feed=feed, trigger=trigger, key=key, since=begin, before=last, limit=bounded(limit)
        )
        found, following = page.items, page.next
    else:
        came = await context.store.events_after(id_after(cursor) or after, bounded(limit))
        following = came[-1].id if len(came) == bounded(limit) else None
        found = [
            event
            for event in came
            if feed in ("", event.feed) and key in ("", event.key)
            if (begin is None or event.recorded_at >= begin) and (before is None or event.id < before)
            if not trigger or any(names.get(verdict.trigger, verdict.trigger) == trigger for verdict in event.verdicts)
        ]
    # their data says what events of Harken itself are about, so it is asked while it is there
    see = visible(context, "verdicts")
    rows = [event_row(event, names, context.feed_label(event.feed)) for event in found]
    rows = [shown for row in rows if (shown := see(row)) is not None]
    for row in () if include else rows:
        del row["data"]
    return {"items": rows, "next": to_cursor(following)}


async def show(context: Context, *, id: int) -> Plain:
    """One event. `previous` is the id of the event before it of the same subject, if it is not long ago."""
    event = await _event(context, id)
    row = event_row(event, await context.names(), context.feed_label(event.feed))
    return row | {"starred": await is_starred(context, id), "previous": await _previous(context, event)}


async def _previous(context: Context, event: Recorded) -> int | None:
    if not event.subject:
        return None
    about = await context.store.events_about(event.feed, event.subject, limit=PREVIOUS)
    return next((one.id for one in about if one.id < event.id and one.subject == event.subject), None)


async def replay(context: Context, *, id: int, trigger: str = "") -> Plain:
    """Start new runs for a stored event: of one trigger, or of every trigger that it started before."""
    event = await _event(context, id)
    names = await context.names()
    before = {names.get(v.trigger, v.trigger): v.run_id for v in event.verdicts}
    chosen = [trigger] if trigger else [name for name, run_id in before.items() if run_id]
    if not chosen:
        raise Refused(
            f"event {id} started no run that could be replayed",
            fix=f"Name one: harken events replay {id} --trigger NAME",
        )
    started = [await _start_again(context, event, name, before.get(name, "")) for name in chosen]
    context.nudge()
    return {"event": id, "runs": started}


async def list_types(context: Context, *, cursor: str = "", limit: int = 0) -> Plain:
    """The types of the newest events: which feeds had them, how many, and when the last one came."""
    found: dict[str, Plain] = {}
    before: int | None = None
    for _ in range(TYPE_PAGES):
        events = await context.store.events(before=before, limit=MOST)
        for event in events.items:
            row = found.setdefault(
                event.type, {"type": event.type, "count": 0, "feeds": [], "last_id": event.id, "last_at": None}
            )
            row["count"] += 1
            row["last_at"] = row["last_at"] or plain(event.recorded_at)
            label = context.feed_label(event.feed)
            if label not in row["feeds"]:
                row["feeds"].append(label)
        before = events.next
        if before is None:
            break
    return page_by(list(found.values()), cursor, limit, key="type")


async def tail(context: Context, *, after: int | None = None) -> AsyncIterator[Plain | None]:
    """Yield events as they are committed, and None as a heartbeat while there are none. Ends when the engine stops."""
    engine = context.running()
    last = await newest_id(context) if after is None else after
    while True:
        found = await context.store.events_after(last, TAIL_SLICE)
        names = await context.names() if found else {}
        for event in found:
            last = event.id
            yield event_row(event, names, context.feed_label(event.feed))
        if len(found) == TAIL_SLICE:
            continue
        began = context.clock.monotonic()
        if not await engine.changed(HEARTBEAT_SECONDS):
            return
        if context.clock.monotonic() - began >= HEARTBEAT_SECONDS:
            yield None


async def _start_again(context: Context, event: Recorded, name: str, earlier: str) -> Plain:
    state = await context.trigger(name)
    definition, feed = context.triggers().get(name), context.feeds().get(event.feed)
    if definition is None or feed is None:
        raise Refused(
            f"trigger {name} or feed {context.feed_label(event.feed)} is not configured now",
            fix="Put it back, then replay",
        )
    workflow, revision = _workflow_of(event, definition)
    again = NewRun(
        trigger=name,
        workflow=workflow,
        workflow_rev=revision,
        id_key=f"replay:{new_id(name).hex}",
        input=input_for(event, definition, state, feed, context.clock.now()),
        event_ids=(event.id,),
        replay_of=earlier,
        max_attempts=definition.max_attempts,
        watched=bool(definition.routes),
    )
    return {"trigger": name, "id": await context.store.start(again), "replay_of": earlier}


def _workflow_of(event: Recorded, definition: Trigger) -> tuple[str, str]:
    """The name and the revision of the workflow that the event starts."""
    if not definition.routes:
        return definition.workflow, definition.workflow_rev
    pipeline = str(event.data.get("pipeline", ""))
    if pipeline not in definition.routes:
        fix = f"Put it back into the map of {definition.name}, then replay"
        raise Refused(f"event {event.id} is for the pipeline {pipeline!r}, which is not configured now", fix=fix)
    return pipeline, definition.routes[pipeline]


async def _event(context: Context, event_id: int) -> Recorded:
    event = await context.store.event(event_id)
    if event is None:
        raise NotFound(f"there is no event {event_id}", fix="See: harken events list")
    return event


async def newest_id(context: Context) -> int:
    """The id of the newest event; 0 if there is none."""
    newest: list[Any] = list((await context.store.events(limit=1)).items)
    return int(newest[0].id) if newest else 0


def moment_of(text: str, now: datetime) -> datetime | None:
    """The time, or as long before now as a duration says: `2026-03-01T10:00:00Z`, `10m`. None for an empty text."""
    if not text:
        return None
    return parse_moment(text) or now - timedelta(seconds=_back(text))


def _back(text: str) -> float:
    try:
        return parse_duration(text)
    except Misconfigured as error:
        fix = "Write it like 10m or 2026-03-01T10:00:00Z"
        raise Malformed(f"{text} is neither a time nor a duration", fix=fix) from error
