"""Execute the plan of one claimed run, resuming after the steps that its journal has."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from typing import Any

import msgspec
import structlog

from harken.circuit_breaker import error_code
from harken.clock import Clock
from harken.errors import Deferred, HarkenError, LeaseLost, Misconfigured, RetryLater
from harken.event import Event
from harken.run.compiler import fill_inputs
from harken.run.control_flow_exceptions import FailedForGood, Filtered, Halted, Parked, Signal, Withdrawn
from harken.run.journal import Journal, RunStore, Unwritten
from harken.run.plan import Bracket, DetailedOutput, Plan, Step, Steps
from harken.run.retry import RATE_LIMITED_TRIES, rate_limited_wait, run_wait
from harken.run.scope import Scope, open_scope, replace_event
from harken.run.services_given_to_steps import Environment
from harken.run.spans import note_record, run_span, step_span
from harken.runs import Again, Cancelled, Claimed, Dead, Failed, Finished, Park, RunOutcome, StepRecord
from harken.timings import Timings
from harken.tracing import NO_TRACER, Tracer

__all__ = ["Execution", "Frame", "TryResult", "execute", "walk"]

log = structlog.get_logger("harken.run")


@dataclass(frozen=True, kw_only=True, slots=True)
class TryResult:
    """How a try ended, and what is not in the store yet. A Park is not the end of the run."""

    outcome: RunOutcome | Park
    unwritten: Unwritten


class Execution:
    """One try of one run."""

    __slots__ = ("claimed", "clock", "environment", "journal", "plan", "random", "store", "timings", "tracer")

    def __init__(
        self,
        plan: Plan,
        claimed: Claimed,
        journal: Journal,
        *,
        store: RunStore,
        environment: Environment,
        clock: Clock,
        random: Random,
        timings: Timings = Timings(),
        tracer: Tracer = NO_TRACER,
    ) -> None:
        self.plan = plan
        self.claimed = claimed
        self.store = store
        self.environment = environment
        self.journal = journal
        self.clock = clock
        self.random = random
        self.timings = timings
        self.tracer = tracer


@dataclass(kw_only=True, slots=True)
class Frame:
    """What an act can use: the names in scope, its path, and the record of an earlier execution that did not finish.

    An act sets `input` to what a person would want to see of its parameters; the journal redacts and bounds it.
    """

    execution: Execution
    step: Step
    scope: Scope
    path: str
    earlier: StepRecord | None = None
    input: Any = None
    retries: int = 0
    warnings: list[str] = field(default_factory=list)
    caused: list[Event] = field(default_factory=list)
    tokens: int = 0
    usd: float = 0.0

    @property
    def key(self) -> str:
        """Idempotency key: the same each time this step of this run is executed."""
        return f"{self.execution.claimed.id}:{self.path}"

    @property
    def environment(self) -> Environment:
        return self.execution.environment

    @property
    def names(self) -> Mapping[str, Any]:
        return self.scope.names

    def waiting_record(self, output: Any) -> StepRecord:
        """The record of a step that will be executed again when the run resumes."""
        now = self.execution.clock.now()
        return StepRecord(path=self.path, action=self.step.action, status="waiting", output=output, started_at=now)


async def execute(execution: Execution) -> TryResult:
    """Execute the plan and return the outcome of the try. Raises LeaseLost when the run is no longer ours."""
    if not execution.tracer.on:
        return await _execute(execution)
    with run_span(execution.tracer, execution.claimed, execution.plan.name) as span:
        result = await _execute(execution)
        outcome = result.outcome
        span.note(outcome="waiting" if isinstance(outcome, Park) else type(outcome).__name__.lower())
        if isinstance(outcome, (Failed, Again, Dead)):
            span.error = type(outcome).__name__.lower()
        return result


async def _execute(execution: Execution) -> TryResult:
    plan, claimed, journal = execution.plan, execution.claimed, execution.journal
    try:
        scope = open_scope(claimed, fill_inputs(plan.inputs, claimed.input), reads_replay=plan.reads_replay)
        bracket = execution.environment.bracket(claimed)
        if bracket is None:
            await walk(execution, plan.steps, scope, "")
        else:
            _check_names(plan, bracket)
            replace_event(scope, await walk(execution, (bracket.first,), scope, ""))
            await walk(execution, (*plan.steps, bracket.last), scope, "")
        outcome: RunOutcome | Park = Finished(output=_outputs(plan, scope))
    except Filtered:
        outcome = Finished(filtered=True)
    except Withdrawn as withdrawn:
        outcome = Cancelled(reason=str(withdrawn))
    except Parked as parked:
        outcome = parked.park
        if parked.record is not None:
            journal.add(parked.record, pure=True)
    except Halted as halted:
        outcome = _outcome_of_failure(halted, execution)
    except LeaseLost:
        raise
    except HarkenError as error:
        outcome = Dead(error=str(error))
    return TryResult(outcome=_redacted(outcome, execution.environment.redact), unwritten=journal.take_unwritten())


def _check_names(plan: Plan, bracket: Bracket) -> None:
    taken = {bracket.first.id, bracket.last.id} & {step.id for step in plan.steps}
    if taken:
        message = f"the step {min(taken)!r} has the name of one that every run of this trigger has"
        raise Misconfigured(message, fix="Give it another id")


def _redacted(outcome: RunOutcome | Park, redact: Callable[[Any], Any]) -> RunOutcome | Park:
    if isinstance(outcome, Finished):
        return outcome if outcome.output is None else Finished(output=redact(outcome.output))
    if isinstance(outcome, Failed | Again | Dead):
        return msgspec.structs.replace(outcome, error=redact(outcome.error))
    if isinstance(outcome, Cancelled):
        return Cancelled(reason=redact(outcome.reason))
    return msgspec.structs.replace(outcome, prompt=redact(outcome.prompt))


def _outputs(plan: Plan, scope: Scope) -> Any:
    if not plan.outputs:
        return None
    return {name: resolve(scope.names) for name, resolve in plan.outputs.items()}


def _outcome_of_failure(halted: Halted, execution: Execution) -> RunOutcome | Park:
    error, claimed, now = halted.error, execution.claimed, execution.clock.now()
    if isinstance(error, FailedForGood):
        return Failed(error=str(halted))
    if not isinstance(error, RetryLater):
        return Dead(error=str(halted))
    roll = execution.random.random()
    if isinstance(error, Deferred) and error.after is not None:
        # no call was made: waiting for a turn is no try, however often it happens
        return Again(at=now + timedelta(seconds=max(1.0, error.after)), error=str(halted), counts=False)
    if error.reason == "rate_limited" and halted.tries < RATE_LIMITED_TRIES:
        # a rate limit does not count as a failed try
        wait = rate_limited_wait(halted.tries - 1, error.after, roll)
        return Again(at=now + timedelta(seconds=wait), error=str(halted), counts=False)
    if claimed.attempt >= claimed.max_attempts:
        return Dead(error=str(halted))
    return Again(at=now + timedelta(seconds=run_wait(claimed.attempt, error.after, roll)), error=str(halted))


async def walk(execution: Execution, steps: Steps, scope: Scope, prefix: str) -> Any:
    """Execute the steps in order and return the last one's response."""
    response = None
    for step in steps:
        response = await _execute_step(execution, step, scope, prefix + step.id)
    return response


async def _execute_step(execution: Execution, step: Step, scope: Scope, path: str) -> Any:
    journal = execution.journal
    earlier = journal.latest.get(path)
    if earlier is not None and not step.replays and _is_done(earlier, step):
        return scope.add_step(step.id, earlier, step.detailed)
    await journal.prepare_step(pure=step.pure)
    frame = Frame(execution=execution, step=step, scope=scope, path=path, earlier=earlier)
    record = await (_traced_record_of(frame) if execution.tracer.on else _record_of(frame))
    if earlier is None or not _is_done(earlier, step):
        record = journal.add(record, pure=step.pure, caused=frame.caused)
    return scope.add_step(step.id, record, step.detailed)


def _is_done(record: StepRecord, step: Step) -> bool:
    # a failure that `on_error` accepts is as final as a success
    return record.status in ("ok", "skipped") or (record.status == "failed" and step.on_error != "fail")


async def _traced_record_of(frame: Frame) -> StepRecord:
    with step_span(frame.execution.tracer, frame.path, frame.step.action) as span:
        record = await _record_of(frame)
        note_record(span, record)
        return record


async def _record_of(frame: Frame) -> StepRecord:
    """Execute one step and return its record. Raises when the failure or the signal ends more than this step."""
    step, started = frame.step, frame.execution.clock.now()
    tries = _earlier_tries(frame.earlier) + 1
    try:
        if step.when is not None and not frame.scope.holds(step.when):
            return StepRecord(path=frame.path, action=step.action, status="skipped", started_at=started)
        output = await (step.act(frame) if step.instant else _act_with_retries(frame))
    except Filtered as filtered:
        _record_filtered(frame, filtered, started)
        raise
    except Withdrawn as withdrawn:
        _record_withdrawn(frame, withdrawn, started)
        raise
    except (Signal, LeaseLost):
        raise
    except Halted as halted:
        return _record_failure(frame, halted, halted.error, started, tries)
    except HarkenError as error:
        return _record_failure(frame, Halted(error, frame.path, tries), error, started, tries)
    except Exception as error:
        log.exception("step.crashed", step=frame.path, action=step.action)
        fix = "This is a bug in the action; the log has the traceback"
        failure = RetryLater(f"{step.action} raised {type(error).__name__}", fix=fix)
        return _record_failure(frame, Halted(failure, frame.path, tries), failure, started, tries)
    return StepRecord(
        path=frame.path,
        action=step.action,
        status="ok",
        attempt=tries,
        retries=_earlier_retries(frame.earlier) + frame.retries,
        input=frame.input,
        output={**output.details, "response": output.response} if isinstance(output, DetailedOutput) else output,
        warnings=tuple(frame.warnings),
        started_at=started,
        finished_at=frame.execution.clock.now(),
        tokens=frame.tokens,
        usd=frame.usd,
    )


def _record_filtered(frame: Frame, filtered: Filtered, started: datetime) -> None:
    if frame.earlier is not None and _is_done(frame.earlier, frame.step):
        return
    record = StepRecord(
        path=frame.path,
        action=frame.step.action,
        status="ok",
        input=frame.input,
        output={"passed": False, "reason": str(filtered)} if frame.step.action == "filter" else None,
        started_at=started,
        finished_at=frame.execution.clock.now(),
    )
    frame.execution.journal.add(record, pure=True)


def _record_withdrawn(frame: Frame, withdrawn: Withdrawn, started: datetime) -> None:
    """A record that is not final: if a person lets the run go on, this step is executed again."""
    record = StepRecord(
        path=frame.path,
        action=frame.step.action,
        status="failed",
        input=frame.input,
        error=str(withdrawn),
        code="withdrawn",
        started_at=started,
        finished_at=frame.execution.clock.now(),
    )
    frame.execution.journal.add(record, pure=True)


def _earlier_tries(earlier: StepRecord | None) -> int:
    return earlier.attempt if earlier is not None and earlier.status == "failed" else 0


def _earlier_retries(earlier: StepRecord | None) -> int:
    return earlier.retries if earlier is not None and earlier.status == "failed" else 0


def _record_failure(frame: Frame, halted: Halted, error: HarkenError, started: datetime, tries: int) -> StepRecord:
    step, execution = frame.step, frame.execution
    output = getattr(error, "output", None)
    if step.on_error == "fallback" and step.fallback is not None:
        output = step.fallback(frame.names)
        output = {"response": output} if step.detailed else output
    record = StepRecord(
        path=frame.path,
        action=step.action,
        status="failed",
        attempt=tries,
        retries=_earlier_retries(frame.earlier) + frame.retries,
        input=frame.input,
        output=output,
        error=str(error) if halted.where == frame.path else str(halted),
        code=error_code(error),
        warnings=tuple(frame.warnings),
        started_at=started,
        finished_at=execution.clock.now(),
        tokens=frame.tokens,
        usd=frame.usd,
    )
    if step.on_error == "fail":
        execution.journal.add(record, pure=step.pure)
        raise halted
    return record


async def _act_with_retries(frame: Frame) -> Any:
    """Act, and try again as the step's `retry` allows. The timeout applies to each attempt, not to its record."""
    step, attempt = frame.step, 0
    while True:
        attempt += 1
        try:
            return await _act_within_timeout(frame)
        except (RetryLater, Halted) as failure:
            error = failure.error if isinstance(failure, Halted) else failure
            if not isinstance(error, RetryLater):
                raise
            pause = step.retry.wait(attempt, error, frame.execution.random.random())
            if pause is None:
                raise
        frame.retries += 1
        await frame.execution.clock.sleep(pause)


async def _act_within_timeout(frame: Frame) -> Any:
    seconds = frame.step.timeout
    if seconds is None:
        return await frame.step.act(frame)
    try:
        async with asyncio.timeout(seconds):
            return await frame.step.act(frame)
    except TimeoutError as error:
        raise RetryLater(f"{frame.step.action} took longer than {seconds:g} s", reason="timeout") from error
