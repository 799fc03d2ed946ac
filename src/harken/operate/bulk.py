"""Bulk actions by plan: first the exact ids with samples, then this plan and nothing else.

A filter that is read again at the moment of the act may mean something else by then, and one that got lost would mean
everything. A plan has its ids, expires after an hour, and is executed once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from harken.errors import HarkenError, KeyReused, Malformed, Misconfigured, NotFound, Refused
from harken.event import Verdict
from harken.operate import events, runs
from harken.operate.backtest import rules_of
from harken.operate.context import Context
from harken.operate.idempotency import new_id
from harken.operate.output_rows import Plain, plain, run_row
from harken.operate.owner_access import triggers_of
from harken.operate.progress import Progress
from harken.operate.replay_time_span import decide_replay, start_replay
from harken.runs import OPEN
from harken.store import Document
from harken.store.document_kinds import PLAN
from harken.suggest import suggest_fix

__all__ = ["ACTIONS", "OF_RUNS", "execute", "make_plan", "show", "undo"]

ACTIONS = ("retry", "cancel", "release", "drop", "replay")
MOST = 10_000
SAMPLES = 5
EXPIRES = timedelta(hours=1)
KEPT = timedelta(days=1)
UNDO_SECONDS = 60.0
PAGE = 500
RETRIED = frozenset({"failed", "dead", "cancelled"})
OF_RUNS = ("retry", "cancel", "release")
NOUNS = {"retry": "runs", "cancel": "runs", "release": "runs", "drop": "dead letters", "replay": "events"}
LISTS = {
    "retry": runs.list_runs,
    "cancel": runs.list_runs,
    "release": runs.list_runs,
    "drop": runs.list_dead,
    "replay": events.list_events,
}


async def make_plan(
    context: Context,
    *,
    action: str,
    where: str = "",
    ids: Sequence[str] = (),
    trigger: str = "",
    since: str = "",
    agent: str = "",
) -> Plain:
    """Choose what to retry, cancel, release, drop or replay, and keep its ids as a plan. Nothing is done yet.

    `where` is a filter in CEL; in its place runs may be named by `ids`. A replay names its trigger. For an `agent` only
    what its own jobs and triggers have done is chosen."""
    if action not in ACTIONS:
        raise Malformed(f"nothing is called {action} in bulk", fix=suggest_fix(action, ACTIONS))
    if bool(where.strip()) == bool(ids):
        raise Malformed("a plan needs a filter, or ids", fix="Say which: --where 'status == \"failed\"'")
    if ids and action not in OF_RUNS:
        raise Malformed(f"what to {action} is chosen by a filter, not by ids", fix="Use --where")
    if (action == "replay") != bool(trigger):
        raise Misconfigured("a replay, and only a replay, names its trigger", fix="Use --trigger NAME with replay")
    id, now = new_id("plan").hex[:12], context.clock.now()
    asked = _digest(action, where, sorted(ids), trigger, since, agent)
    known = await context.store.get(PLAN, id)
    if known is not None and not _is_old(known, now):
        if known.value.get("asked", asked) != asked:
            raise KeyReused("this Idempotency-Key came with another plan before", fix="Make a new key")
        # a request that is repeated with its key gets the plan that it made, whatever would be chosen by now
        return _row(id, known.value)
    own = triggers_of(context, agent) if agent else None
    if own is not None and trigger and trigger not in own:
        # before it is looked up, which would tell the nearest names
        raise NotFound(f"there is no trigger {trigger}")
    # only events of the feed that the trigger listens to can be replayed for it
    feed = (await rules_of(context, trigger))[2].name if trigger else ""
    rows = await _named(context, action, ids, own) if ids else await _choose(context, action, where, since, feed)
    if own is not None:
        rows = _of(action, rows, own)
    await _forget_old(context, now)
    value = {
        "asked": asked,
        "action": action,
        "where": where,
        "trigger": trigger,
        "since": since,
        "ids": [row["id"] for row in rows],
        "samples": [_sample(row) for row in rows[:SAMPLES]],
        "created_at": plain(now),
        "expires_at": plain(now + EXPIRES),
        "state": "planned",
        "done": [],
        "refused": [],
        "started": [],
    }
    if await context.store.put(PLAN, id, value, expect=0) is None:
        # another process has made it meanwhile, with the same key
        return await show(context, id=id)
    return _row(id, value)


async def show(context: Context, *, id: str) -> Plain:
    """A plan: what it will do or did, to how many, with samples and all ids."""
    return _row(id, (await _plan(context, id)).value)


async def execute(context: Context, *, id: str) -> Plain:
    """Do what the plan says, to the ids that it has. It is done once; what has changed since is refused."""
    document = await _plan(context, id)
    value = dict(document.value)
    now = context.clock.now()
    executor = new_id("execute").hex
    if value["state"] == "executing" and value["executor"] != executor:
        fix = f"See what was done: harken bulk show {id}; or send the same request with its Idempotency-Key"
        raise Refused(f"plan {id} is being executed, or its process died over it", fix=fix)
    if value["state"] == "executed" and value["executor"] == executor:
        # it was done, and its answer got lost
        return _row(id, value)
    if value["state"] not in ("planned", "executing"):
        raise Refused(f"plan {id} is {value['state']} already", fix="Make another: harken bulk plan")
    if value["state"] == "planned" and now >= datetime.fromisoformat(value["expires_at"]):
        raise Refused(f"plan {id} has expired", fix="Make another: harken bulk plan")
    value |= {"state": "executing", "executor": executor}
    taken = await context.store.put(PLAN, id, value, expect=document.revision)
    if taken is None:
        raise Refused(f"plan {id} is being executed by somebody else", fix=f"See: harken bulk show {id}")
    done: list[Any] = []
    refused: list[Plain] = []
    started: list[str] = []
    for number, one in enumerate(value["ids"]):
        context.report(Progress(done=number, total=len(value["ids"]), what=NOUNS[value["action"]]))
        try:
            started += await _act(context, id, value, one, now)
            done.append(one)
        except HarkenError as error:
            refused.append({"id": one, "reason": error.message, "fix": error.fix})
    value |= {"state": "executed", "done": done, "refused": refused, "started": started, "executed_at": plain(now)}
    await context.store.put(PLAN, id, value, expect=taken.revision)
    context.nudge()
    return _row(id, value)


async def undo(context: Context, *, id: str) -> Plain:
    """Cancel the runs of a replay that have not begun; they wait a minute before they do."""
    document = await _plan(context, id)
    value = dict(document.value)
    if value["state"] != "executed" or value["action"] != "replay":
        fix = "Only a replay that was executed can be undone, before its runs begin"
        raise Refused(f"plan {id} is a {value['action']}, and {value['state']}", fix=fix)
    cancelled = [run for run in value["started"] if await _cancel_unbegun(context, run)]
    value |= {"state": "undone", "cancelled": cancelled}
    await context.store.put(PLAN, id, value, expect=document.revision)
    return _row(id, value)


async def _cancel_unbegun(context: Context, id: str) -> bool:
    run = await context.store.run(id)
    return run is not None and run.started_at is None and await context.store.cancel(id, "undone by hand")


async def _choose(context: Context, action: str, where: str, since: str, feed: str) -> list[Plain]:
    """The rows that the filter accepts, of all pages, oldest first; events of this feed only."""
    given: dict[str, Any] = {"where": where, "feed": feed} if feed else {"where": where}
    if since and action != "drop":
        given["since"] = since
    elif since:
        raise Malformed("dead letters are not chosen by since", fix='Use the filter: at > "2026-03-01"')
    rows: list[Plain] = []
    cursor: str | None = ""
    while cursor is not None:
        page = await LISTS[action](context, **given, cursor=cursor, limit=PAGE)
        rows += [row for row in page["items"] if _can(action, row)]
        cursor = page["next"]
        if len(rows) > MOST:
            raise Refused(f"that is more than {MOST} at once", fix="Narrow the filter")
    return rows[::-1]


async def _named(context: Context, action: str, ids: Sequence[str], own: Collection[str] | None) -> list[Plain]:
    """The runs with these ids, or their unique beginnings; raises Refused for one to which it cannot be done.

    For an owner, raises NotFound for one that is not its own, as if it were not there."""
    if len(ids) > MOST:
        raise Refused(f"that is more than {MOST} at once", fix="Make several plans")
    rows: dict[str, Plain] = {}
    for id in ids:
        row = run_row(await context.run(id))
        if context.principal.limited and not _of(action, [row], own or ()):
            raise NotFound(f"there is no run {id}", fix="See: harken runs list")
        rows[row["id"]] = row
    for row in rows.values():
        if not _can(action, row):
            raise Refused(f"run {row['id']} is {row['status']}: there is nothing to {action}")
    return list(rows.values())


def _of(action: str, rows: list[Plain], triggers: Collection[str]) -> list[Plain]:
    """Those of the rows that are of these triggers."""
    if action == "replay":
        return [row for row in rows if any(verdict["trigger"] in triggers for verdict in row["verdicts"])]
    return [row for row in rows if row["trigger"] in triggers and row.get("what", "run") == "run"]


def _can(action: str, row: Mapping[str, Any]) -> bool:
    if action == "retry":
        return row["status"] in RETRIED
    if action == "release":
        return bool(row["status"] == "held")
    return action != "cancel" or row["status"] in OPEN


async def _act(context: Context, plan: str, value: Mapping[str, Any], one: Any, now: datetime) -> list[str]:
    """Do it to one of them. Return the ids of runs that were started."""
    action = value["action"]
    if action == "retry":
        await runs.retry(context, id=one)
    elif action == "cancel":
        await runs.cancel(context, id=one)
    elif action == "release":
        await _release(context, one)
    elif action == "drop":
        await runs.drop_dead_letter(context, id=one)
    else:
        return [await _replay(context, plan, value["trigger"], int(one), now)]
    return []


async def _release(context: Context, id: str) -> None:
    if not await context.store.release_run(id):
        raise Refused(f"run {id} is not held any more")


async def _replay(context: Context, plan: str, name: str, event_id: int, now: datetime) -> str:
    event = await context.store.event(event_id)
    trigger, state, feed = await rules_of(context, name)
    if event is None or event.feed != feed.name:
        raise NotFound(f"event {event_id} is not stored, or not of a feed that {name} listens to")
    decided = decide_replay(event, trigger, state, feed, now)
    if decided is None or isinstance(decided, Verdict):
        reason = decided.reason if decided is not None else "it is of another type"
        raise Refused(f"{name} does not want event {event_id}: {reason}")
    earlier = next((verdict.run_id for verdict in event.verdicts if verdict.trigger == name), "")
    due = now + timedelta(seconds=UNDO_SECONDS)
    return await start_replay(context, event, trigger, decided, plan, earlier, due)


async def _plan(context: Context, id: str) -> Document:
    found = await context.store.get(PLAN, id)
    if found is None:
        raise NotFound(f"there is no plan {id}", fix="Make one: harken bulk plan")
    return found


async def _forget_old(context: Context, now: datetime) -> None:
    for document in await context.store.documents(PLAN):
        if _is_old(document, now):
            await context.store.delete(PLAN, document.name)


def _is_old(plan: Document, now: datetime) -> bool:
    return datetime.fromisoformat(plan.value["created_at"]) + KEPT < now


def _digest(*asked: Any) -> str:
    """Tells what was asked for with a key from anything else."""
    return hashlib.sha256(msgspec.json.encode(asked)).hexdigest()[:16]


def _sample(row: Mapping[str, Any]) -> Plain:
    return {name: row[name] for name in ("id", "trigger", "key", "title", "status", "reason", "error") if name in row}


def _row(id: str, value: Mapping[str, Any]) -> Plain:
    return {
        "id": id,
        "action": value["action"],
        "where": value["where"],
        "trigger": value["trigger"],
        "state": value["state"],
        "count": len(value["ids"]),
        "samples": value["samples"],
        "ids": value["ids"],
        "created_at": value["created_at"],
        "expires_at": value["expires_at"],
        "done": len(value["done"]),
        "refused": value["refused"],
        "started": value["started"],
        "cancelled": len(value.get("cancelled", ())),
    }
