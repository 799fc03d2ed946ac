"""Replays of a span of time: stored events are decided again for chosen triggers, in their recorded order.

Conditions count, and see `event.replay`; start lines, pauses, digests and overlap do not, as a person asked for it.
Runs are named after the replay, so that the same command with the same replay id starts nothing twice.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from datetime import datetime

import msgspec

from harken.errors import Misconfigured, Refused
from harken.event import Recorded, Verdict
from harken.feed import Feed, Trigger, TriggerState
from harken.match import Read, Rule, Rules, Sighting, match
from harken.operate.backtest import rules_of
from harken.operate.context import Context
from harken.operate.event_from_record import event_of
from harken.operate.events import ALWAYS, mark_replay, moment_of
from harken.operate.idempotency import new_id
from harken.operate.output_rows import Plain, title_of
from harken.operate.progress import Progress
from harken.store import Intent, NewRun

__all__ = ["decide_replay", "replay_range", "start_replay"]

MOST = 10_000
SHOWN = 100
PAGE = 200


async def replay_range(
    context: Context,
    *,
    trigger: str,
    since: str,
    until: str = "",
    dry: bool = False,
    replay_id: str = "",
) -> Plain:
    """Decide the stored events of a span again for these triggers (names with commas between), and start their runs.

    With `dry` nothing is started, and nobody outside is asked. A repeated `replay_id` starts nothing twice.
    """
    names = [name.strip() for name in trigger.split(",") if name.strip()]
    if not names:
        raise Misconfigured("a replay of a span needs a trigger", fix="Name one: --trigger NAME")
    now = context.clock.now()
    begin, end = moment_of(since, now), moment_of(until, now)
    if begin is None:
        raise Misconfigured("a replay of a span needs its beginning", fix="Give one: --since 2h")
    if end is not None and end <= begin:
        raise Refused("the span ends before it begins", fix="Give an earlier --since or a later --until")
    replay = replay_id or new_id("replay").hex[:12]
    rules = {name: await rules_of(context, name) for name in dict.fromkeys(names)}
    started: list[Plain] = []
    outcomes: Counter[str] = Counter()
    events = 0
    async for event in _span(context, {feed.name for _, _, feed in rules.values()}, begin, end):
        events += 1
        for name, (definition, state, feed) in rules.items():
            if feed.name != event.feed:
                continue
            decided = decide_replay(event, definition, state, feed, now)
            outcome = "none" if decided is None else decided.outcome if isinstance(decided, Verdict) else "fired"
            outcomes[outcome] += 1
            if isinstance(decided, Intent):
                earlier = next((v.run_id for v in event.verdicts if v.trigger == name), "")
                row = {"event": event.id, "key": event.key, "title": title_of(event.data), "trigger": name}
                run_id = "" if dry else await start_replay(context, event, definition, decided, replay, earlier)
                started.append(row | {"id": run_id, "replay_of": earlier})
    if not dry and started:
        context.nudge()
    return {
        "replay_id": replay,
        "dry": dry,
        "events": events,
        "outcomes": dict(outcomes),
        "started": len(started),
        "runs": started[:SHOWN] if dry else started,
    }


def decide_replay(
    event: Recorded, trigger: Trigger, state: TriggerState, feed: Feed, now: datetime
) -> Verdict | Intent | None:
    """What the trigger's type, condition and mapping say of a replayed event; None for an event of another type."""
    alone = msgspec.structs.replace(trigger, gather=None, overlap="allow", quiet=None, max_age=0.0, spacing=None)
    rule = Rule(alone, msgspec.structs.replace(state, start_line=ALWAYS, paused=""))
    again = event_of(event)
    again = msgspec.structs.replace(again, data={**again.data, "replay": True})
    [entry] = match([Sighting(again, "", 0, 1)], Rules(0, feed, (rule,)), Read(now=now, again=True))
    return entry.decisions[0] if entry.decisions else None


async def start_replay(
    context: Context,
    event: Recorded,
    trigger: Trigger,
    intent: Intent,
    replay: str,
    earlier: str,
    due: datetime | None = None,
) -> str:
    """Start the run of a replayed event; the same replay and event give the same run."""
    workflow = str(event.data.get("pipeline", "")) if trigger.routes else trigger.workflow
    named = hashlib.sha256(f"{replay}\0{event.id}".encode()).hexdigest()[:32]
    return await context.store.start(
        NewRun(
            trigger=trigger.name,
            workflow=workflow,
            workflow_rev=intent.workflow_rev,
            id_key=f"replay:{named}",
            input=mark_replay(intent.input),
            event_ids=(event.id,),
            replay_of=earlier,
            due_at=due,
            max_attempts=trigger.max_attempts,
            watched=bool(trigger.routes),
        )
    )


async def _span(context: Context, feeds: set[str], begin: datetime, end: datetime | None) -> AsyncIterator[Recorded]:
    """The events of these feeds in the order in which they were recorded."""
    ids: list[int] = []
    for feed in sorted(feeds):
        after: int | None = 0
        while after is not None:
            page = await context.store.history(feed, "", since=begin, until=end, after=after)
            ids += page.ids
            after = page.next
            if len(ids) > MOST:
                raise Refused(f"that is more than {MOST} events", fix="Replay a shorter span: --since, --until")
    for number, part in enumerate(_parts(sorted(ids))):
        context.report(Progress(done=number * PAGE, total=len(ids)))
        for event in reversed(await context.store.events_by_id(part)):
            yield event


def _parts(ids: Sequence[int]) -> list[Sequence[int]]:
    return [ids[at : at + PAGE] for at in range(0, len(ids), PAGE)]
