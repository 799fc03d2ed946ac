"""Moves a trigger to another time, after showing what that does: what is read again, what is known, what would fire.

A stream has one position for all its triggers. It is not moved here, but by whoever follows it: the stored cursor names
the time, and the process that holds the lease finds its place and reads on from there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any

import msgspec

from harken.errors import Malformed, Refused
from harken.event import Event, Recorded, Verdict
from harken.feed import Feed, FeedState, Trigger, TriggerState
from harken.ingest.partly_committed_page import stored_position, with_seek
from harken.operate.context import Context
from harken.operate.engine_protocol import Preview
from harken.operate.events import moment_of
from harken.operate.output_rows import Plain, plain, title_of, trigger_type
from harken.operate.owner_access import triggers_beside
from harken.operate.wording import count
from harken.source import Located

__all__ = ["seek"]

SKEW = timedelta(days=1)
"""An event may be recorded before it says it happened."""
PAGE = 200
MOST_STORED = 5_000
SAMPLES = 20
FIRING = ("fired", "gathered")

UNSEEKABLE = {
    "sqs": ("a queue of SQS deletes what was acknowledged, and the broker alone knows what is left", ""),
    "rabbitmq": ("a queue of RabbitMQ deletes what was acknowledged, and the broker alone knows what is left", ""),
    "mqtt": ("a broker of MQTT keeps nothing that was delivered", ""),
    "pubsub": (
        "the position of a subscription is the broker's, and is that of all who read it",
        "Move it there: gcloud pubsub subscriptions seek SUBSCRIPTION --time=TIME. What is known does not fire twice",
    ),
    "sse": ("a server of events has ids and no times, so that a time has no place in it", ""),
    "websocket": ("a connection has no history", ""),
}
"""Streams that are read from where the broker says: why, and what helps if it is not a replay of what is stored."""


async def seek(context: Context, *, name: str, to: str, token: str = "") -> Plain:
    """Show what moving the trigger to a time would do; with the `token` of that answer, do exactly that.

    Back in time its feed is read again from there, and stored events that it has not decided are decided. What is
    known does not fire twice. Forward in time what has not been read yet and happened before is not counted.
    """
    state = await context.trigger(name)
    trigger, feed = _movable(context, state)
    now = context.clock.now()
    line = moment_of(to, now)
    if line is None:
        raise Malformed("to must be a time, or a duration before now", fix="Write it like 2h or 2026-03-01T10:00:00Z")
    found = await context.store.state(feed.name)
    if token:
        line = _confirmed(token, line, found, to)
    _check_time(context, line, now)
    if feed.way == "stream":
        return await _seek_stream(context, state, trigger, feed, found, line, do=bool(token))
    back = found.last_success is None or line < found.last_success
    if token:
        return await _execute(context, state, found, line, back=back)
    return await _preview(context, state, trigger, feed, found, line, back=back)


def _movable(context: Context, state: TriggerState) -> tuple[Trigger, Feed]:
    """The trigger and its feed as they are configured; raises Refused where there is no past to read."""
    trigger = context.triggers().get(state.name)
    feed = context.feeds().get(trigger.feed) if trigger is not None else None
    if trigger is None or feed is None:
        raise Refused(f"trigger {state.name} is not configured now", fix="Put it back, then seek")
    if len(trigger.feeds) > 1:
        raise Refused(f"{state.name} listens to {len(trigger.feeds)} feeds, which have no common place")
    kind = trigger_type(feed)
    replay = f"Replay what is stored: harken events replay --since TIME --trigger {state.name}"
    if kind == "schedule":
        raise Refused(f"{state.name} is a schedule: there is nothing to read again", fix="Run its workflow by hand")
    if kind == "ticket":
        raise Refused(f"{state.name} follows tickets, which are read as they are now", fix="See: harken tickets retry")
    if feed.way == "stream" and feed.kind in UNSEEKABLE:
        reason, fix = UNSEEKABLE[feed.kind]
        raise Refused(f"{feed.display_name} cannot be read from another time: {reason}", fix=fix or replay)
    if feed.way not in ("poll", "stream"):
        raise Refused(f"what {feed.display_name} got was sent to it: it cannot be read again", fix=replay)
    return trigger, feed


def _check_time(context: Context, line: datetime, now: datetime) -> None:
    if line > now:
        raise Refused("a trigger cannot be moved into the future", fix="To stop it for a while: harken triggers pause")
    keep = context.loaded.settings.retention if context.loaded else None
    if keep is not None and line < now - timedelta(seconds=min(keep.events, keep.runs)):
        reason = f"before {plain(now - timedelta(seconds=min(keep.events, keep.runs)))} it is not known what has fired"
        raise Refused(f"{reason}, so that it could fire twice", fix="Name a later time, or keep runs for longer")


def _token(line: datetime, state: FeedState) -> str:
    return f"{state.revision}-{round(line.timestamp() * 1_000_000)}"


def _confirmed(token: str, line: datetime, state: FeedState, to: str) -> datetime:
    """The time that was shown, if nothing has changed since."""
    revision, _, micros = token.partition("-")
    if not (token.isascii() and revision.isdecimal() and micros.isdecimal() and max(len(revision), len(micros)) < 18):
        raise Malformed("this is not the token of a preview")
    shown = datetime.fromtimestamp(int(micros) / 1_000_000, tz=line.tzinfo)
    relative = not to[:4].isdecimal()
    if int(revision) != state.revision or (not relative and abs((shown - line).total_seconds()) > 0.001):
        raise Refused("something has changed since this was shown", fix="Look at it again without the token")
    return shown


async def _seek_stream(
    context: Context, state: TriggerState, trigger: Trigger, feed: Feed, found: FeedState, line: datetime, *, do: bool
) -> Plain:
    """Show what the broker has from there on; or leave word for who follows the stream, and have it look at once."""
    fix = f"Replay what is stored: harken events replay --since TIME --trigger {state.name}"
    others = triggers_beside(context, state.name, [feed], "move with it", fix)
    cursor = stored_position(found.cursor)[0]
    place = await context.running().locate(feed.name, line, cursor)
    if place is None:
        raise Refused(
            f"{feed.display_name} cannot be read from another time: its service has no such positions",
            fix=fix,
        )
    back = place.skipped <= place.again
    if do:
        return await _execute(context, state, found, line, back=back, cursor=with_seek(cursor, line))
    undecided, known = await _known(context, trigger, state, feed, line) if back else ([], 0)
    notes = [
        *([f"The stream has one position: {', '.join(others)} moves with it"] if others else []),
        *(["The broker has nothing older than this place"] if place.oldest and back else []),
        *(["More are stored than a preview reads"] if known >= MOST_STORED else []),
    ]
    return _answer(context, state, line, back=back) | {
        "messages": place.messages,
        "read_again": place.again,
        "skipped": place.skipped,
        "would_fire": sum(row["outcome"] in FIRING for row in undecided),
        "known": known,
        "outcomes": dict(Counter(row["outcome"] for row in undecided)),
        "token": _token(line, found),
        "sentence": _stream_sentence(place, line, known, len(undecided)),
        "items": undecided[:SAMPLES],
        "notes": notes,
    }


def _stream_sentence(place: Located, line: datetime, known: int, undecided: int) -> str:
    there = f"{count(place.messages, 'message')} since {plain(line)}"
    if place.skipped > place.again:
        return f"{there} would be read. {count(place.skipped, 'message')} before that would never be"
    decided = f", {undecided} of them to be decided by this trigger" if undecided else ""
    return (
        f"{there} would be read, {place.again} of them before the position of the stream; "
        f"{known} of that time are stored and would not fire twice{decided}"
    )


async def _known(
    context: Context, trigger: Trigger, state: TriggerState, feed: Feed, line: datetime
) -> tuple[list[Plain], int]:
    """Stored messages since that time which the trigger has not decided, and how many are stored of that time.

    The newest `MOST_STORED` are looked at."""
    known = 0
    undecided: list[Plain] = []
    async for event in _stored_since(context, feed, line):
        known += 1
        if _is_undecided(event, state):
            undecided.append(_decide(event, trigger, state, feed, line, context.clock.now()))
        if known >= MOST_STORED:
            break
    return undecided, known


async def _execute(
    context: Context, state: TriggerState, feed: FeedState, line: datetime, *, back: bool, cursor: Any = None
) -> Plain:
    moved = await context.store.seek(state.name, line, revision=feed.revision, back=back, cursor=cursor)
    if moved is None:
        raise Refused("something has changed since this was shown", fix="Look at it again without the token")
    context.nudge()
    return _answer(context, state, line, back=back) | {"done": True}


def _answer(context: Context, state: TriggerState, line: datetime, *, back: bool) -> Plain:
    return {
        "trigger": state.name,
        "to": plain(line),
        "from": plain(state.start_line),
        "direction": "back" if back else "forward",
        "done": False,
    }


async def _preview(
    context: Context, state: TriggerState, trigger: Trigger, feed: Feed, found: FeedState, line: datetime, *, back: bool
) -> Plain:
    answer = _answer(context, state, line, back=back)
    if not back:
        said = (
            f"What happened before {plain(line)} and has not been read yet would not be counted. Nothing is read again."
        )
        return answer | {**_counts(Counter()), "token": _token(line, found), "sentence": said, "items": [], "notes": []}
    seconds = (context.clock.now() - line).total_seconds()
    read = await context.running().preview(state.name, seconds, since_start=True)
    undated = [one for one in read.shown if one.occurred_at is None]
    if undated:
        raise Refused(
            f"items of {feed.display_name} have no time, so that there is no place to move to",
            fix=f"To begin anew, with what comes from now on: harken triggers reset {state.name} --cursor",
        )
    stored = await _stored(context, trigger, state, feed, line)
    rows = _rows(read, stored, line)
    counted = Counter(row["outcome"] for row in rows)
    fires = sum(counted[outcome] for outcome in FIRING)
    known = counted["duplicate"]
    sentence = (
        f"{count(len(rows), 'item')} since {plain(line)}: {fires} would start a run, {known} known and would not fire "
        f"twice, {len(rows) - fires - known} would not fire"
    )
    notes = [*read.notes, *([] if read.complete else ["There is more than a preview reads"])]
    return answer | {
        **_counts(counted),
        "token": _token(line, found),
        "sentence": sentence,
        "items": sorted(rows, key=lambda row: (row["outcome"] not in FIRING, str(row["occurred_at"])))[:SAMPLES],
        "notes": notes,
    }


def _counts(counted: Counter[str]) -> Plain:
    return {
        "read_again": sum(counted.values()),
        "would_fire": sum(counted[outcome] for outcome in FIRING),
        "known": counted["duplicate"],
        "outcomes": dict(counted),
    }


def _rows(read: Preview, stored: list[Plain], line: datetime) -> list[Plain]:
    """What the source shows and what is stored, each once: stored events that are decided again are known already."""
    again = {row["key"] for row in stored}
    shown = [plain(one) for one in read.shown if one.occurred_at is not None and one.occurred_at >= line]
    return [*stored, *(row for row in shown if row["key"] not in again)]


async def _stored(context: Context, trigger: Trigger, state: TriggerState, feed: Feed, line: datetime) -> list[Plain]:
    """Stored events since that time which the trigger has not decided, with what it would decide."""
    rows: list[Plain] = []
    async for event in _stored_since(context, feed, line):
        if _is_undecided(event, state):
            rows.append(_decide(event, trigger, state, feed, line, context.clock.now()))
        if len(rows) >= MOST_STORED:
            break
    return rows


async def _stored_since(context: Context, feed: Feed, line: datetime) -> AsyncIterator[Recorded]:
    """What is stored of that time, newest first."""
    before: int | None = None
    while True:
        page = await context.store.events(feed=feed.name, since=line - SKEW, before=before, limit=PAGE)
        for event in page.items:
            if event.occurred_at is not None and event.occurred_at >= line:
                yield event
        before = page.next
        if before is None:
            return


def _is_undecided(event: Recorded, state: TriggerState) -> bool:
    verdicts = {verdict.trigger: verdict.outcome for verdict in event.verdicts}
    return verdicts.get(state.name, verdicts.get(state.uid, "before_start")) == "before_start"


def _decide(event: Recorded, trigger: Trigger, state: TriggerState, feed: Feed, line: datetime, now: datetime) -> Plain:
    from harken.match import Read, Rule, Rules, Sighting, match

    rule = Rule(trigger, msgspec.structs.replace(state, start_line=line))
    again = Event(
        subject=event.subject,
        type=event.type,
        data=event.data,
        key=event.key,
        state=event.state,
        occurred_at=event.occurred_at,
    )
    entries = match([Sighting(again, "", 0, 1)], Rules(0, feed, (rule,)), Read(now=now, again=True))
    decisions: tuple[Any, ...] = entries[0].decisions if entries else ()
    first = decisions[0] if decisions else Verdict(trigger=state.name, outcome="filtered", reason="another type")
    return {
        "key": event.key,
        "subject": event.subject,
        "type": event.type,
        "outcome": first.outcome if isinstance(first, Verdict) else "gathered" if first.gather else "fired",
        "reason": first.reason,
        "occurred_at": plain(event.occurred_at),
        "title": title_of(event.data),
    }
