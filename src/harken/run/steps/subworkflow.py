"""The workflow step: start another workflow as a run of its own, and wait for it unless told otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import msgspec
from pydantic import Field

from harken.errors import NotFound, Refused
from harken.run.compiler import Compiler, Strict
from harken.run.execute import Frame
from harken.run.plan import Kind, Made, Shaped
from harken.run.retry import patiently
from harken.run.signals import Parked
from harken.runs import FINAL, Park, Run
from harken.store import NewRun

__all__ = ["WORKFLOW"]

LOOK_AGAIN = timedelta(seconds=60)
"""A sub-run wakes its parent; should that be missed (a crash in between), the parent looks for itself."""


class WorkflowWords(Strict):
    name: str = Field(alias="workflow")
    inputs: dict[str, Any] = Field(default_factory=dict)
    wait: bool = True


def _workflow(params: WorkflowWords, builder: Compiler) -> Made:
    name, inputs = builder.value(params.name, "workflow"), builder.value(params.inputs, "inputs")

    async def act(frame: Frame) -> Shaped:
        child = _started(frame) or await _start(frame, str(name(frame.names)), inputs(frame.names), params.wait)
        if not params.wait:
            return Shaped(None, {"run": child})
        store = frame.execution.store
        run = await patiently(lambda: store.run(child), frame.execution.clock)
        if run is None or run.status not in FINAL:
            until = frame.execution.clock.now() + LOOK_AGAIN
            raise Parked(Park(until=until, waiting_for=f"run:{child}"))
        return _response(run)

    return Made(act=act)


def _started(frame: Frame) -> str | None:
    earlier = frame.earlier
    if earlier is None or earlier.status != "waiting" or not isinstance(earlier.output, Mapping):
        return None
    child = earlier.output.get("run")
    return child if isinstance(child, str) else None


async def _start(frame: Frame, name: str, inputs: Any, wait: bool) -> str:
    execution, claimed = frame.execution, frame.execution.claimed
    rev = frame.reach.workflow_rev(name)
    if rev is None:
        raise NotFound(f"there is no workflow {name!r}", fix="See: harken workflows list")
    new = NewRun(
        trigger=claimed.trigger,
        workflow_rev=rev,
        workflow=name,
        id_key=frame.key,
        input=msgspec.json.encode(frame.reach.discreet(inputs)),
        event_ids=tuple(event.id for event in claimed.events),
        parent=claimed.id if wait else "",
        max_attempts=claimed.max_attempts,
    )
    # started under our token first: a worker that lost the run must not start anything; then asked for its id
    await execution.ledger.write([frame.waiting({"workflow": name})], start=[new])
    child = await patiently(lambda: execution.store.start(new), execution.clock)
    execution.ledger.note(frame.waiting({"workflow": name, "run": child}), pure=True)
    return child


def _response(run: Run) -> Shaped:
    if run.status != "done":
        raise Refused(f"sub-run {run.id[:8]} of {run.workflow} is {run.status}: {run.error}".rstrip(": "))
    return Shaped(run.output, {"run": run.id})


WORKFLOW = Kind(name="workflow", params=WorkflowWords, build=_workflow, shaped=True)
