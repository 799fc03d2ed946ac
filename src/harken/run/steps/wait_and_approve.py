"""Steps that park the run: wait and approve. A parked run occupies no slot of a worker."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from pydantic import Field, model_validator

from harken.durations import parse_duration
from harken.errors import Misconfigured
from harken.run.compiler import Compiler, Strict
from harken.run.control_flow_exceptions import Parked, Rejected
from harken.run.execute import Frame
from harken.run.plan import CompiledAct, StepKind
from harken.run.scope import Resolve
from harken.runs import Park

__all__ = ["APPROVAL", "APPROVE", "WAIT"]

APPROVAL = "approval"
MAX_SLEEP = 5.0
"""Shorter waits are slept in the slot, because parking costs more than that."""


class WaitBlock(Strict):
    duration: str | None = Field(default=None, alias="for")
    until: str | datetime | None = None

    @model_validator(mode="after")
    def _one_of(self) -> WaitBlock:
        if (self.duration is None) == (self.until is None):
            raise ValueError("needs either for: (a duration) or until: (a moment)")
        return self


class ApproveBlock(Strict):
    prompt: str
    on_timeout: Literal["approve", "reject"] = "reject"


def _wait(params: WaitBlock, compiler: Compiler) -> CompiledAct:
    duration = compiler.value(params.duration, "for")
    until = compiler.value(params.until, "until")
    if params.duration is not None and "{{" not in params.duration:
        _check_duration(compiler, params.duration)

    async def act(frame: Frame) -> Any:
        clock = frame.execution.clock
        moment = _earlier_until(frame) or (
            _parse_moment(until(frame.names)) if params.until is not None else clock.now() + _span(duration, frame)
        )
        left = (moment - clock.now()).total_seconds()
        if left > MAX_SLEEP:
            if frame.earlier is None or frame.earlier.status != "waiting":
                frame.execution.journal.add(frame.waiting_record({"until": moment.isoformat()}), pure=True)
            raise Parked(Park(until=moment))
        if left > 0:
            await clock.sleep(left)
        return {"until": moment.isoformat()}

    return CompiledAct(act=act)


def _check_duration(compiler: Compiler, text: str) -> None:
    try:
        parse_duration(text)
    except Misconfigured as error:
        compiler.problem(str(error), "for")


def _span(duration: Resolve, frame: Frame) -> timedelta:
    return timedelta(seconds=parse_duration(duration(frame.names)))


def _parse_moment(value: Any) -> datetime:
    try:
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    except ValueError:
        raise Misconfigured(f"{value!r} is not a moment", fix="Write it like 2026-03-01T09:00:00Z") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _earlier_until(frame: Frame) -> datetime | None:
    """The end of the wait as the first execution wrote it: a resumed wait does not start over."""
    earlier = frame.earlier
    if earlier is None or earlier.status != "waiting" or not isinstance(earlier.output, Mapping):
        return None
    until = earlier.output.get("until")
    return datetime.fromisoformat(until) if isinstance(until, str) else None


def _approve(params: ApproveBlock, compiler: Compiler) -> CompiledAct:
    prompt, timeout = compiler.text(params.prompt, "prompt"), compiler.timeout

    async def act(frame: Frame) -> Any:
        answer = _answer(frame)
        if answer is None:
            raise _question(frame, prompt(frame.names, frame.warnings), timeout)
        asked = frame.earlier.output if frame.earlier is not None else None
        frame.input = {"prompt": asked.get("prompt")} if isinstance(asked, Mapping) else None
        if not answer["approved"]:
            who, why = answer.get("by"), answer.get("comment")
            raise Rejected(f"rejected{f' by {who}' if who else ''}{f': {why}' if why else ''}", output=answer)
        return answer

    def _answer(frame: Frame) -> Mapping[str, Any] | None:
        # a run may still carry the answer to an earlier question: it counts only after this one was asked
        if frame.earlier is None or frame.earlier.status != "waiting":
            return None
        given = frame.execution.claimed.answer
        if isinstance(given, Mapping) and "approved" in given and given.get("step", frame.path) == frame.path:
            return {**given, "approved": given["approved"] is True}
        deadline = _earlier_until(frame)
        if deadline is not None and frame.execution.clock.now() >= deadline:
            return {"approved": params.on_timeout == "approve", "by": "", "comment": "nobody answered in time"}
        return None

    return CompiledAct(act=act)


def _question(frame: Frame, prompt: str, timeout: float | None) -> Parked:
    if frame.earlier is not None and frame.earlier.status == "waiting":
        return Parked(Park(until=_earlier_until(frame), waiting_for=APPROVAL, prompt=prompt))
    deadline = frame.execution.clock.now() + timedelta(seconds=timeout) if timeout else None
    park = Park(until=deadline, waiting_for=APPROVAL, prompt=prompt)
    until = deadline.isoformat() if deadline else None
    return Parked(park, frame.waiting_record({"prompt": prompt, "until": until}))


WAIT = StepKind(name="wait", params=WaitBlock, build=_wait, pure=True)
APPROVE = StepKind(name="approve", params=ApproveBlock, build=_approve, pure=True, own_timeout=True)
