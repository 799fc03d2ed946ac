"""Operations on runs and dead letters."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import get_args

import msgspec

from harken.errors import Malformed, Misconfigured, NotFound, Refused
from harken.operate.context import Context
from harken.operate.events import HEARTBEAT_SECONDS, moment_of
from harken.operate.idempotency import request_name
from harken.operate.list_filter import DEAD_FIELDS, RUN_FIELDS, Where, filter_page
from harken.operate.output_rows import Plain, dead_row, run_detail, run_row
from harken.operate.owner_access import visible
from harken.operate.paging import MOST, bounded, id_after, letter_after, to_cursor
from harken.runs import Run, RunState, Workflow
from harken.suggest import suggest_fix

__all__ = [
    "approve",
    "cancel",
    "drop_dead_letter",
    "list_dead",
    "list_runs",
    "micros",
    "retry",
    "retry_all_dead",
    "retry_dead",
    "show",
    "tail",
]

APPROVAL = "approval"
OVER = frozenset({"done", "failed", "dead", "cancelled"})
MOST_FOLLOWED = 2_000
"""So many runs a tail remembers."""
TRIES = 3
"""How often a retried run without a trigger is tried."""
PASSING = frozenset({"retry", "timeout", "rate_limited", "deferred", "offline", "store_busy", "store_unavailable"})
"""Codes of errors that pass by themselves, so the same workflow may work the next time."""
COMPUTING = frozenset({"filter", "if", "switch", "transform", "foreach", "parallel", "wait", "llm"})
"""Actions that change nothing elsewhere, so that they may be done again."""


async def list_runs(
    context: Context,
    *,
    trigger: str = "",
    status: str = "",
    workflow: str = "",
    since: str = "",
    where: str = "",
    cursor: str = "",
    limit: int = 50,
) -> Plain:
    """Runs, newest first; with `since` only those that were created since that time, or within that duration.

    `where` is a filter in CEL."""
    if where:
        given = {"trigger": trigger, "status": status, "workflow": workflow, "since": since}
        known, found_by = Where(where, RUN_FIELDS), ("trigger", "status", "workflow")
        read, see = partial(list_runs, context), visible(context, "trigger")
        return await filter_page(read, known, given, found_by, see, cursor, bounded(limit))
    if status and status not in get_args(RunState):
        raise Malformed(f"a run is never {status}", fix=suggest_fix(status, get_args(RunState)))
    found = await context.store.runs(
        trigger=trigger, status=status, workflow=workflow, before=id_after(cursor), limit=bounded(limit), journals=True
    )
    begin = moment_of(since, context.clock.now())
    if begin is None:
        return {"items": [run_row(run) for run in found.items], "next": to_cursor(found.next)}
    young = [run_row(run) for run in found.items if run.created_at >= begin]
    # they are in the order of their creation, so what follows an older one is older too
    return {"items": young, "next": to_cursor(found.next) if len(young) == len(found.items) else None}


async def tail(context: Context, *, after: int | None = None, rest: float = 0.0) -> AsyncIterator[Plain | None]:
    """Yield runs as they are made, start, wait and end, and None as a heartbeat. Ends when the engine stops.

    `after` is the `position` of a run that was yielded before: microseconds of its last move. What moved at that very
    moment comes again. Beyond the newest runs and those that were seen open, older ones are not looked at.
    After each look it rests so many seconds, so that a busy engine is not slowed down by those who watch it.
    """
    engine = context.running()
    begin = position = after if after is not None else micros(context.clock.now())
    known: dict[str, tuple[object, ...]] = {}
    first = True
    while True:
        for run in await _newest_and_open(context, known):
            state = (run.status, run.attempt, run.started_at, run.finished_at)
            moved = micros(max(filter(None, (run.created_at, run.started_at, run.finished_at))))
            before = known.pop(run.id, None)
            known[run.id] = state
            if before != state and not (first and moved < begin):
                position = max(position, moved)
                yield run_row(run) | {"position": position}
        first = False
        for id in list(known)[: max(0, len(known) - MOST_FOLLOWED)]:
            del known[id]
        began = context.clock.monotonic()
        if not await engine.changed(HEARTBEAT_SECONDS):
            return
        if context.clock.monotonic() - began >= HEARTBEAT_SECONDS:
            yield None
        elif rest:
            await context.clock.sleep(rest)


async def _newest_and_open(context: Context, known: Mapping[str, tuple[object, ...]]) -> list[Run]:
    """The newest runs, and older ones that were open when they were last seen; oldest first."""
    page = await context.store.runs(limit=MOST, journals=True)
    listed = {run.id for run in page.items}
    older = [id for id, state in known.items() if state[0] not in OVER and id not in listed]
    found = [await context.store.run(id) for id in older[:MOST]]
    return [*(run for run in found if run is not None), *reversed(page.items)]


async def show(context: Context, *, id: str, cut: int = 0) -> Plain:
    """One run with its steps. A unique beginning of the id is enough.

    Inputs and outputs of more than `cut` bytes are left away; the answer's `cut` has their places and sizes.
    """
    if cut < 0:
        raise Malformed("cut is a number of bytes", fix="Leave it away for everything")
    detail = run_detail(await context.run(id))
    return detail | {"cut": _cut_large(detail, cut)} if cut else detail


def _cut_large(detail: Plain, most: int) -> list[Plain]:
    """Take the large inputs and outputs of a run and of its steps away, and tell which they were."""
    found: list[Plain] = []
    parts = [("", detail), *((f"steps.{at}.", step) for at, step in enumerate(detail["steps"]))]
    for prefix, part in parts:
        for name in ("input", "output"):
            size = len(msgspec.json.encode(part[name]))
            if size > most:
                part[name] = None
                found.append({"place": f"{prefix}{name}", "bytes": size})
    return found


async def retry(context: Context, *, id: str, latest: bool = False) -> Plain:
    """Retry a run that is over. With `latest` it uses the current workflow and starts at the first step.

    It is tried as often as a new one, and its tries go on counting.
    """
    run = await context.run(id)
    trigger = context.triggers().get(run.trigger)
    rev = context.workflow(run.workflow).rev if latest else ""
    tries, request = trigger.max_attempts if trigger else TRIES, request_name(f"retry {run.id}")
    if not await context.store.retry(run.id, workflow_rev=rev, tries=tries, request=request):
        fix = "Only failed, dead and cancelled runs can be retried; for a done one: harken events replay ID"
        raise Refused(f"run {run.id} is {run.status}", fix=fix)
    return await _after(context, run.id)


async def cancel(context: Context, *, id: str) -> Plain:
    """Cancel what has not begun, and ask what runs to stop."""
    run = await context.run(id)
    if not await context.store.cancel(run.id):
        raise Refused(f"run {run.id} is {run.status} already")
    return await _after(context, run.id)


async def approve(context: Context, *, id: str, approved: bool = True, comment: str = "") -> Plain:
    """Answer a run that waits for a person."""
    run = await context.run(id)
    answer = {"approved": approved, "comment": comment, "by": context.principal.who}
    # a run that waits for a sub-run must not take this for the sub-run's answer
    if run.waiting_for != APPROVAL or not await context.store.answer(run.id, answer):
        raise Refused(f"run {run.id} does not wait for an answer: it is {run.status}")
    return await _after(context, run.id)


async def list_dead(context: Context, *, where: str = "", cursor: str = "", limit: int = 50) -> Plain:
    """Dead letters, newest first: runs whose tries are used up, and events that the store refused."""
    if where:
        known = Where(where, DEAD_FIELDS)
        read, see = partial(list_dead, context), visible(context, "trigger")
        return await filter_page(read, known, {}, (), see, cursor, bounded(limit))
    found = await context.store.dead(before=letter_after(cursor), limit=bounded(limit))
    return {"items": [dead_row(letter, context.feed_label) for letter in found.items], "next": to_cursor(found.next)}


async def retry_dead(context: Context, *, id: str, latest: bool = False, same: bool = False) -> Plain:
    """Retry a dead run: with the current workflow (`latest`), the one it began with (`same`), or whichever can work.

    The answer has the revision that it uses, the one it began with and the current one, and why it was chosen.
    """
    _refuse_both(latest, same)
    run = await context.store.run(id)
    if run is None:
        raise NotFound(
            f"no dead run is called {id}",
            fix="An event that the store refused can only be dropped. See: harken dead list",
        )
    current = context.workflows().get(run.workflow)
    uses_current, why = (latest, "asked") if latest or same else _choose(run, current)
    tried = await retry(context, id=run.id, latest=uses_current)
    used = current.rev if uses_current and current else run.workflow_rev
    revisions = {"workflow_rev": used, "began_with": run.workflow_rev, "current_rev": current.rev if current else None}
    return tried | revisions | {"chosen_because": why}


def _choose(run: Run, current: Workflow | None) -> tuple[bool, str]:
    """Whether to retry with the current workflow instead of the one it began with, and why."""
    if current is None:
        return False, "not_configured"
    if current.rev == run.workflow_rev:
        return False, "unchanged"
    failed = [record for record in run.journal if record.status == "failed"]
    if failed and (not failed[-1].code or failed[-1].code in PASSING):
        return False, "may_work"
    if any(record.status == "ok" and record.action not in COMPUTING for record in run.journal):
        # the current workflow begins at its first step, and what was sent would be sent again
        return False, "steps_done"
    return True, "cannot_work"


def _refuse_both(latest: bool, same: bool) -> None:
    if latest and same:
        raise Misconfigured("latest and same exclude each other", fix="Use one of them")


async def retry_all_dead(context: Context, *, trigger: str = "", latest: bool = False, same: bool = False) -> Plain:
    """Retry all dead runs, or those of one trigger; those that cannot be retried are in `refused`."""
    _refuse_both(latest, same)
    if trigger:
        await context.trigger(trigger)
    retried: list[Plain] = []
    refused: list[Plain] = []
    for id in await _dead_runs(context, trigger):
        try:
            retried.append(await retry_dead(context, id=id, latest=latest, same=same))
        except (NotFound, Refused, Misconfigured) as error:
            refused.append({"id": id, "reason": error.message, "fix": error.fix})
    return {"retried": len(retried), "items": retried, "refused": refused}


async def _dead_runs(context: Context, trigger: str) -> list[str]:
    """The ids, oldest first: deliveries keep their order."""
    page = await context.store.dead(limit=MOST)
    letters = list(page.items)
    while page.next is not None:
        page = await context.store.dead(before=page.next, limit=MOST)
        letters += page.items
    runs = [letter for letter in letters if letter.what == "run" and trigger in ("", letter.trigger)]
    return [letter.id for letter in reversed(runs)]


async def drop_dead_letter(context: Context, *, id: str) -> Plain:
    """Drop a dead letter for good. A unique beginning of a run's id is enough."""
    run = await context.store.run(id)
    whole = run.id if run is not None and run.status == "dead" else id
    if not await context.store.drop_dead_letter(whole):
        raise NotFound(f"no dead letter is called {id}", fix="See: harken dead list")
    return {"id": whole, "dropped": True}


async def _after(context: Context, run_id: str) -> Plain:
    context.nudge()
    return run_row(await context.run(run_id))


def micros(moment: datetime) -> int:
    return round((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1_000_000)
