"""What an agent may do: operate its own jobs, and use what the services of these jobs offer to agents.

Whose tools they are is said by whoever opens the door, never by an argument of a tool.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

import msgspec
from pydantic import BaseModel, ValidationError

from harken.errors import Malformed, NeedsAttention, NotFound
from harken.http.redact import scrub
from harken.operate.context import Desk
from harken.operate.job_tools import JOB_TOOLS, Hints
from harken.operate.offers import Offer, known_agent, named_offer, offers, only_agent
from harken.operate.queries import asked
from harken.operate.rows import Plain, plain
from harken.source import Call

if TYPE_CHECKING:
    from harken.config.loaded import Loaded

__all__ = ["Tools", "call", "listed", "schemas"]

Model = TypeVar("Model", bound=BaseModel)

PATIENCE_SECONDS = 120.0
MOST_BYTES = 1_000_000
LONGEST_NAME = 60


class Tools:
    """The tools of one agent, for a door. `operate` does an operation by its name, here or in the controller."""

    def __init__(self, operate: Callable[..., Awaitable[Plain]], agent: str) -> None:
        if not agent:
            # to the operations, nobody in particular is the operator
            raise Malformed("an agent has to be named", fix="Say whose tools these are")
        self._operate = operate
        self.agent = agent

    async def list(self) -> list[Plain]:
        items: list[Plain] = (await self._operate("tools.list", agent=self.agent))["items"]
        return items

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """What the tool answers. Raise HarkenError, in words that a model may read."""
        tool = JOB_TOOLS.get(name)
        if tool is None:
            given = {"agent": self.agent, "name": name, "arguments": dict(arguments)}
            return (await self._operate("tools.call", **given))["result"]
        params = _fitting(tool.params, arguments, name).model_dump(exclude={"confirm"})
        return await self._operate(tool.operation, **params, agent=self.agent)


async def listed(desk: Desk, *, agent: str = "", ask: bool = True) -> Plain:
    """Every tool of the agent; `notes` says whose could not be found out. Programs are asked unless `ask` is False."""
    agent = agent or only_agent(desk.loaded)
    loaded = known_agent(desk.loaded, agent)
    own = [
        _row(name, tool.summary, tool.params, tool.hints) | {"result": tool.result.model_json_schema()}
        for name, tool in JOB_TOOLS.items()
    ]
    found, notes = await offers(loaded, agent, desk.running().lend, ask=ask)
    rows = [_row(name, offer.summary, offer.tool.params, _hints(offer)) for name, offer in found.items()]
    return {"agent": agent, "items": own + rows, "notes": notes}


async def schemas(desk: Desk, *, agent: str = "") -> Plain:
    """The same tools in the shape that OpenAI's API and its many likenesses take."""
    answer = await listed(desk, agent=agent)
    return {"tools": [_function(row) for row in answer["items"]], "notes": answer["notes"]}


async def call(desk: Desk, *, agent: str = "", name: str = "", arguments: Mapping[str, Any] | None = None) -> Plain:
    """Use a service's tool with the account that the agent is bound to; its jobs have operations of their own."""
    agent = agent or only_agent(desk.loaded)
    loaded = known_agent(desk.loaded, agent)
    offer = await named_offer(loaded, agent, name, desk.running().lend)
    if offer is None:
        raise NotFound(f"there is no tool {name[:LONGEST_NAME]}", fix="List the tools to see which there are")
    params = _fitting(offer.tool.params, arguments or {}, name)
    use = Call(params=params, account=offer.account.model, host=offer.host, idempotency_key=uuid4().hex)
    answer = await asked(offer.tool.run(use), loaded, name, offer.account, seconds=PATIENCE_SECONDS)
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
    # a service says whether its tool writes, not whether it can be undone: so it is told as one that cannot
    writes = offer.tool.writes
    return Hints(reads=not writes, destroys=writes, repeatable=not writes)


def _function(row: Plain) -> Plain:
    shown = {name: row[name] for name in ("name", "description", "parameters")}
    return {"type": "function", "function": shown}


def _fitting(model: type[Model], arguments: Mapping[str, Any], name: str) -> Model:
    try:
        return model.model_validate(dict(arguments))
    except ValidationError as error:
        # what was given is not repeated: it may be long, and somebody else's
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
