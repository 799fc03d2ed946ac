"""`harken mcp`: the tools of one agent, for a program that starts us and talks over stdio."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from harken.cli.invocation import Session, command
from harken.cli.output import print_json

__all__ = ["mcp_command"]


@command(None, "mcp")
@click.option("--agent", default="", help="Whose tools these are; needed when there is more than one agent.")
@click.option("--schemas", is_flag=True, help="Print the tools in the shape of OpenAI's API instead.")
def mcp_command(session: Session, agent: str, schemas: bool) -> None:
    """Serve the tools of an agent over stdio (Model Context Protocol), or print their schemas.

    An MCP client starts this command; it needs a running controller. The agent is set here: no tool can choose another.
    """
    if schemas:
        _print_schemas(session, agent)
        return
    from harken.mcp import load_server
    from harken.operate.agent_tools import Tools

    # what would fail at every call is better said before the first
    found = session.needs_controller().call("tools.list", {**_named(agent), "ask": False})
    asyncio.run(load_server().serve_stdio(Tools(_Remote(session).operate, str(found["agent"]))))


def _named(agent: str) -> dict[str, str]:
    return {"agent": agent} if agent else {}


def _print_schemas(session: Session, agent: str) -> None:
    answer = session.call("tools.schemas", **_named(agent))
    print_json(answer["tools"])
    for note in answer["notes"]:
        click.echo(note, err=True)


class _Remote:
    """Asks the controller that runs at that moment: one that was restarted may listen elsewhere."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def operate(self, operation: str, **params: Any) -> Any:
        return await asyncio.to_thread(self._call, operation, params)

    def _call(self, operation: str, params: dict[str, Any]) -> Any:
        return self._session.needs_controller().call(operation, params)
