"""Reruns: a new run in the place of one that is over, with other input, on the old or on the current revision."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from harken.errors import Refused
from harken.operate.context import Context
from harken.operate.idempotency import new_id
from harken.operate.rows import Plain, run_detail
from harken.runs import FINAL, Run
from harken.store import NewRun

__all__ = ["rerun"]

TRIES = 3


async def rerun(context: Context, *, id: str, input: Mapping[str, Any] | None = None, latest: bool = False) -> Plain:
    """Start a new run from the first step, with some fields of its input replaced; the run that it repeats stays.

    It uses the revision that the run began with, or with `latest` the current one; the answer names both."""
    run = await context.run(id)
    if run.status not in FINAL:
        raise Refused(f"run {run.id} is {run.status}", fix=f"Cancel it first: harken runs cancel {run.id[:12]}")
    current = context.workflows().get(run.workflow)
    revision = context.workflow(run.workflow).rev if latest else run.workflow_rev
    trigger = context.triggers().get(run.trigger)
    again = NewRun(
        trigger=run.trigger,
        workflow=run.workflow,
        workflow_rev=revision,
        id_key=f"rerun:{new_id(run.id).hex}",
        input=await _input(context, run, input or {}),
        event_ids=run.event_ids,
        replay_of=run.id,
        max_attempts=trigger.max_attempts if trigger else TRIES,
        watched=bool(trigger and trigger.routes),
    )
    started = await context.store.start(again)
    context.nudge()
    revisions = {"began_with": run.workflow_rev, "current_rev": current.rev if current else None}
    return run_detail(await context.run(started)) | revisions


async def _input(context: Context, run: Run, changes: Mapping[str, Any]) -> bytes:
    """The run's input with these fields replaced; empty if it took its event as it is, and still does."""
    if run.input is None and not changes:
        return b""
    given = run.input
    if given is None:
        events = await context.store.events_by_id(run.event_ids)
        if not events:
            raise Refused(
                f"the event of run {run.id} is no longer stored", fix="Start its workflow: harken workflows run"
            )
        given = events[-1].data
    if changes and not isinstance(given, Mapping):
        raise Refused(f"the input of run {run.id} has no fields")
    return msgspec.json.encode({**given, **changes} if changes else given)
