"""The workflow step: start another workflow as a run of its own, and wait for its end unless `wait: false`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import msgspec
from pydantic import Field

from harken.errors import NotFound, Refused
from harken.run.compiler import Compiler, Strict, Use
from harken.run.control_flow_exceptions import Parked
from harken.run.execute import Frame
from harken.run.plan import CompiledAct, DetailedOutput, StepKind
from harken.run.retry import retry_store
from harken.runs import FINAL, Park, Run
from harken.store import NewRun

__all__ = ["WORKFLOW"]

LOOK_AGAIN = timedelta(seconds=60)
"""A sub-run wakes its parent when it ends. If a crash prevents that, the parent looks after this time."""


class WorkflowBlock(Strict):
    name: str = Field(alias="workflow")
    inputs: dict[str, Any] = Field(default_factory=dict)
    wait: bool = True


def _workflow(params: WorkflowBlock, compiler: Compiler) -> CompiledAct:
    compiler.uses.add(Use("workflow", params.name))
    name, inputs = compiler.value(params.name, "workflow"), compiler.value(params.inputs, "inputs")

    async def act(frame: Frame) -> DetailedOutput:
        wanted, given = str(name(frame.names)), inputs(frame.names)
        frame.input = {"workflow": wanted, "inputs": given}
        child = _started_run(frame) or await _start(frame, wanted, given, params.wait)
        if not params.wait:
            return DetailedOutput(None, {"run": child})
        store = frame.execution.store
        run = await retry_store(lambda: store.run(child), frame.execution.clock)
        if run is None or run.status not in FINAL:
            until = frame.execution.clock.now() + LOOK_AGAIN
            raise Parked(Park(until=until, waiting_for=f"run:{child}"))
        return _response(run)

    return CompiledAct(act=act)


def _started_run(frame: Frame) -> str | None:
    earlier = frame.earlier
    if earlier is None or earlier.status != "waiting" or not isinstance(earlier.output, Mapping):
        return None
    child = earlier.output.get("run")
    return child if isinstance(child, str) else None


async def _start(frame: Frame, name: str, inputs: Any, wait: bool) -> str:
    execution, claimed = frame.execution, frame.execution.claimed
    rev = frame.environment.workflow_rev(name)
    if rev is None:
        raise NotFound(f"there is no workflow {name!r}", fix="See: harken workflows list")
    new = NewRun(
        trigger=claimed.trigger,
        workflow_rev=rev,
        workflow=name,
        id_key=frame.key,
        input=msgspec.json.encode(frame.environment.redact(inputs)),
        event_ids=tuple(event.id for event in claimed.events),
        parent=claimed.id if wait else "",
        max_attempts=claimed.max_attempts,
    )
    # journaled with our token first, because a worker that lost the run must not start anything; `start` then returns
    # the id of the run that exists already
    await execution.journal.write([frame.waiting_record({"workflow": name})], start=[new])
    child = await retry_store(lambda: execution.store.start(new), execution.clock)
    execution.journal.add(frame.waiting_record({"workflow": name, "run": child}), pure=True)
    return child


def _response(run: Run) -> DetailedOutput:
    if run.status != "done":
        raise Refused(f"sub-run {run.id[:8]} of {run.workflow} is {run.status}: {run.error}".rstrip(": "))
    return DetailedOutput(run.output, {"run": run.id})


WORKFLOW = StepKind(name="workflow", params=WorkflowBlock, build=_workflow, detailed=True)
