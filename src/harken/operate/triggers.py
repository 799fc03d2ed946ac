"""Operations on triggers."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from datetime import datetime

import msgspec

from harken.config.findings import Finding
from harken.config.loaded import digest
from harken.errors import Refused
from harken.feed import Feed, FeedState, TickSpan, Trigger, TriggerState
from harken.ingest.feed_runtime_state import Late
from harken.ingest.partly_committed_page import stored_position
from harken.operate.clause_blame import recent_blame
from harken.operate.context import LISTED, Context
from harken.operate.list_filter import TRIGGER_FIELDS, Where
from harken.operate.output_rows import Plain, gaps, lag_row, plain, shorten, spans, trigger_row, trigger_type
from harken.operate.owner_access import triggers_beside, visible
from harken.operate.paging import bounded, name_after, to_cursor
from harken.operate.rate_limits import budget_of
from harken.operate.stored_triggers import find_row, row_view
from harken.operate.trigger_status import TriggerStatus, Unread, limits, over_reason, reset_command, status_of
from harken.operate.unreadable_tracker_locations import unread_triggers
from harken.operate.wording import count, schedule_text, stamp
from harken.schedule import Cron, next_due
from harken.store import Backlog, Document
from harken.store.document_kinds import START_MOVED
from harken.tickets import feed_name

__all__ = [
    "current_status",
    "drop",
    "list_triggers",
    "pause",
    "refuse_expired",
    "refused_webhooks",
    "release",
    "reset",
    "resume",
    "run_now",
    "show",
    "test",
]

LOOKBACK_SECONDS = 3600.0
MOST_LOOKBACK = 3650 * 86_400.0
AT_ONCE = 5_000
"""Of a list without pages so many triggers are read at a time."""
RECENT = 50
TICKS = 10
_TYPES = {"file": "poll", "api": "event", "feed": ""}
"""The types of rows that are not enabled, where their provider is called otherwise; a feed's is known when it is."""
CORRECT = "Correct it; it is loaded by itself. See all: harken config check"
UNOPENED = TriggerStatus(
    status="new", reason="no controller has opened it yet", advice="harken start, or harken reload"
)


async def list_triggers(
    context: Context, *, type: str = "", where: str = "", cursor: str = "", limit: int = 0
) -> Plain:
    """Every trigger that is configured, opened or not, by name; and every workflow, job and file that was refused."""
    wanted = Where(where, TRIGGER_FIELDS) if where else None
    see, after = visible(context, "name"), name_after(cursor)
    size = bounded(limit) if limit else 0
    found: list[Plain] = []
    async for rows in _rows_after(context, after, size + 1 if size else AT_ONCE):
        for row in rows:
            shown = see(row)
            if shown is None or type not in ("", shown["type"]) or not (wanted is None or wanted.accepts(shown)):
                continue
            found.append(shown)
            if size and len(found) > size:
                return {"items": found[:size], "next": to_cursor(str(found[size - 1]["name"]))}
    return {"items": found, "next": None}


async def _rows_after(context: Context, after: str, at_once: int) -> AsyncIterator[list[Plain]]:
    """The rows of all triggers after this name, in their order, some at a time: the store is asked only for those."""
    refused = _refusals(context)
    loaded = context.loaded
    idle = sorted({*refused, *(loaded.disabled if loaded else ())} - context.triggers().keys())
    while True:
        states = {state.name: state for state in await context.store.triggers(after=after, limit=at_once)}
        last = max(states) if len(states) == at_once else None
        for names in (context.trigger_names(), idle):
            for name in _between(names, after, last):
                states.setdefault(name, _unopened(context, name))
        stored = await _stored(context, states)
        rows = []
        for name in sorted(states):
            if states[name].uid or name in context.triggers():
                rows.append(_row(context, states[name], stored))
            elif name in refused:
                rows.append(_refused_row(context, name, refused[name]))
            else:
                rows.append(_disabled_row(context, name))
        yield rows
        if last is None:
            return
        after = last


def _between(names: Sequence[str], after: str, last: str | None) -> Sequence[str]:
    """The names after one, up to and with another; to the end without it."""
    return names[bisect_right(names, after) : len(names) if last is None else bisect_right(names, last)]


def _refusals(context: Context) -> dict[str, Finding]:
    """The first error of each workflow, job and workflow file that was refused, by name.

    A file that cannot be read stands for the triggers that came from it, as their old version runs on."""
    loaded = context.loaded
    found: dict[str, Finding] = {}
    for label, findings in loaded.refused.items() if loaded else ():
        kind, _, name = label.partition(":")
        errors = [finding for finding in findings if finding.severity == "error"]
        if errors and (kind in LISTED or name.startswith("workflows/")):
            names = _triggers_of(context, kind, name)
            found |= dict.fromkeys(names or (name,), errors[0])
    return found


def _triggers_of(context: Context, kind: str, name: str) -> list[str]:
    """The triggers that came from an item which is refused now, if they are not called like it."""
    triggers = context.triggers()
    if kind == "file":
        return [one for one, trigger in triggers.items() if trigger.source == name]
    if kind == "tracker":
        return [one for one, trigger in triggers.items() if feed_name(name) in trigger.feeds]
    if kind == "project":
        return [one for one, trigger in triggers.items() if trigger.routes and one.partition("/")[2] == name]
    return []


def _refused_row(context: Context, name: str, finding: Finding) -> Plain:
    status = TriggerStatus(status="refused", reason=str(finding), advice=CORRECT, needs_person=True)
    row = trigger_row(_unopened(context, name), None, None, None, status, Backlog()) | {"late_seconds": 0.0}
    refused = context.loaded.refused if context.loaded else {}
    kinds = {"poller": "poller", "tracker": "ticket", "project": "ticket"}
    type = next((type for kind, type in kinds.items() if f"{kind}:{name}" in refused), "")
    return row | {"type": type, "start_line": None}


def _with_refusal(found: TriggerStatus, finding: Finding | None) -> TriggerStatus:
    """The status of a trigger whose old version runs on, because what is written now was refused."""
    if finding is None:
        return found
    reason = f"the old version runs, as what is written now is refused: {finding}"
    return TriggerStatus(
        status="degraded" if found.status in ("healthy", "new") else found.status,
        reason=f"{found.reason}; {reason}" if found.reason else reason,
        advice=f"{found.advice}. {CORRECT}" if found.advice else CORRECT,
        needs_person=True,
    )


async def show(context: Context, *, name: str) -> Plain:
    """One trigger: its definition, how far its feed has come, its recent verdicts and what is held."""
    document = await find_row(context, name)
    if document is not None:
        name = str(document.value["name"])
        if name not in context.triggers():
            return _idle_row(context, document)
    state = await context.trigger(name)
    stored = await _stored(context, [name])
    definition = context.triggers().get(name)
    feed = context.feeds().get(definition.feed) if definition else None
    shown = _row(context, state, stored) | {
        "uid": state.uid,
        "epoch": state.epoch,
        "created_at": plain(state.created_at),
        "schedule": schedule_text(feed.schedule) if feed else "",
        "query": plain(feed.query) if feed else {},
        "condition": definition.condition if definition else "",
        "mapping": plain(definition.mapping) if definition else None,
        "overlap": definition.overlap if definition else "",
        "source": definition.source if definition else "",
        "pipelines": dict(definition.routes) if definition else {},
        # `held` counts all of them; the name stays for programs that look for it
        "held_more": False,
        "held_by": dict(stored.backlog(name).held),
        "gather": plain(definition.gather) if definition else None,
        "throttle": plain(definition.throttle) if definition else None,
        "dedupe": plain(definition.dedupe) if definition else None,
        "timeline": timeline(definition),
        "recent": await outcomes(context, state),
        "clauses": await recent_blame(context, definition),
        "refused_webhooks": refused_webhooks(context, feed),
        **await _start_moved(context, name),
        **limits(definition, state, context.clock.now()),
    }
    row = row_view(context, document, shown["last_tick_at"]) if document else None
    version = row["revision"] if row else digest(definition) if definition else ""
    shown |= {"row": row, "revision": version}
    return shown | await _reading(context, feed, opened=feed is not None and feed.name in stored.feeds)


def _disabled_row(context: Context, name: str) -> Plain:
    status = TriggerStatus(
        status="disabled", reason="it is not enabled", advice=f"harken triggers edit {name} --enable"
    )
    shown = trigger_row(_unopened(context, name), None, None, None, status, Backlog())
    row = context.loaded.disabled.get(name) if context.loaded else None
    known = {"type": _TYPES.get(row.provider, row.provider), "workflow": row.workflow} if row else {}
    return shown | known | {"late_seconds": 0.0, "start_line": None}


def _idle_row(context: Context, document: Document) -> Plain:
    """A row that is not enabled, or that cannot be used."""
    name = str(document.value["name"])
    finding = _refusals(context).get(name)
    shown = _refused_row(context, name, finding) if finding else _disabled_row(context, name)
    row = row_view(context, document)
    return shown | {"row": row, "revision": row["revision"]}


def timeline(definition: Trigger | None) -> list[str]:
    """How the trigger gathers events into runs, drawn by the rules of the commit; nothing for a plain one."""
    from harken.match import stories

    return [line for story in stories(definition) for line in story.lines()] if definition else []


async def _start_moved(context: Context, name: str) -> Plain:
    """When the start line was last moved back, because it was in the future, and from when."""
    document = await context.store.get(START_MOVED, name)
    if document is None:
        return {"start_line_moved": "", "start_line_moved_at": None}
    was = stamp(datetime.fromisoformat(document.value["was"]))
    return {
        "start_line_moved": f"back from {was}, as the clock was ahead when it was set",
        "start_line_moved_at": plain(datetime.fromisoformat(document.value["at"])),
    }


def refused_webhooks(context: Context, feed: Feed | None) -> list[Plain]:
    """The last requests to the trigger's webhook that this controller refused, newest first."""
    if context.engine is None or feed is None or not feed.path:
        return []
    return [plain(refusal) for refusal in context.engine.refused_webhooks(feed.path)]


async def _reading(context: Context, feed: Feed | None, *, opened: bool) -> Plain:
    """How far the feed has come: what it remembers, what it has proven to have read, and its last reads."""
    state = await context.store.state(feed.name) if feed and opened else None
    ticks = await context.store.ticks(feed.name, limit=TICKS) if feed and opened else ()
    wrong = next((tick for tick in ticks if tick.error), None)
    spent = budget_of(context, feed.name) if feed else None
    return {
        "identity": feed.identity if feed else "",
        "lookback": feed.lookback if feed else 0.0,
        "cursor": shorten(stored_position(state.cursor)[0] if state else None),
        "watermark": plain(state.watermark) if state else None,
        "memory": state.memory if state else 0,
        "reads": state.reads if state else 0,
        "last_error": wrong.error if wrong else state.health.message if state else "",
        "last_error_at": plain(wrong.ended_at) if wrong else None,
        "blocked_until": spent["blocked_until"] if spent else None,
        "calls_left": spent["remaining"] if spent else None,
        **lag_row(context.engine.stream_lags().get(feed.name) if context.engine and feed else None),
        "coverage": spans(state.coverage if state else ()),
        "gaps": gaps(state.coverage if state else ()),
        "ticks": [_tick(tick) for tick in ticks],
    }


def _tick(tick: TickSpan) -> Plain:
    shown: Plain = plain(tick)
    del shown["feed"]
    return shown


async def outcomes(context: Context, state: TriggerState, limit: int = RECENT) -> dict[str, int]:
    """How many of the trigger's most recent events had which outcome."""
    found = (await context.store.events(trigger=state.name, limit=limit)).items
    return dict(Counter(v.outcome for event in found for v in event.verdicts if v.trigger in (state.name, state.uid)))


async def test(context: Context, *, name: str, lookback: float = LOOKBACK_SECONDS) -> Plain:
    """What would fire now and why the rest would not; changes nothing."""
    if name not in context.triggers():
        context.refuse_broken(name)
        await context.trigger(name)
    if not 0 <= lookback <= MOST_LOOKBACK:
        raise Refused("the lookback is from 0 seconds to ten years")
    preview = await context.running().preview(name, lookback)
    firing = sum(shown.outcome in ("fired", "gathered") for shown in preview.shown)
    total = count(len(preview.shown), "item")
    sentence = f"{firing} of {total} would start a run" if preview.shown else "The source shows nothing in that time"
    found: Plain = plain(preview)
    drawn = timeline(context.triggers().get(name))
    return found | {"would_fire": firing, "sentence": sentence, "timeline": drawn}


async def run_now(context: Context, *, name: str) -> Plain:
    """Read the trigger's feed now, through the same lease and commit as its schedule."""
    state = await context.trigger(name)
    engine = context.running()
    feed = context.feeds().get(await context.feed_of(name))
    if feed is None or feed.way != "poll":
        kind = trigger_type(feed) or "removed"
        fix = f"Start its workflow by hand with: harken workflows run {_workflow(context, name)}"
        raise Refused(f"trigger {name} is a {kind} trigger: there is nothing to read now", fix=fix)
    await refuse_expired(context, name, feed, "read")
    report = dict(await engine.tick(feed.name, name))
    if report["result"] == "skipped" and state.paused:
        report["error"] = f"{name} is paused: {state.paused}. Resume it first: harken triggers resume {name}"
    return {"trigger": name} | report | {"feed": feed.display_name, "feed_id": feed.name}


async def pause(context: Context, *, name: str, reason: str = "") -> Plain:
    """Hold the trigger's runs from now on; its feed is still read and its events recorded."""
    await context.trigger(name)
    await context.store.pause(name, reason or "no reason given")
    return await _row_after_change(context, name)


async def resume(context: Context, *, name: str) -> Plain:
    """Release what the pause held, oldest first, and read the feed again. Raises Refused if that cannot help."""
    state = await context.trigger(name)
    feed = context.feeds().get(await context.feed_of(name))
    await refuse_expired(context, name, feed, "resumed")
    await _refuse_over(context, state, feed)
    await context.store.resume(name)
    return await _row_after_change(context, name)


async def refuse_expired(context: Context, name: str, feed: Feed | None, what: str) -> None:
    """Refuse what would only fail again: the service does not know any more how far the feed was read."""
    states = {state.name: state for state in await context.store.feeds()}
    state = states.get(feed.name) if feed else None
    if feed is None or state is None or state.health.state != "paused" or state.health.code != "cursor_expired":
        return
    is_job = feed.breaker is not None
    said = f"{'job' if is_job else 'trigger'} {name} cannot be {what}: {state.health.message}"
    raise Refused(said, fix=f"Begin anew at now: {reset_command(name, is_job=is_job)}")


async def _refuse_over(context: Context, state: TriggerState, feed: Feed | None) -> None:
    """Refuse to resume what is over, if there is no pause to end and nothing held to release."""
    held = (await context.store.backlogs()).get(state.name, Backlog()).held
    if feed is None or state.paused or sum(held.values()):
        return
    states = {one.name: one for one in await context.store.feeds()}
    reason = over_reason(feed, states.get(feed.name))
    if reason:
        fix = f"Give it another time, or once more by hand: harken triggers run {state.name}"
        raise Refused(f"trigger {state.name} cannot be resumed: {reason}", fix=fix)


async def reset(context: Context, *, name: str, cursor: bool = False, yes: bool = False) -> Plain:
    """Clear errors and pause. With `cursor`, also forget what was read and start at now."""
    state = await context.trigger(name)
    if cursor:
        others = await _triggers_that_begin_anew(context, name)
    if cursor and not yes:
        shared = f", which {', '.join(others)} also listens to" if others else ""
        message = f"resetting the cursor of {name} wipes what its feed has read and remembers{shared}"
        raise Refused(message, fix=f"If you mean it: harken triggers reset {name} --cursor --yes")
    await context.store.reset(state.name, cursor=cursor)
    return await _row_after_change(context, name)


async def _triggers_that_begin_anew(context: Context, name: str) -> list[str]:
    """The other triggers of its feeds. Raises Refused if one of them is somebody else's."""
    definition = context.triggers().get(name)
    names = definition.feeds if definition is not None else (await context.feed_of(name),)
    feeds = [context.feeds()[one] for one in names if one in context.feeds()]
    fix = f"Clear its errors alone: harken triggers reset {name}"
    return triggers_beside(context, name, feeds, "begin anew with it", fix)


async def release(context: Context, *, name: str) -> Plain:
    """Release the trigger's held runs."""
    await context.trigger(name)
    released = await context.store.release(name)
    context.nudge()
    return {"trigger": name, "released": released}


async def drop(context: Context, *, name: str) -> Plain:
    """Cancel the trigger's held runs."""
    await context.trigger(name)
    dropped = await context.store.release(name, drop=True)
    context.nudge()
    return {"trigger": name, "dropped": dropped}


async def _row_after_change(context: Context, name: str) -> Plain:
    context.nudge()
    return _row(context, await context.trigger(name), await _stored(context, [name]))


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """What the store says beside the triggers themselves; `last_dead` is why the newest dead run of each died.

    `unread` are triggers whose tickets are not read, while others of the tracker are.
    """

    feeds: Mapping[str, FeedState]
    backlogs: Mapping[str, Backlog]
    last_dead: Mapping[str, str]
    refusals: Mapping[str, Finding]
    unread: Mapping[str, Unread]

    def backlog(self, trigger: str) -> Backlog:
        return self.backlogs.get(trigger, Backlog())


async def _stored(context: Context, triggers: Collection[str]) -> Stored:
    """Read the store for these triggers at once."""
    trackers = context.loaded.trackers.values() if context.loaded else ()
    definitions = [found for name in triggers if (found := context.triggers().get(name)) is not None]
    wanted = {definition.feed for definition in definitions} | {feed_name(tracker.name) for tracker in trackers}
    feeds = {state.name: state for state in await context.store.feeds(names=wanted)}
    backlogs = await context.store.backlogs()
    letters = (await context.store.dead()).items if any(found.dead for found in backlogs.values()) else ()
    newest_last = {letter.trigger: letter.reason for letter in reversed(letters) if letter.what == "run"}
    return Stored(
        feeds=feeds,
        backlogs=backlogs,
        last_dead=newest_last,
        refusals=_refusals(context),
        unread=unread_triggers(trackers, feeds),
    )


async def current_status(context: Context, state: TriggerState) -> TriggerStatus:
    """The trigger's status, with what the store says of its feed and its runs."""
    return _status(context, state, await _stored(context, [state.name]))


def _status(context: Context, state: TriggerState, stored: Stored) -> TriggerStatus:
    if not state.uid:
        return UNOPENED
    definition = context.triggers().get(state.name)
    feed = context.feeds().get(definition.feed) if definition else None
    found = status_of(
        state,
        feed,
        stored.feeds.get(definition.feed) if definition else None,
        context.clock.now(),
        definition.stale_after if definition else 0.0,
        stored.backlog(state.name),
        stored.last_dead.get(state.name, ""),
        _late_read(context, definition),
        stored.unread.get(state.name) if definition else None,
    )
    return _with_refusal(found, stored.refusals.get(state.name) if definition else None)


def _late_read(context: Context, definition: Trigger | None) -> Late | None:
    """The read of the trigger's feed, if it is due and has not begun."""
    return context.engine.late_reads().get(definition.feed) if context.engine and definition else None


def _row(context: Context, state: TriggerState, stored: Stored) -> Plain:
    definition: Trigger | None = context.triggers().get(state.name)
    feed = context.feeds().get(definition.feed) if definition else None
    feed_state = stored.feeds.get(definition.feed) if definition else None
    found = _status(context, state, stored)
    late = _late_read(context, definition)
    row = trigger_row(state, definition, feed, feed_state, found, stored.backlog(state.name))
    row["late_seconds"] = round(late.seconds, 1) if late else 0.0
    if found.status == "new" and row["next_read_at"] is None and feed is not None and isinstance(feed.schedule, Cron):
        # no read has planned the next one yet
        row["next_read_at"] = plain(next_due(feed.schedule, context.clock.now()))
    return row | {"type": "poller"} if context.loaded and state.name in context.loaded.jobs else row


def _unopened(context: Context, name: str) -> TriggerState:
    now = context.clock.now()
    return TriggerState(uid="", name=name, epoch=0, start_line=now, created_at=now)


def _workflow(context: Context, name: str) -> str:
    definition = context.triggers().get(name)
    return definition.workflow if definition else "NAME"
