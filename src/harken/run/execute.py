"""Walk through a plan for one claimed run, from wherever its journal says it stands."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from typing import Any

import msgspec
import structlog

from harken.clock import Clock
from harken.errors import HarkenError, LeaseLost, RetryLater
from harken.event import Event
from harken.run.compiler import given_inputs
from harken.run.environment import Environment
from harken.run.journal import Journal, RunStore, Unwritten
from harken.run.plan import Block, Plan, Shaped, Step
from harken.run.retry import RATE_LIMITED_TRIES, rate_limited_wait, run_wait
from harken.run.scope import Scope, open_scope
from harken.run.signals import Filtered, Halted, Parked, Rejected, Signal
from harken.runs import Again, Claimed, Dead, Failed, Finished, Park, RunOutcome, StepRecord

__all__ = ["Ended", "Execution", "Frame", "execute", "walk"]

log = structlog.get_logger()


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """How a try ended, with what is still to be written. A Park is not the end of the run."""

    outcome: RunOutcome | Park
    rest: Unwritten


class Execution:
    """One try of one run."""

    __slots__ = ("claimed", "clock", "ledger", "plan", "random", "reach", "store")

    def __init__(
        self,
        plan: Plan,
        claimed: Claimed,
        ledger: Journal,
        *,
        store: RunStore,
        reach: Environment,
        clock: Clock,
        random: Random,
    ) -> None:
        self.plan = plan
        self.claimed = claimed
        self.store = store
        self.reach = reach
        self.ledger = ledger
        self.clock = clock
        self.random = random


@dataclass(kw_only=True, slots=True)
class Frame:
    """What an act sees of its place: the names, its path, and the record of an earlier visit that ended in waiting."""

    execution: Execution
    step: Step
    scope: Scope
    path: str
    earlier: StepRecord | None = None
    warnings: list[str] = field(default_factory=list)
    caused: list[Event] = field(default_factory=list)
    tokens: int = 0
    usd: float = 0.0

    @property
    def key(self) -> str:
        """The same for every execution of this step in this run: what makes repeating it harmless elsewhere."""
        return f"{self.execution.claimed.id}:{self.path}"

    @property
    def reach(self) -> Environment:
        return self.execution.reach

    @property
    def names(self) -> Mapping[str, Any]:
        return self.scope.names

    def waiting(self, output: Any) -> StepRecord:
        """The record of a step that will be visited again."""
        now = self.execution.clock.now()
        return StepRecord(path=self.path, action=self.step.action, status="waiting", output=output, started_at=now)


async def execute(execution: Execution) -> Ended:
    """Walk the plan to its end and say what becomes of the run. Raises LeaseLost when the run is no longer ours."""
    plan, claimed, ledger = execution.plan, execution.claimed, execution.ledger
    try:
        scope = open_scope(claimed, given_inputs(plan.inputs, claimed.input))
        await walk(execution, plan.steps, scope, "")
        outcome: RunOutcome | Park = Finished(output=_outputs(plan, scope))
    except Filtered:
        outcome = Finished(filtered=True)
    except Parked as parked:
        outcome = parked.park
        if parked.record is not None:
            ledger.note(parked.record, pure=True)
    except Halted as halted:
        outcome = _after(halted, execution)
    except LeaseLost:
        raise
    except HarkenError as error:
        outcome = Dead(error=str(error))
    return Ended(outcome=_without_tokens(outcome, execution.reach.discreet), rest=ledger.rest())


def _without_tokens(outcome: RunOutcome | Park, discreet: Callable[[Any], Any]) -> RunOutcome | Park:
    if isinstance(outcome, Finished):
        return outcome if outcome.output is None else Finished(output=discreet(outcome.output))
    if isinstance(outcome, Failed | Again | Dead):
        return msgspec.structs.replace(outcome, error=discreet(outcome.error))
    return msgspec.structs.replace(outcome, prompt=discreet(outcome.prompt)) if isinstance(outcome, Park) else outcome


def _outputs(plan: Plan, scope: Scope) -> Any:
    if not plan.outputs:
        return None
    return {name: resolve(scope.names) for name, resolve in plan.outputs.items()}


def _after(halted: Halted, execution: Execution) -> RunOutcome | Park:
    error, claimed, now = halted.error, execution.claimed, execution.clock.now()
    if isinstance(error, Rejected):
        return Failed(error=str(halted))
    if not isinstance(error, RetryLater):
        return Dead(error=str(halted))
    roll = execution.random.random()
    if error.reason == "rate_limited" and halted.tries < RATE_LIMITED_TRIES:
        # being told to wait is not a failed try, so it does not use one up
        wait = rate_limited_wait(halted.tries - 1, error.after, roll)
        return Again(at=now + timedelta(seconds=wait), error=str(halted), counts=False)
    if claimed.attempt >= claimed.max_attempts:
        return Dead(error=str(halted))
    return Again(at=now + timedelta(seconds=run_wait(claimed.attempt, error.after, roll)), error=str(halted))


async def walk(execution: Execution, steps: Block, scope: Scope, prefix: str) -> Any:
    """Take the steps in order and return the last one's response."""
    response = None
    for step in steps:
        response = await _take(execution, step, scope, prefix + step.id)
    return response


async def _take(execution: Execution, step: Step, scope: Scope, path: str) -> Any:
    ledger = execution.ledger
    earlier = ledger.done.get(path)
    if earlier is not None and not step.replays and _is_done(earlier, step):
        return scope.remember(step.id, earlier, step.shaped)
    await ledger.ready_for(pure=step.pure)
    frame = Frame(execution=execution, step=step, scope=scope, path=path, earlier=earlier)
    record = await _visit(frame)
    if earlier is None or not _is_done(earlier, step):
        record = ledger.note(record, pure=step.pure, caused=frame.caused)
    return scope.remember(step.id, record, step.shaped)


def _is_done(record: StepRecord, step: Step) -> bool:
    # a failure that the step was told to live with is as final as a success
    return record.status in ("ok", "skipped") or (record.status == "failed" and step.on_error != "fail")


async def _visit(frame: Frame) -> StepRecord:
    step, started = frame.step, frame.execution.clock.now()
    tries = _earlier_tries(frame.earlier) + 1
    try:
        if step.when is not None and not frame.scope.holds(step.when):
            return StepRecord(path=frame.path, action=step.action, status="skipped", started_at=started)
        output = await (step.act(frame) if step.instant else _act(frame))
    except Filtered as filtered:
        _note_filtered(frame, filtered, started)
        raise
    except (Signal, LeaseLost):
        raise
    except Halted as halted:
        return _failed(frame, halted, halted.error, started, tries)
    except HarkenError as error:
        return _failed(frame, Halted(error, frame.path, tries), error, started, tries)
    except Exception as error:
        log.exception("step_bug", step=frame.path, action=step.action)
        fix = "This is a bug in the action; the log has the traceback"
        told = RetryLater(f"{step.action} raised {type(error).__name__}", fix=fix)
        return _failed(frame, Halted(told, frame.path, tries), told, started, tries)
    return StepRecord(
        path=frame.path,
        action=step.action,
        status="ok",
        attempt=tries,
        output={**output.beside, "response": output.response} if isinstance(output, Shaped) else output,
        warnings=tuple(frame.warnings),
        started_at=started,
        finished_at=frame.execution.clock.now(),
        tokens=frame.tokens,
        usd=frame.usd,
    )


def _note_filtered(frame: Frame, filtered: Filtered, started: datetime) -> None:
    if frame.earlier is not None and _is_done(frame.earlier, frame.step):
        return
    record = StepRecord(
        path=frame.path,
        action=frame.step.action,
        status="ok",
        output={"passed": False, "reason": str(filtered)} if frame.step.action == "filter" else None,
        started_at=started,
        finished_at=frame.execution.clock.now(),
    )
    frame.execution.ledger.note(record, pure=True)


def _earlier_tries(earlier: StepRecord | None) -> int:
    return earlier.attempt if earlier is not None and earlier.status == "failed" else 0


def _failed(frame: Frame, halted: Halted, error: HarkenError, started: datetime, tries: int) -> StepRecord:
    step, execution = frame.step, frame.execution
    output = getattr(error, "output", None)
    if step.on_error == "fallback" and step.fallback is not None:
        output = step.fallback(frame.names)
        output = {"response": output} if step.shaped else output
    record = StepRecord(
        path=frame.path,
        action=step.action,
        status="failed",
        attempt=tries,
        output=output,
        error=str(error) if halted.where == frame.path else str(halted),
        warnings=tuple(frame.warnings),
        started_at=started,
        finished_at=execution.clock.now(),
        tokens=frame.tokens,
        usd=frame.usd,
    )
    if step.on_error == "fail":
        execution.ledger.note(record, pure=step.pure)
        raise halted
    return record


async def _act(frame: Frame) -> Any:
    """Act, and try again as the step's own retry allows. The time limit holds for each attempt, not for its record."""
    step, attempt = frame.step, 0
    while True:
        attempt += 1
        try:
            return await _within(frame)
        except (RetryLater, Halted) as stumble:
            error = stumble.error if isinstance(stumble, Halted) else stumble
            if not isinstance(error, RetryLater):
                raise
            pause = step.retry.wait(attempt, error, frame.execution.random.random())
            if pause is None:
                raise
        await frame.execution.clock.sleep(pause)


async def _within(frame: Frame) -> Any:
    seconds = frame.step.timeout
    if seconds is None:
        return await frame.step.act(frame)
    try:
        async with asyncio.timeout(seconds):
            return await frame.step.act(frame)
    except TimeoutError as error:
        raise RetryLater(f"{frame.step.action} took longer than {seconds:g} s", reason="timeout") from error
