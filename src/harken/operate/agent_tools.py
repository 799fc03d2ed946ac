"""What an agent may do: operate its own jobs, and use what the services of these jobs offer to agents.

The agent's name comes from the connection (address, header or command line), never from a tool's arguments.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from harken.errors import HarkenError, Malformed, NeedsAttention, NotFound
from harken.feed import Feed
from harken.http.known_secret_redaction import scrub
from harken.operate.context import Context
from harken.operate.idempotency import new_id
from harken.operate.integrations import ask_service
from harken.operate.output_rows import Plain, plain
from harken.source import Call, Host, Plugin, Tool
from harken.suggest import suggest_fix

if TYPE_CHECKING:
    from harken.config.loaded import Account, Loaded
    from harken.config.pollers.schema import Job

__all__ = [
    "JOB_TOOLS",
    "Hints",
    "JobTool",
    "Offer",
    "Tools",
    "call",
    "known_agent",
    "list_tools",
    "named_offer",
    "offers",
    "schemas",
]


@dataclass(frozen=True, kw_only=True)
class Hints:
    """What a client may tell its user before the call. `outside`: the tool reaches beyond Harken."""

    reads: bool
    destroys: bool = False
    repeatable: bool = False
    outside: bool = True


@dataclass(frozen=True, kw_only=True)
class JobTool:
    """A tool that calls one of our operations on behalf of the agent."""

    operation: str
    summary: str
    params: type[BaseModel]
    result: type[BaseModel]
    hints: Hints


_LOOKS = Hints(reads=True, repeatable=True, outside=False)

_SETS = Hints(reads=False, repeatable=True, outside=False)


class NoParams(BaseModel):
    """The tool takes no parameters."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class JobParams(NoParams):
    """Which job."""

    id: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,119}$", description="the id of a job, from pollers_list")


class ResetParams(JobParams):
    """Which job, with a confirmation."""

    confirm: Literal[True] = Field(description="must be true: what the job has read is forgotten, and not recoverable")


class JobRow(BaseModel):
    """A job and how it is doing. Times are milliseconds since 1970."""

    id: str
    kind: str | None = Field(description="what it watches, such as gmail or rss")
    agent: str | None
    paused: bool
    last_run_at_ms: int | None
    next_run_at_ms: int | None
    last_status: Literal["ok", "transient", "permanent", "skipped"] | None
    last_error: str | None
    consecutive_errors: int
    items_seen_total: int
    items_dispatched_total: int


class JobRows(BaseModel):
    """The jobs of this agent."""

    items: list[JobRow]


class JobDetail(JobRow):
    """A job with all its settings, and the reason if it does not run."""

    paused_reason: str | None
    breaker: str
    breaker_until_ms: int | None
    alert_cooldown_until_ms: int | None
    settings: dict[str, Any] | None


class JobRead(BaseModel):
    """What a read found: how many items it saw, and how many of them are new."""

    id: str
    result: str
    seen: int
    new: int
    error: str | None


class ExplainParams(NoParams):
    """What is asked about."""

    name: str = Field(min_length=1, max_length=200, description="the id of a job, from pollers_list, or your trigger")
    key: str = Field(
        "",
        max_length=2_000,
        description="the key or subject of an item, #ID of an event, or a time such as 2026-11-19T14:05; empty for all",
    )


class Explained(BaseModel):
    """What happened, in words."""

    trigger: str
    key: str
    stage: str = Field(description="how far it got, such as read, match, run")
    outcome: str
    sentence: str
    details: dict[str, Any]
    advice: list[str] = Field(description="commands for a person that help")


class PlanParams(NoParams):
    """What to do, and to which runs."""

    action: Literal["retry", "cancel", "release", "drop"] = Field(description="what a person is to do to them")
    where: str = Field(
        min_length=1,
        max_length=2_000,
        description="a filter in CEL over the fields of a run: status, trigger, workflow, error, attempt, created_at; "
        'as status == "failed" && error.contains("timeout")',
    )
    since: str = Field("", max_length=40, description="only since then: 2h, or a time; not for drop")


class PlanRow(BaseModel):
    """A plan that nobody has executed yet."""

    id: str
    action: str
    count: int = Field(description="to how many it would be done")
    samples: list[dict[str, Any]]
    ids: list[str]
    expires_at: str


JOB_TOOLS: Mapping[str, JobTool] = {
    "pollers_list": JobTool(
        operation="pollers.list",
        summary="List your poller jobs: whether each runs, when it was and will be read, its errors and counts.",
        params=NoParams,
        result=JobRows,
        hints=_LOOKS,
    ),
    "pollers_show": JobTool(
        operation="pollers.show",
        summary="Show one of your poller jobs with its settings, and why it stands still if it does.",
        params=JobParams,
        result=JobDetail,
        hints=_LOOKS,
    ),
    "pollers_run": JobTool(
        operation="pollers.run",
        summary="Read one of your poller jobs now instead of at its next time. What is new is delivered as always.",
        params=JobParams,
        result=JobRead,
        hints=Hints(reads=False),
    ),
    "pollers_pause": JobTool(
        operation="pollers.pause",
        summary="Pause one of your poller jobs: it reads and delivers nothing until it is resumed.",
        params=JobParams,
        result=JobRow,
        hints=_SETS,
    ),
    "pollers_resume": JobTool(
        operation="pollers.resume",
        summary="Resume one of your poller jobs: its errors are forgotten, and it reads again.",
        params=JobParams,
        result=JobRow,
        hints=_SETS,
    ),
    "pollers_reset": JobTool(
        operation="pollers.reset",
        summary="Make one of your poller jobs forget all that it has read and begin at now. Cannot be undone.",
        params=ResetParams,
        result=JobRow,
        hints=Hints(reads=False, destroys=True, repeatable=True, outside=False),
    ),
    "explain": JobTool(
        operation="triggers.explain",
        summary="Why an item started something or did not: what was read, seen before, filtered by which clause with "
        "which values, held, run or dead; also of an item that was never seen, and of a time when nothing happened.",
        params=ExplainParams,
        result=Explained,
        hints=_LOOKS,
    ),
    "bulk_plan": JobTool(
        operation="bulk.plan",
        summary="Plan to retry, cancel, release or drop many of your runs. Nothing is done: a person looks at the plan "
        "and executes it with: harken bulk execute ID.",
        params=PlanParams,
        result=PlanRow,
        hints=Hints(reads=False, outside=False),
    ),
}

# what the APIs of models take as the name of a tool
LONGEST = 64

_OTHER = re.compile(r"[^A-Za-z0-9_-]")

_MARK = 8

SERVICE_PATIENCE_SECONDS = 10.0

AT_ONCE = 4


@dataclass(frozen=True, kw_only=True)
class Offer:
    """A service's tool together with the account that it uses."""

    tool: Tool
    summary: str
    account: Account
    host: Host


@dataclass(frozen=True, kw_only=True)
class Reading:
    """A feed that one of the agent's jobs reads, with its plugin and account."""

    job: Job
    feed: Feed
    plugin: Plugin
    account: Account


Lend = Callable[["Account"], Host]


def only_agent(loaded: Loaded | None) -> str:
    """The agent to assume when none is named: the only one of the configuration, else none."""
    known = _agents(loaded)
    if len(known) != 1:
        there = f"There are: {', '.join(sorted(known))}" if known else "No job and no agent is configured"
        raise NotFound("no agent is named", fix=there)
    return known.pop()


def _agents(loaded: Loaded | None) -> set[str]:
    return {*loaded.agents, *(job.agent for job in loaded.jobs.values())} if loaded else set()


def known_agent(loaded: Loaded | None, agent: str) -> Loaded:
    """Return the configuration if it knows this agent; raise NotFound otherwise."""
    if not agent:
        raise Malformed("an agent has to be named", fix="Say whose tools these are")
    known = _agents(loaded)
    if loaded is None or agent not in known:
        raise NotFound(f"there is no agent {agent[:LONGEST]}", fix=suggest_fix(agent[:LONGEST], known))
    return loaded


async def offers(loaded: Loaded, agent: str, lend: Lend, *, ask: bool = True) -> tuple[dict[str, Offer], list[str]]:
    """Every tool by name, and a note for each exec program that did not list its tools."""
    found = _installed(loaded, agent, lend)
    readings = [reading for reading in _readings(loaded, agent) if reading.plugin.discover] if ask else []
    notes = await _discover(readings, loaded, lend, found)
    return found, notes


async def named_offer(loaded: Loaded, agent: str, name: str, lend: Lend) -> Offer | None:
    """The tool of this name. Only exec programs whose prefix fits are asked, and their failure is raised."""
    found = _installed(loaded, agent, lend)
    if name in found:
        return found[name]
    asking = [
        reading
        for reading in _readings(loaded, agent)
        if reading.plugin.discover and name.startswith(_clean(f"{reading.job.id}_")[: LONGEST - _MARK - 1])
    ]
    notes = await _discover(asking, loaded, lend, found)
    if notes and name not in found:
        raise NotFound(f"there is no tool {name[:LONGEST]}: {notes[0]}", fix="See: harken config check")
    return found.get(name)


def _installed(loaded: Loaded, agent: str, lend: Lend) -> dict[str, Offer]:
    """The tools that service plugins declare, once per kind."""
    found: dict[str, Offer] = {}
    kinds = {reading.plugin.kind: reading for reading in _readings(loaded, agent)}
    for kind, reading in sorted(kinds.items()):
        for verb, tool in reading.plugin.tools.items():
            wanted = verb if verb.startswith(f"{kind}_") else f"{kind}_{verb}"
            offer = Offer(tool=tool, summary=tool.summary, account=reading.account, host=lend(reading.account))
            found[_free(wanted, f"{kind} {verb}", found)] = offer
    return found


async def _discover(readings: list[Reading], loaded: Loaded, lend: Lend, found: dict[str, Offer]) -> list[str]:
    """Ask each exec program for its tools and add them, prefixed with the job's name. Return the failures as notes."""
    few = asyncio.Semaphore(AT_ONCE)
    answers = await asyncio.gather(*(_list_offers(reading, loaded, lend, few) for reading in readings))
    notes: list[str] = []
    for reading, answer in zip(readings, answers, strict=True):
        job = reading.job.id
        if isinstance(answer, HarkenError):
            notes.append(f"the tools of {job} are not known: {answer}")
            continue
        for verb, tool in answer.items():
            summary = f"{tool.summary or verb} (offered by the job {job})"
            offer = Offer(tool=tool, summary=summary, account=reading.account, host=_host(reading, lend))
            found[_free(f"{job}_{verb}", f"{job} {verb}", found)] = offer
    return notes


async def _list_offers(
    reading: Reading, loaded: Loaded, lend: Lend, few: asyncio.Semaphore
) -> Mapping[str, Tool] | HarkenError:
    query, account, discover = loaded.queries.get(reading.feed.name), reading.account, reading.plugin.discover
    assert discover is not None
    async with few:
        try:
            answer = discover(query, account.model, _host(reading, lend))
            return await ask_service(
                answer, loaded, f"the job {reading.job.id}", account, seconds=SERVICE_PATIENCE_SECONDS
            )
        except HarkenError as error:
            return error


def _host(reading: Reading, lend: Lend) -> Host:
    return replace(lend(reading.account), feed=reading.feed.name, identity=reading.feed.identity)


def _readings(loaded: Loaded, agent: str) -> Iterator[Reading]:
    """The feeds of the agent's own jobs whose accounts it may still use."""
    from harken.services import registry

    plugins, feeds = registry(), {feed.name: feed for feed in loaded.feeds}
    for id in sorted(loaded.jobs):
        job = loaded.jobs[id]
        feed, plugin = feeds.get(job.feed), plugins.get(job.kind)
        if job.agent != agent or feed is None or plugin is None:
            continue
        account = loaded.integrations.get(feed.integration)
        if account is not None and _may_use(loaded, agent, account, plugin):
            yield Reading(job=job, feed=feed, plugin=plugin, account=account)


def _may_use(loaded: Loaded, agent: str, account: Account, plugin: Plugin) -> bool:
    """Whether the agent may use the account now: a job edited into an error runs on with its old version."""
    if account.agents is not None and agent not in account.agents:
        return False
    if not loaded.agents:
        return True
    kind = plugin.uses or plugin.kind
    return agent in loaded.agents and loaded.agents[agent].get(kind, kind) == account.name


def _free(wanted: str, whose: str, found: Mapping[str, Offer]) -> str:
    """The name itself, or with a hash suffix when it is too long or taken."""
    name = _clean(wanted)
    if len(name) <= LONGEST and name not in found and name not in JOB_TOOLS:
        return name
    return f"{name[: LONGEST - _MARK - 1]}_{hashlib.sha256(whose.encode()).hexdigest()[:_MARK]}"


def _clean(name: str) -> str:
    return _OTHER.sub("_", name)


Model = TypeVar("Model", bound=BaseModel)

PATIENCE_SECONDS = 120.0

MOST_BYTES = 1_000_000

LONGEST_NAME = 60


class Tools:
    """The tools of one agent as MCP serves them. `operate` calls an operation by name, here or in the controller."""

    def __init__(self, operate: Callable[..., Awaitable[Plain]], agent: str) -> None:
        if not agent:
            # operations take an empty agent as the operator, who may see every job
            raise Malformed("an agent has to be named", fix="Say whose tools these are")
        self._operate = operate
        self.agent = agent

    async def list(self) -> list[Plain]:
        items: list[Plain] = (await self._operate("tools.list", agent=self.agent))["items"]
        return items

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """Call the tool and return its answer. Raises HarkenError with a message that is safe to show to a model."""
        tool = JOB_TOOLS.get(name)
        if tool is None:
            given = {"agent": self.agent, "name": name, "arguments": dict(arguments)}
            return (await self._operate("tools.call", **given))["result"]
        params = _fitting(tool.params, arguments, name).model_dump(exclude={"confirm"})
        return await self._operate(tool.operation, **params, agent=self.agent)


async def list_tools(context: Context, *, agent: str = "", ask: bool = True) -> Plain:
    """Every tool of the agent. `notes` lists exec programs that did not answer; with `ask=False` none is started."""
    agent = agent or only_agent(context.loaded)
    loaded = known_agent(context.loaded, agent)
    own = [
        _row(name, tool.summary, tool.params, tool.hints) | {"result": tool.result.model_json_schema()}
        for name, tool in JOB_TOOLS.items()
    ]
    found, notes = await offers(loaded, agent, context.running().lend, ask=ask)
    rows = [_row(name, offer.summary, offer.tool.params, _hints(offer)) for name, offer in found.items()]
    return {"agent": agent, "items": own + rows, "notes": notes}


async def schemas(context: Context, *, agent: str = "") -> Plain:
    """The same tools as OpenAI-style function schemas."""
    answer = await list_tools(context, agent=agent)
    return {"tools": [_function(row) for row in answer["items"]], "notes": answer["notes"]}


async def call(
    context: Context, *, agent: str = "", name: str = "", arguments: Mapping[str, Any] | None = None
) -> Plain:
    """Call a service's tool with the account that the agent is bound to."""
    agent = agent or only_agent(context.loaded)
    loaded = known_agent(context.loaded, agent)
    offer = await named_offer(loaded, agent, name, context.running().lend)
    if offer is None:
        raise NotFound(f"there is no tool {name[:LONGEST_NAME]}", fix="List the tools to see which there are")
    params = _fitting(offer.tool.params, arguments or {}, name)
    # a service may take another call with the same key for the first, or refuse it
    key = new_id(f"{name}\n{json.dumps(arguments or {}, sort_keys=True)}").hex
    use = Call(params=params, account=offer.account.model, host=offer.host, idempotency_key=key)
    answer = await ask_service(offer.tool.run(use), loaded, name, offer.account, seconds=PATIENCE_SECONDS)
    return {"result": _fit_to_show(answer, name, loaded)}


def _row(name: str, summary: str, params: type[BaseModel], hints: Hints) -> Plain:
    return {
        "name": name,
        "description": summary,
        "parameters": params.model_json_schema(),
        "result": None,
        "hints": {
            "readOnlyHint": hints.reads,
            "destructiveHint": hints.destroys,
            "idempotentHint": hints.repeatable,
            "openWorldHint": hints.outside,
        },
    }


def _hints(offer: Offer) -> Hints:
    # plugins say whether a tool writes, not whether that can be undone: assume it cannot
    writes = offer.tool.writes
    return Hints(reads=not writes, destroys=writes, repeatable=not writes)


def _function(row: Plain) -> Plain:
    shown = {name: row[name] for name in ("name", "description", "parameters")}
    return {"type": "function", "function": shown}


def _fitting(model: type[Model], arguments: Mapping[str, Any], name: str) -> Model:
    try:
        return model.model_validate(dict(arguments))
    except ValidationError as error:
        # do not quote the arguments: they may be long or hold other people's text
        found = error.errors(include_url=False, include_input=False, include_context=False)
        wrong = [f"{'.'.join(map(str, one['loc']))[:LONGEST_NAME] or name}: {one['msg'][:200]}" for one in found[:5]]
        raise Malformed(f"{name} cannot be called like that: {'; '.join(wrong)}") from None


def _fit_to_show(answer: Any, name: str, loaded: Loaded) -> Any:
    try:
        encoded = msgspec.json.encode(answer)
    except (TypeError, ValueError, msgspec.MsgspecError):
        message = f"{name} answered with something that cannot be written down as JSON"
        raise NeedsAttention(message, fix="This is a fault of the service's plugin: tell its author") from None
    if len(encoded) > MOST_BYTES:
        fix = "Ask for less"
        raise Malformed(f"{name} answered with {len(encoded)} bytes; at most {MOST_BYTES} are passed on", fix=fix)
    return scrub(plain(answer), loaded.secrets)
