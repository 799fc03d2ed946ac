"""What a person may do with a trigger."""

from __future__ import annotations

from collections import Counter

from harken.errors import Refused
from harken.feed import FeedState, Trigger, TriggerState
from harken.operate.desk import Desk
from harken.operate.health import Standing, standing
from harken.operate.plain import Plain, plain, trigger_row, trigger_type
from harken.operate.words import count, schedule_text

__all__ = ["drop", "listed", "pause", "release", "reset", "resume", "run_now", "show", "test"]

LOOKBACK_SECONDS = 3600.0
MOST_LOOKBACK = 3650 * 86_400.0
RECENT = 50
UNOPENED = Standing(status="new", reason="no controller has opened it yet", advice="harken start, or harken reload")


async def listed(desk: Desk, *, type: str = "") -> Plain:
    """Every trigger that is configured, opened or not, by name."""
    states = {state.name: state for state in await desk.store.triggers() if state.removed_at is None}
    feeds = {state.name: state for state in await desk.store.feeds()}
    for name in desk.triggers():
        states.setdefault(name, _unopened(desk, name))
    rows = [_row(desk, states[name], feeds) for name in sorted(states)]
    return {"items": [row for row in rows if type in ("", row["type"])], "next": None}


async def show(desk: Desk, *, name: str) -> Plain:
    """One trigger with its definition, its recent verdicts and what is held."""
    state = await desk.trigger(name)
    feeds = {found.name: found for found in await desk.store.feeds()}
    definition = desk.triggers().get(name)
    feed = desk.feeds().get(definition.feed) if definition else None
    held = await desk.store.runs(trigger=name, status="held", limit=RECENT)
    return _row(desk, state, feeds) | {
        "uid": state.uid,
        "epoch": state.epoch,
        "created_at": plain(state.created_at),
        "schedule": schedule_text(feed.schedule) if feed else "",
        "query": plain(feed.query) if feed else {},
        "condition": definition.condition if definition else "",
        "mapping": plain(definition.mapping) if definition else None,
        "overlap": definition.overlap if definition else "",
        "source": definition.source if definition else "",
        "held": len(held.items),
        "held_more": held.next is not None,
        "recent": await outcomes(desk, state),
    }


async def outcomes(desk: Desk, state: TriggerState, limit: int = RECENT) -> dict[str, int]:
    """How many of the trigger's most recent events had which outcome."""
    found = (await desk.store.events(trigger=state.name, limit=limit)).items
    return dict(Counter(v.outcome for event in found for v in event.verdicts if v.trigger in (state.name, state.uid)))


async def test(desk: Desk, *, name: str, lookback: float = LOOKBACK_SECONDS) -> Plain:
    """What would fire now and why the rest would not; changes nothing."""
    if name not in desk.triggers():
        await desk.trigger(name)
    if not 0 <= lookback <= MOST_LOOKBACK:
        raise Refused("the lookback is from 0 seconds to ten years")
    preview = await desk.running().preview(name, lookback)
    firing = sum(shown.outcome in ("fired", "gathered") for shown in preview.shown)
    total = count(len(preview.shown), "item")
    sentence = f"{firing} of {total} would start a run" if preview.shown else "The source shows nothing in that time"
    found: Plain = plain(preview)
    return found | {"would_fire": firing, "sentence": sentence}


async def run_now(desk: Desk, *, name: str) -> Plain:
    """Read the trigger's feed now, through the same lease and commit as its schedule."""
    await desk.trigger(name)
    engine = desk.running()
    feed = desk.feeds().get(await desk.feed_of(name))
    if feed is None or feed.way != "poll":
        kind = trigger_type(feed) or "removed"
        fix = f"Start its workflow by hand with: harken workflows run {_workflow(desk, name)}"
        raise Refused(f"trigger {name} is a {kind} trigger: there is nothing to read now", fix=fix)
    return {"trigger": name, "feed": feed.name} | dict(await engine.tick(feed.name))


async def pause(desk: Desk, *, name: str, reason: str = "") -> Plain:
    """Hold the trigger's runs from now on; its feed is still read and its events recorded."""
    await desk.trigger(name)
    await desk.store.pause(name, reason or "no reason given")
    return await _changed(desk, name)


async def resume(desk: Desk, *, name: str) -> Plain:
    """Release what the pause held, oldest first, and read the feed again."""
    await desk.trigger(name)
    await desk.store.resume(name)
    return await _changed(desk, name)


async def reset(desk: Desk, *, name: str, cursor: bool = False, yes: bool = False) -> Plain:
    """Clear errors and pause. With `cursor`, also forget what was read and start at now."""
    state = await desk.trigger(name)
    if cursor and not yes:
        feed = await desk.feed_of(name)
        others = sorted(other for other, one in desk.triggers().items() if one.feed == feed and other != name)
        shared = f", which {', '.join(others)} also listens to" if others else ""
        message = f"resetting the cursor of {name} wipes what its feed has read and remembers{shared}"
        raise Refused(message, fix=f"If you mean it: harken triggers reset {name} --cursor --yes")
    await desk.store.reset(state.name, cursor=cursor)
    return await _changed(desk, name)


async def release(desk: Desk, *, name: str) -> Plain:
    """Let the trigger's held runs go."""
    await desk.trigger(name)
    released = await desk.store.release(name)
    desk.nudge()
    return {"trigger": name, "released": released}


async def drop(desk: Desk, *, name: str) -> Plain:
    """Cancel the trigger's held runs."""
    await desk.trigger(name)
    dropped = await desk.store.release(name, drop=True)
    desk.nudge()
    return {"trigger": name, "dropped": dropped}


async def _changed(desk: Desk, name: str) -> Plain:
    desk.nudge()
    feeds = {state.name: state for state in await desk.store.feeds()}
    return _row(desk, await desk.trigger(name), feeds)


def _row(desk: Desk, state: TriggerState, feeds: dict[str, FeedState]) -> Plain:
    definition: Trigger | None = desk.triggers().get(state.name)
    feed = desk.feeds().get(definition.feed) if definition else None
    feed_state = feeds.get(definition.feed) if definition else None
    found = standing(state, feed, feed_state, desk.clock.now()) if state.uid else UNOPENED
    return trigger_row(state, definition, feed, feed_state, found)


def _unopened(desk: Desk, name: str) -> TriggerState:
    now = desk.clock.now()
    return TriggerState(uid="", name=name, epoch=0, start_line=now, created_at=now)


def _workflow(desk: Desk, name: str) -> str:
    definition = desk.triggers().get(name)
    return definition.workflow if definition else "NAME"
