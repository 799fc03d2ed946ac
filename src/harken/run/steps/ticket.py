"""Steps that write on the ticket that started the run, or ask a question there. Other runs cannot use them.

What a step writes may hold texts of strangers and agents. They mention nobody; what the pipeline itself says may.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Literal, Protocol, runtime_checkable

from harken.errors import Refused
from harken.run.compiler import Compiler, Strict
from harken.run.control_flow_exceptions import Parked, Rejected
from harken.run.execute import Frame
from harken.run.plan import CompiledAct, DetailedOutput, StepKind
from harken.runs import Park

__all__ = ["ANSWER", "TICKET_ASK", "TICKET_COMMENT", "TICKET_PULL_REQUEST", "TICKET_TRANSITION", "TicketActs"]

ANSWER = "answer"
"""What a run waits for that asked a question on its ticket: `{"answer": text, "by": login}`."""


@runtime_checkable
class TicketActs(Protocol):
    """What can be done on the ticket of a run. Each looks at the ticket first, and ends the run if it was withdrawn.

    Executed again for the same step, none of them writes a second time.
    """

    async def comment(self, frame: Frame, text: str) -> Mapping[str, Any]: ...

    async def transition(self, frame: Frame, status: str) -> Mapping[str, Any]: ...

    async def open_pull_request(self, frame: Frame, given: Mapping[str, str]) -> Mapping[str, Any]:
        """Open it, or find the open one of the same branch. What is not given is that of the project or the ticket."""
        ...

    async def ask(self, frame: Frame, question: str) -> Mapping[str, Any]:
        """Write the question on the ticket. Returns where and when, for whoever looks for the answer."""
        ...


_MENTION = re.compile(r"(?<!\w)@(?=[\w<])|\[(?=~)")
_APART = "\u200b"


class CommentBlock(Strict):
    text: str


class TransitionBlock(Strict):
    status: str


class PullRequestBlock(Strict):
    head: str
    base: str = ""
    title: str = ""
    text: str = ""
    repo: str = ""


class AskBlock(Strict):
    question: str
    on_timeout: Literal["fail", "go_on"] = "fail"


def _acts(frame: Frame) -> TicketActs:
    acts: object = frame.environment.bracket(frame.execution.claimed)
    if isinstance(acts, TicketActs):
        return acts
    fix = "Use it in a pipeline of a project, or an action of the service, such as github.comment"
    raise Refused(f"{frame.step.action} works only in runs that a ticket started", fix=fix)


def _without_mentions(value: Any) -> Any:
    """The values of templates, in which what would mention somebody is set apart by a space of no width."""
    if isinstance(value, str):
        return _MENTION.sub(rf"\g<0>{_APART}", value)
    if isinstance(value, Mapping):
        return {name: _without_mentions(inner) for name, inner in value.items()}
    return [_without_mentions(inner) for inner in value] if isinstance(value, list | tuple) else value


def _comment(params: CommentBlock, compiler: Compiler) -> CompiledAct:
    text = compiler.text(params.text, "text")

    async def act(frame: Frame) -> Any:
        frame.input = {"text": text(_without_mentions(frame.names), frame.warnings)}
        return await _acts(frame).comment(frame, frame.input["text"])

    return CompiledAct(act=act)


def _transition(params: TransitionBlock, compiler: Compiler) -> CompiledAct:
    status = compiler.value(params.status, "status")

    async def act(frame: Frame) -> Any:
        frame.input = {"status": str(status(frame.names))}
        return await _acts(frame).transition(frame, frame.input["status"])

    return CompiledAct(act=act)


def _pull_request(params: PullRequestBlock, compiler: Compiler) -> CompiledAct:
    given = {name: compiler.value(getattr(params, name), name) for name in ("head", "base", "repo")}
    texts = {name: compiler.text(getattr(params, name), name) for name in ("title", "text")}

    async def act(frame: Frame) -> Any:
        names = {name: str(value(frame.names)) for name, value in given.items()}
        quiet = _without_mentions(frame.names)
        frame.input = {**names, **{name: text(quiet, frame.warnings) for name, text in texts.items()}}
        return await _acts(frame).open_pull_request(frame, frame.input)

    return CompiledAct(act=act)


def _ask(params: AskBlock, compiler: Compiler) -> CompiledAct:
    question, timeout = compiler.text(params.question, "question"), compiler.timeout

    async def act(frame: Frame) -> DetailedOutput:
        earlier = _earlier(frame)
        if not earlier:
            raise await _question(frame, question(_without_mentions(frame.names), frame.warnings), timeout)
        frame.input = {"question": earlier.get("question")}
        given = frame.execution.claimed.answer
        if isinstance(given, Mapping) and "answer" in given and given.get("step", frame.path) == frame.path:
            return DetailedOutput(given["answer"], {"by": given.get("by", ""), "url": given.get("url", "")})
        until = _moment(earlier.get("until"))
        if until is None or frame.execution.clock.now() < until:
            raise Parked(Park(until=until, waiting_for=ANSWER, prompt=str(earlier.get("question", ""))))
        if params.on_timeout == "fail":
            raise Rejected("nobody answered in time")
        return DetailedOutput("", {"by": "", "url": ""})

    return CompiledAct(act=act)


async def _question(frame: Frame, question: str, timeout: float | None) -> Parked:
    until = frame.execution.clock.now() + timedelta(seconds=timeout) if timeout else None
    asked = await _acts(frame).ask(frame, question)
    noted = {"question": question, "until": until.isoformat() if until else None, **asked}
    # not with the parking: of several branches that park at once, only one record would be written
    frame.execution.journal.add(frame.waiting_record(noted), pure=True)
    return Parked(Park(until=until, waiting_for=ANSWER, prompt=question))


def _earlier(frame: Frame) -> Mapping[str, Any]:
    """What was noted when the question was asked; empty if it was not asked yet."""
    earlier = frame.earlier
    asked = earlier is not None and earlier.status == "waiting" and isinstance(earlier.output, Mapping)
    return earlier.output if asked and earlier is not None else {}


def _moment(text: Any) -> datetime | None:
    return datetime.fromisoformat(text) if isinstance(text, str) else None


TICKET_COMMENT = StepKind(name="ticket.comment", params=CommentBlock, build=_comment, timeout=60.0)
TICKET_TRANSITION = StepKind(name="ticket.transition", params=TransitionBlock, build=_transition, timeout=60.0)
TICKET_PULL_REQUEST = StepKind(name="ticket.pull_request", params=PullRequestBlock, build=_pull_request, timeout=60.0)
TICKET_ASK = StepKind(name="ticket.ask", params=AskBlock, build=_ask, detailed=True, own_timeout=True)
