"""Moves a trigger to another time, after showing what that does: what is read again, what is known, what would fire."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import Any

import msgspec

from harken.errors import Malformed, Refused
from harken.event import Event, Recorded, Verdict
from harken.feed import Feed, FeedState, Trigger, TriggerState
from harken.operate.context import Context
from harken.operate.engine import Preview
from harken.operate.events import moment_of
from harken.operate.rows import Plain, plain, title_of, trigger_type
from harken.operate.wording import count

__all__ = ["seek"]

SKEW = timedelta(days=1)
"""An event may be recorded before it says it happened."""
PAGE = 200
MOST_STORED = 5_000
SAMPLES = 20
FIRING = ("fired", "gathered")


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
    if feed.way == "stream":
        reason = f"the place of {feed.display_name} is a position at its broker, which has no time to move to"
        raise Refused(reason, fix=replay)
    if feed.way != "poll":
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


async def _execute(context: Context, state: TriggerState, feed: FeedState, line: datetime, *, back: bool) -> Plain:
    moved = await context.store.seek(state.name, line, revision=feed.revision, back=back)
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
            fix=f"To take everything as new: harken triggers reset {state.name} --cursor",
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
    before: int | None = None
    while len(rows) < MOST_STORED:
        page = await context.store.events(feed=feed.name, since=line - SKEW, before=before, limit=PAGE)
        for event in page.items:
            verdicts = {verdict.trigger: verdict.outcome for verdict in event.verdicts}
            decided = verdicts.get(state.name, verdicts.get(state.uid, "before_start"))
            if event.occurred_at is not None and event.occurred_at >= line and decided == "before_start":
                rows.append(_decide(event, trigger, state, feed, line, context.clock.now()))
        before = page.next
        if before is None:
            break
    return rows


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
