"""The agent step: a coding-agent CLI, or any program, that works for minutes or hours in a worktree of its ticket.

Off unless the configuration allows it. What a stranger wrote reaches the agent only as files; see `run/agents/` for
how it is bound to the claim of its run.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import structlog
from pydantic import Field, field_validator

from harken.errors import Deferred, LeaseLost, Misconfigured, NeedsAttention, Refused
from harken.run.agents.environment import agent_variables, is_tracker_token
from harken.run.agents.git_command import check_branch
from harken.run.agents.host_settings import AgentHost
from harken.run.agents.lease import AgentLease
from harken.run.agents.output_capture import AgentOutput
from harken.run.agents.process import start_agent
from harken.run.agents.prune import prune_workspaces
from harken.run.agents.push_fenced_by_claim import Claim, push, take_claim
from harken.run.agents.result import RESULT, AgentResult, read_result
from harken.run.agents.ticket_files import remove_file, write_answers, write_ticket
from harken.run.agents.watchdog import Ended, Limits, supervise
from harken.run.agents.workspace import CodeSource, Workspace, prepare_workspace, save_state, slug
from harken.run.agents.workspace_lock import WorkspaceLock, lock_workspace
from harken.run.compiler import Compiler, Duration, Strict
from harken.run.control_flow_exceptions import FailedForGood, Parked, Rejected
from harken.run.execute import Frame
from harken.run.plan import CompiledAct, DetailedOutput, StepKind
from harken.run.scope import Resolve
from harken.run.steps.wait_and_approve import APPROVAL
from harken.runs import Park, StepRecord

__all__ = ["AGENT"]

TIMEOUT = 3_600.0
_PLACEHOLDER = re.compile(r"\{(session|branch|base|worktree|config)\}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NO_TEMPLATES = (
    "cannot hold templates: what a stranger wrote would become part of a command. "
    "The agent finds the ticket in .harken/ticket.md and .harken/ticket.json"
)

log = structlog.get_logger("harken.run")


class AgentBlock(Strict):
    command: list[str] = Field(min_length=1)
    resume: list[str] | None = Field(default=None, min_length=1)
    repository: str | None = None
    base: str | None = None
    branch: str | None = None
    push: bool = False
    env: dict[str, str] = Field(default_factory=dict)
    inherit: list[str] = Field(default_factory=list)
    stall: Duration = 0.0
    result: str = RESULT

    @field_validator("command", "resume")
    @classmethod
    def _literal_words(cls, value: list[str] | None) -> list[str] | None:
        if any("{{" in word for word in value or ()):
            raise ValueError(_NO_TEMPLATES)
        return value

    @field_validator("command")
    @classmethod
    def _no_session_yet(cls, value: list[str]) -> list[str]:
        if any("{session}" in word for word in value):
            raise ValueError("a first start has no {session}: write the command for later ones as resume:")
        return value

    @field_validator("repository", "base")
    @classmethod
    def _literal(cls, value: str | None) -> str | None:
        if value is not None and ("{{" in value or value.startswith("-") or "::" in value):
            raise ValueError("must be written out: it cannot hold templates, begin with - or name a helper of git")
        if value is not None and re.search(r"://[^/@]*:[^/@]*@", value):
            raise ValueError("holds a password, which the agent could read. Use a credential helper of git, or SSH")
        return value

    @field_validator("env")
    @classmethod
    def _literal_values(cls, value: dict[str, str]) -> dict[str, str]:
        for name, text in value.items():
            _check_variable(name)
            if "{{" in text:
                raise ValueError(f"{name} {_NO_TEMPLATES}")
        return value

    @field_validator("inherit")
    @classmethod
    def _known_names(cls, value: list[str]) -> list[str]:
        for name in value:
            _check_variable(name)
        return value

    @field_validator("result")
    @classmethod
    def _inside(cls, value: str) -> str:
        if not value or any(part in ("", ".", "..") for part in value.split("/")):
            raise ValueError("must be a path inside of the worktree, such as .harken/result.json")
        return value


def _check_variable(name: str) -> None:
    if not _VARIABLE.fullmatch(name) or name.startswith("HARKEN_"):
        raise ValueError(f"{name} cannot be the name of a variable for the agent")
    if is_tracker_token(name):
        raise ValueError(f"{name} is the credential of a tracker: agents get none. Harken pushes and comments for them")


class Progress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the journal says of a step that has not ended: how often it was started and failed, and what it asked.

    `finished` is what an agent handed in that succeeded, and whose branch is still to be pushed."""

    starts: int = 0
    failures: int = 0
    session: str = ""
    branch: str = ""
    questions: tuple[str, ...] = ()
    prompt: str = ""
    error: str = ""
    artifact: str = ""
    finished: dict[str, Any] | None = None


class AgentStopped(Deferred):
    """The agent was stopped by the system. It goes on with the next attempt, which does not count as one more try."""

    def __init__(self, message: str, *, output: Any) -> None:
        super().__init__(message, after=1.0)
        self.output = output


class _Answer(msgspec.Struct, frozen=True):
    text: str
    by: str


class _Failure(Exception):
    """A start that did not succeed."""

    def __init__(self, message: str, output: Mapping[str, Any], fix: str = "") -> None:
        super().__init__(message)
        self.output = output
        self.fix = fix


def _agent(params: AgentBlock, compiler: Compiler) -> CompiledAct:
    branch = compiler.value(params.branch, "branch")
    if params.base:
        compiler.or_problem(lambda: check_branch(params.base or ""), "", "base")
    timeout = compiler.timeout or TIMEOUT

    async def act(frame: Frame) -> DetailedOutput:
        host = frame.environment.agents
        if host is None:
            raise Refused("agent steps are off", fix="Set steps.allow_agents: true in harken.yaml to allow them")
        progress = _progress(frame)
        answer = _answer(frame, progress) if progress.questions else None
        timings = frame.execution.timings
        attempt = _Attempt(frame, host, params, Limits(timeout=timeout, stall=params.stall, grace=timings.agent_grace))
        return await attempt.run(branch, progress, answer)

    return CompiledAct(act=act)


def _progress(frame: Frame) -> Progress:
    """How far the step came in earlier attempts: the newest record of it that tells. Only a waiting one has asked."""
    execution, path = frame.execution, frame.path
    records = [record for record in execution.claimed.journal if record.path == path]
    latest = execution.journal.latest.get(path)
    for record in (*([latest] if latest else []), *reversed(records)):
        if isinstance(record.output, Mapping) and "starts" in record.output:
            found = msgspec.convert(record.output, Progress)
            waits = record.status == "waiting"
            return found if waits else msgspec.structs.replace(found, questions=(), prompt="", failures=0)
    return Progress()


def _answer(frame: Frame, progress: Progress) -> _Answer:
    """What a person answered to the agent's questions, on the ticket or by `approve`. Without it the run waits on."""
    given = frame.execution.claimed.answer
    if not isinstance(given, Mapping) or given.get("step", frame.path) != frame.path:
        given = {}
    by = str(given.get("by") or "")
    if "answer" in given:
        return _Answer(str(given["answer"]), by)
    if "approved" not in given:
        raise Parked(Park(waiting_for=APPROVAL, prompt=progress.prompt))
    text = str(given.get("comment") or "")
    if given["approved"] is not True:
        raise Rejected(f"rejected{f' by {by}' if by else ''}{f': {text}' if text else ''}", output=dict(given))
    return _Answer(text, by)


class _Attempt:
    """One execution of the step: it may start the agent several times, where `retry:` says so."""

    def __init__(self, frame: Frame, host: AgentHost, params: AgentBlock, limits: Limits) -> None:
        execution = frame.execution
        self._frame = frame
        self._host = host
        self._params = params
        self._limits = limits
        self._clock = execution.clock
        self._claim = Claim(run=execution.claimed.id, token=execution.claimed.token)
        self._lease = AgentLease(execution.store, execution.clock, execution.claimed, execution.timings.claim_seconds)
        self._source = self._code()
        self._ticket = _ticket_name(frame)
        self._directory = host.directory / "tickets" / f"{slug(self._ticket)}-{_identity(frame)}"

    def _code(self) -> CodeSource | None:
        params, of_project = self._params, self._host.code_of(self._frame.execution.claimed.trigger)
        if params.repository and (of_project is None or of_project.url != params.repository):
            return CodeSource(url=params.repository, base=params.base or "")
        if of_project is not None and params.base:
            return msgspec.structs.replace(of_project, base=params.base)
        if of_project is None and (params.push or params.base or params.branch):
            raise Misconfigured("there is no repository", fix="Set repository: of the step, or of the project")
        return of_project

    async def run(self, branch: Resolve, progress: Progress, answer: _Answer | None) -> DetailedOutput:
        await self._lease.prove()
        await prune_workspaces(self._host.directory, self._host.keep_seconds)
        patience = self._lease.seconds + self._limits.grace
        lock = await lock_workspace(self._directory, self._claim.run, self._clock, patience)
        try:
            wanted = str(branch(self._frame.names) or f"harken/{slug(self._ticket)}")
            await self._sign_in()
            workspace = await prepare_workspace(self._directory, self._claim.run, self._source, wanted)
            await self._claim_workspace(workspace)
            if progress.finished is not None and workspace.resumed:
                return await self._push(workspace, progress.finished)
            write_ticket(workspace.tree, _mapping(self._frame.names.get("event")))
            if answer is not None:
                write_answers(workspace.tree, progress.questions, answer.text, answer.by)
                progress = msgspec.structs.replace(progress, questions=(), prompt="")
            return await self._start_until_done(workspace, lock, progress)
        finally:
            lock.release()

    async def _sign_in(self) -> None:
        """Get a credential for the repository that is valid now, where it does not last."""
        source = self._source
        if source is not None and source.sign_in is not None:
            self._source = msgspec.structs.replace(source, header=await source.sign_in())

    async def _claim_workspace(self, workspace: Workspace) -> None:
        """Note in the workspace that it is ours now: we hold its lock, and the store has just said so."""
        state = workspace.state
        if state.token != self._claim.token:
            state.token, state.claim = self._claim.token, ""
            save_state(workspace.directory, state)
        if self._params.push:
            assert self._source is not None
            await take_claim(workspace.tree, self._claim, self._source.header)

    async def _start_until_done(self, workspace: Workspace, lock: WorkspaceLock, progress: Progress) -> DetailedOutput:
        retry = self._frame.step.retry
        while True:
            progress = msgspec.structs.replace(progress, starts=progress.starts + 1, branch=workspace.state.branch)
            try:
                return await self._start(workspace, lock, progress)
            except _Failure as failure:
                failures = progress.failures + 1
                if failures >= retry.max_attempts:
                    raise FailedForGood(str(failure), output=failure.output, fix=failure.fix) from None
                progress = msgspec.structs.replace(progress, failures=failures, error=str(failure))
            await self._note(progress, charge=True)
            await self._clock.sleep(retry.backoff * 2 ** (progress.failures - 1))

    async def _start(self, workspace: Workspace, lock: WorkspaceLock, progress: Progress) -> DetailedOutput:
        output = AgentOutput(self._artifact(progress.starts), self._clock)
        progress = msgspec.structs.replace(progress, artifact=str(output.artifact))
        remove_file(workspace.tree, self._params.result)
        # a start that is not in the journal must not happen
        await self._note(progress)
        try:
            ended = await self._supervise(workspace, lock, output, progress)
            await self._refuse_interrupted(ended, progress)
        except BaseException:
            self._close(output, workspace)
            stopped = msgspec.structs.replace(progress, session=output.usage.session or progress.session)
            self._frame.execution.journal.add(self._record(stopped, charge=True), pure=False)
            raise
        self._close(output, workspace)
        if ended.exit.left:
            self._frame.warnings.append(f"{ended.exit.left} processes of the agent could not be ended")
        facts = self._facts(workspace, output, progress, ended)
        result = self._result(workspace, ended, facts)
        if result.status == "waiting" or result.questions:
            raise await self._questions(result, progress, facts)
        facts["response"] = result.summary
        if not self._params.push:
            return _output(facts)
        # a push that fails is tried again without the agent
        await self._note(msgspec.structs.replace(progress, finished=facts), charge=True)
        return await self._push(workspace, facts)

    async def _supervise(
        self, workspace: Workspace, lock: WorkspaceLock, output: AgentOutput, progress: Progress
    ) -> Ended:
        state, frame = workspace.state, self._frame
        session = state.sessions.get(frame.path, "")
        words = self._params.resume if session and self._params.resume else self._params.command
        values = {
            "session": session,
            "branch": state.branch,
            "base": state.base,
            "worktree": str(workspace.tree),
        }
        placeholders = {**values, "config": str(self._host.configuration)}
        command = [_PLACEHOLDER.sub(lambda found: placeholders[found[1]], word) for word in words]
        frame.input = {"command": command, "repository": state.url, "branch": state.branch, "start": progress.starts}
        env = self._variables(workspace, values, progress)

        async def note_session(found: str) -> None:
            self._save_session(workspace, found)
            await self._note(msgspec.structs.replace(progress, session=found))

        until = await self._lease.prove()
        lock.note_until(until)
        process = await start_agent(
            command,
            env=env,
            directory=workspace.tree,
            lock=lock.descriptor,
            until=until,
            margin=self._lease.margin,
            grace=self._limits.grace,
            on_output=output.add,
        )
        log.info("agent.started", run=self._claim.run, step=frame.path, start=progress.starts)
        ended = await supervise(
            process,
            output,
            self._lease,
            self._limits,
            self._clock,
            on_renewed=lock.note_until,
            on_session=note_session,
        )
        log.info("agent.ended", run=self._claim.run, step=frame.path, cause=ended.by or ended.exit.cause)
        return ended

    def _variables(self, workspace: Workspace, values: Mapping[str, str], progress: Progress) -> Mapping[str, str]:
        params, frame = self._params, self._frame
        secrets = self._host.tracker_secrets()
        env, warnings = agent_variables(params.env, params.inherit, secrets, workspace.directory)
        frame.warnings.extend(warning for warning in warnings if warning not in frame.warnings)
        own = {f"HARKEN_{name.upper()}": value for name, value in values.items()}
        start = {"HARKEN_RUN_ID": self._claim.run, "HARKEN_STEP_KEY": frame.key, "HARKEN_START": str(progress.starts)}
        return {**env, **own, **start}

    async def _refuse_interrupted(self, ended: Ended, progress: Progress) -> None:
        """Raise unless the agent ended by its own doing, or because it took too long."""
        if ended.by == "lost" or ended.exit.cause == "claim":
            raise LeaseLost("the claim of the run was not renewed in time, so its agent was ended")
        if ended.by == "cancel":
            await self._lease.wait_for_cancel()
        if ended.exit.cause in ("signal", "parent"):
            stopped = msgspec.to_builtins(progress)
            raise AgentStopped("the agent was stopped by the system; the next attempt goes on", output=stopped)

    def _result(self, workspace: Workspace, ended: Ended, facts: dict[str, Any]) -> AgentResult:
        name, code = self._params.command[0], ended.exit.code
        if ended.exit.cause != "exited":
            if ended.by == "timeout":
                raise _Failure(f"{name} took longer than {self._limits.timeout:g} s", facts)
            if ended.by == "stall":
                raise _Failure(f"{name} wrote nothing for {self._limits.stall:g} s", facts)
            raise _Failure(f"the supervisor of {name} was killed", facts)
        if code != 0:
            fix = f"Its output is in {facts['artifact']}"
            raise _Failure(f"{name} ended with exit code {code}", facts, fix)
        try:
            result, warnings = read_result(workspace.tree, self._params.result)
        except NeedsAttention as error:
            raise _Failure(error.message, facts, error.fix) from None
        self._frame.warnings.extend(warnings)
        facts.update(msgspec.to_builtins(result))
        if result.status == "failed":
            raise _Failure(f"{name} says that it failed{f': {result.summary}' if result.summary else ''}", facts)
        return result

    async def _questions(self, result: AgentResult, progress: Progress, facts: Mapping[str, Any]) -> Parked:
        questions = result.questions or (result.summary or "The agent waits for an answer.",)
        prompt = "\n".join(questions)
        asked = msgspec.structs.replace(progress, questions=questions, prompt=prompt, session=str(facts["session"]))
        # not with the parking: of several branches that park at once, only one record would be written
        await self._note(asked, charge=True)
        return Parked(Park(waiting_for=APPROVAL, prompt=prompt))

    async def _push(self, workspace: Workspace, facts: Mapping[str, Any]) -> DetailedOutput:
        # a run that is cancelled in the last second pushes nothing
        await self._lease.prove()
        await self._sign_in()
        header = self._source.header if self._source else ""
        commit = await push(workspace.tree, workspace.state.branch, self._claim, header)
        return _output({**facts, "commit": commit})

    def _facts(self, workspace: Workspace, output: AgentOutput, progress: Progress, ended: Ended) -> dict[str, Any]:
        state = workspace.state
        return {
            "exit_code": ended.exit.code,
            "branch": state.branch,
            "base": state.base,
            "worktree": str(workspace.tree),
            "session": state.sessions.get(self._frame.path, ""),
            "starts": progress.starts,
            "tokens": output.usage.tokens,
            "usd": output.usage.usd,
            "tail": output.tail,
            "artifact": str(output.artifact),
        }

    def _artifact(self, start: int) -> Path:
        return self._host.directory / "outputs" / self._claim.run / f"{slug(self._frame.path)}-{start}.log"

    def _close(self, output: AgentOutput, workspace: Workspace) -> None:
        """Keep what the agent told of its session and cost, however it ended."""
        output.close()
        frame, usage = self._frame, output.usage
        self._save_session(workspace, usage.session)
        frame.tokens, frame.usd = usage.tokens, usage.usd
        if not usage.usd and frame.environment.models.has_usd_limit(frame.execution.claimed.trigger):
            frame.warnings.append("the agent did not say what it cost, so it counts as 0 dollars")

    def _save_session(self, workspace: Workspace, session: str) -> None:
        state = workspace.state
        if session and session != state.sessions.get(self._frame.path):
            state.sessions[self._frame.path] = session
            save_state(workspace.directory, state)

    def _record(self, progress: Progress, *, charge: bool) -> StepRecord:
        """What the journal keeps of a step that goes on. With `charge`, it has what the last start has cost."""
        frame = self._frame
        record = msgspec.structs.replace(frame.waiting_record(msgspec.to_builtins(progress)), input=frame.input)
        if charge:
            record = msgspec.structs.replace(record, tokens=frame.tokens, usd=frame.usd)
            frame.tokens, frame.usd = 0, 0.0
        return record

    async def _note(self, progress: Progress, *, charge: bool = False) -> None:
        journal = self._frame.execution.journal
        journal.add(self._record(progress, charge=charge), pure=False)
        await journal.flush_effects()


def _output(facts: Mapping[str, Any]) -> DetailedOutput:
    return DetailedOutput(facts["response"], {name: fact for name, fact in facts.items() if name != "response"})


def _ticket_name(frame: Frame) -> str:
    """What people call the ticket, as far as the event tells; else its subject, or the run."""
    events = frame.execution.claimed.events
    if not events:
        return f"run-{frame.execution.claimed.id[:12]}"
    data = events[0].data
    return str(data.get("number") or data.get("ref") or events[0].subject)[:200]


def _identity(frame: Frame) -> str:
    claimed = frame.execution.claimed
    about = f"{claimed.trigger}\0{claimed.events[0].subject}" if claimed.events else claimed.id
    return hashlib.sha256(about.encode()).hexdigest()[:12]


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


AGENT = StepKind(name="agent", params=AgentBlock, build=_agent, own_timeout=True, detailed=True)
