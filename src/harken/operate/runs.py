"""Operations on runs and dead letters."""

from __future__ import annotations

from typing import get_args

from harken.errors import NotFound, Refused
from harken.operate.context import Context
from harken.operate.events import bounded
from harken.operate.rows import Plain, dead_row, page, run_detail, run_row
from harken.runs import RunState
from harken.suggest import suggest_fix

__all__ = ["approve", "cancel", "drop_dead_letter", "list_dead", "list_runs", "retry", "retry_dead", "show"]

APPROVAL = "approval"


async def list_runs(
    context: Context,
    *,
    trigger: str = "",
    status: str = "",
    workflow: str = "",
    before: int | None = None,
    limit: int = 50,
) -> Plain:
    """Runs, newest first."""
    if status and status not in get_args(RunState):
        raise Refused(f"a run is never {status}", fix=suggest_fix(status, get_args(RunState)))
    found = await context.store.runs(
        trigger=trigger, status=status, workflow=workflow, before=before, limit=bounded(limit)
    )
    return page(found, [run_row(run) for run in found.items])


async def show(context: Context, *, id: str) -> Plain:
    """One run with its steps. A unique beginning of the id is enough."""
    return run_detail(await context.run(id))


async def retry(context: Context, *, id: str, latest: bool = False) -> Plain:
    """Retry a run that is over. With `latest` it uses the current workflow and starts at the first step."""
    run = await context.run(id)
    rev = context.workflow(run.workflow).rev if latest else ""
    if not await context.store.retry(run.id, workflow_rev=rev):
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
    answer = {"approved": approved, "comment": comment, "by": "operator"}
    # a run that waits for a sub-run must not take this for the sub-run's answer
    if run.waiting_for != APPROVAL or not await context.store.answer(run.id, answer):
        raise Refused(f"run {run.id} does not wait for an answer: it is {run.status}")
    return await _after(context, run.id)


async def list_dead(context: Context, *, before: int | None = None, limit: int = 50) -> Plain:
    """Dead letters, newest first: runs whose tries are used up, and events that the store refused."""
    found = await context.store.dead(before=before, limit=bounded(limit))
    return page(found, [dead_row(letter) for letter in found.items])


async def retry_dead(context: Context, *, id: str) -> Plain:
    run = await context.store.run(id)
    if run is None:
        raise NotFound(
            f"no dead run is called {id}",
            fix="An event that the store refused can only be dropped. See: harken dead list",
        )
    return await retry(context, id=run.id)


async def drop_dead_letter(context: Context, *, id: str) -> Plain:
    if not await context.store.drop_dead_letter(id):
        raise NotFound(f"no dead letter is called {id}", fix="See: harken dead list")
    return {"id": id, "dropped": True}


async def _after(context: Context, run_id: str) -> Plain:
    context.nudge()
    return run_row(await context.run(run_id))
