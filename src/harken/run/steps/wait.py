"""Steps that park the run: wait and approve. A parked run holds no worker."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from pydantic import Field, model_validator

from harken.durations import parse_duration
from harken.errors import Misconfigured
from harken.run.compiler import Compiler, Strict
from harken.run.execute import Frame
from harken.run.plan import Kind, Made
from harken.run.scope import Resolve
from harken.run.signals import Parked, Rejected
from harken.runs import Park

__all__ = ["APPROVAL", "APPROVE", "WAIT"]

APPROVAL = "approval"
IN_PLACE = 5.0
"""A wait up to so many seconds is slept through: parking would cost more than the slot."""


class WaitWords(Strict):
    duration: str | None = Field(default=None, alias="for")
    until: str | datetime | None = None

    @model_validator(mode="after")
    def _one_of(self) -> WaitWords:
        if (self.duration is None) == (self.until is None):
            raise ValueError("needs either for: (a duration) or until: (a moment)")
        return self


class ApproveWords(Strict):
    prompt: str
    on_timeout: Literal["approve", "reject"] = "reject"


def _wait(params: WaitWords, builder: Compiler) -> Made:
    duration = builder.value(params.duration, "for")
    until = builder.value(params.until, "until")
    if params.duration is not None and "{{" not in params.duration:
        _checked(builder, params.duration)

    async def act(frame: Frame) -> Any:
        clock = frame.execution.clock
        moment = _asked_before(frame) or (
            _moment(until(frame.names)) if params.until is not None else clock.now() + _span(duration, frame)
        )
        left = (moment - clock.now()).total_seconds()
        if left > IN_PLACE:
            if frame.earlier is None or frame.earlier.status != "waiting":
                frame.execution.ledger.note(frame.waiting({"until": moment.isoformat()}), pure=True)
            raise Parked(Park(until=moment))
        if left > 0:
            await clock.sleep(left)
        return {"until": moment.isoformat()}

    return Made(act=act)


def _checked(builder: Compiler, text: str) -> None:
    try:
        parse_duration(text)
    except Misconfigured as error:
        builder.problem(str(error), "for")


def _span(duration: Resolve, frame: Frame) -> timedelta:
    return timedelta(seconds=parse_duration(duration(frame.names)))


def _moment(value: Any) -> datetime:
    try:
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    except ValueError:
        raise Misconfigured(f"{value!r} is not a moment", fix="Write it like 2026-03-01T09:00:00Z") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _asked_before(frame: Frame) -> datetime | None:
    """The moment that the first visit settled on: a resumed wait does not start over."""
    earlier = frame.earlier
    if earlier is None or earlier.status != "waiting" or not isinstance(earlier.output, Mapping):
        return None
    until = earlier.output.get("until")
    return datetime.fromisoformat(until) if isinstance(until, str) else None


def _approve(params: ApproveWords, builder: Compiler) -> Made:
    prompt, patience = builder.prose(params.prompt, "prompt"), builder.timeout

    async def act(frame: Frame) -> Any:
        answer = _answer(frame)
        if answer is None:
            raise _ask(frame, prompt(frame.names, frame.warnings), patience)
        if not answer["approved"]:
            who, why = answer.get("by"), answer.get("comment")
            raise Rejected(f"rejected{f' by {who}' if who else ''}{f': {why}' if why else ''}", output=answer)
        return answer

    def _answer(frame: Frame) -> Mapping[str, Any] | None:
        # only a question that was asked can be answered: what the run still carries from an earlier one does not count
        if frame.earlier is None or frame.earlier.status != "waiting":
            return None
        given = frame.execution.claimed.answer
        if isinstance(given, Mapping) and "approved" in given and given.get("step", frame.path) == frame.path:
            return {**given, "approved": given["approved"] is True}
        deadline = _asked_before(frame)
        if deadline is not None and frame.execution.clock.now() >= deadline:
            return {"approved": params.on_timeout == "approve", "by": "", "comment": "nobody answered in time"}
        return None

    return Made(act=act)


def _ask(frame: Frame, prompt: str, patience: float | None) -> Parked:
    if frame.earlier is not None and frame.earlier.status == "waiting":
        return Parked(Park(until=_asked_before(frame), waiting_for=APPROVAL, prompt=prompt))
    deadline = frame.execution.clock.now() + timedelta(seconds=patience) if patience else None
    park = Park(until=deadline, waiting_for=APPROVAL, prompt=prompt)
    until = deadline.isoformat() if deadline else None
    return Parked(park, frame.waiting({"prompt": prompt, "until": until}))


WAIT = Kind(name="wait", params=WaitWords, build=_wait, pure=True)
APPROVE = Kind(name="approve", params=ApproveWords, build=_approve, pure=True, own_timeout=True)
