"""/mcp: the agent's name comes from the path or a header, so that no tool argument can change it.

Where there is one agent only, it need not be named.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.datastructures import Headers, QueryParams
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from harken.errors import Malformed
from harken.mcp import load_server
from harken.operate.agent_tools import Tools, known_agent, only_agent
from harken.operate.operator import Operator
from harken.operate.principal import caller_of

if TYPE_CHECKING:
    from harken.operate.output_rows import Plain

__all__ = ["AGENT_HEADER", "PREFIX", "McpEndpoint"]

PREFIX = "/mcp"
AGENT_HEADER = "x-harken-agent"


class McpEndpoint:
    """An ASGI application for `/mcp/AGENT`, and for `/mcp` with a header; the library is loaded by the first call."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator
        self._server: Any = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        caller, loaded = caller_of(scope), self._operator.loaded
        agent = _agent(scope) or caller.owner or only_agent(loaded)
        caller.require_agent(agent)
        known_agent(loaded, agent)
        if scope["method"] != "POST":
            # there are no sessions, so there is nothing to listen to and nothing to end
            raise HTTPException(405, headers={"Allow": "POST"})
        if self._server is None:
            # importing the library takes a second: in a thread, so that webhooks do not wait
            self._server = await asyncio.to_thread(load_server)
        tools = Tools(_Calls(self._operator.acting_as(caller)).operate, agent)
        await self._server.answer(tools, scope, receive, send)


class _Calls:
    """Operations as one caller may use them, with answers that a model may see."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator

    async def operate(self, operation: str, **params: Any) -> Plain:
        answer = msgspec.json.encode(await self._operator.call(operation, **params))
        found: Plain = msgspec.json.decode(self._operator.discreet(answer))
        return found


def _agent(scope: Scope) -> str:
    """The agent that the caller names in the path, query or header, empty for none. If several do, they must agree."""
    addressed = str(scope["path"]).removeprefix(PREFIX).removeprefix("/")
    asked = QueryParams(scope["query_string"]).getlist("agent")
    named = Headers(scope=scope).getlist(AGENT_HEADER)
    for way, names in (("?agent=", asked), (AGENT_HEADER, named)):
        # an empty name is that of a variable which is not set: nobody meant the only agent
        if len(names) > 1 or "" in names:
            raise Malformed(f"{way} is {'empty' if len(names) == 1 else 'given twice'}", fix="Name one agent, once")
    found = {name for name in (addressed, *asked, *named) if name}
    if len(found) > 1:
        raise Malformed("the address and the header name different agents", fix=f"Leave {AGENT_HEADER} away")
    return found.pop() if found else ""
