"""Two agents under one roof: each with a mailbox, a listing to watch and a program that offers tools."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import yaml
from aiohttp import ClientSession
from mcp import Client
from yarl import URL

from harken.app import App
from harken.clock import SystemClock
from harken.testing.fakes import Listing
from harken.testing.fakes.gmail import FakeGmail
from harken.testing.fakes.telegram import TOKEN, FakeTelegram
from tests.services.programs import POLLERS

FIND = {
    "name": "find orders",
    "description": "Find orders",
    "writes": False,
    "parameters": {
        "type": "object",
        "properties": {"state": {"type": "string"}},
        "required": ["state"],
        "additionalProperties": False,
    },
}


class House:
    """`app` runs on real time; `ana` and `bob` are the mailboxes of these agents. Carl has accounts, and no jobs."""

    def __init__(self, directory: Path) -> None:
        clock = SystemClock()
        self.directory = directory
        self.ana, self.bob = FakeGmail(clock), FakeGmail(clock)
        self.ana.refresh_tokens = {"refresh-token-of-ana-1": next(iter(self.ana.refresh_tokens.values()))}
        self.bob.refresh_tokens = {"refresh-token-of-bob-2": next(iter(self.bob.refresh_tokens.values()))}
        self.listing, self.chat = Listing(clock), FakeTelegram(clock)
        self.tools: list[dict[str, Any]] = [FIND, {"name": "close_order"}]
        self.app: App

    def write(self, *, agents: Mapping[str, Any] | None = None, jobs: list[dict[str, Any]] | None = None) -> None:
        main = {
            "services": {"allow_programs": True},
            "integrations": {
                "telegram": {"kind": "telegram", "token": TOKEN, **self._near(self.chat.url)},
                "google-ana": self._google(self.ana, "ana"),
                "google-bob": self._google(self.bob, "bob"),
            },
            "agents": agents or {name: self._bound(name) for name in ("ana", "bob", "carl")},
            "pollers": {"default_jitter_ms": 0, "jobs": jobs if jobs is not None else self.jobs()},
        }
        self.directory.joinpath("harken.yaml").write_text(yaml.safe_dump(main, sort_keys=False))

    def jobs(self) -> list[dict[str, Any]]:
        where = {"url": f"{self.listing.url}/all", "items_path": "items", "allow_private_networks": True}
        return [
            self.job("mail", "gmail", "ana", query="in:inbox"),
            self.job("news", "webhook_poll", "ana", **where),
            self.job("orders", "exec", "ana", **self._program()),
            self.job("bobs-mail", "gmail", "bob", query="in:inbox"),
            self.job("bobs-news", "webhook_poll", "bob", **where),
        ]

    def job(self, id: str, kind: str, agent: str, **config: Any) -> dict[str, Any]:
        outlet = {"deliver": {"channel": "telegram", "to": "42"}, "message_template": "new {id}"}
        return {
            "id": id,
            "kind": kind,
            "agent": agent,
            "schedule": {"every_secs": 3600},
            "paused_on_boot": kind == "gmail",
            "config": {**config, **outlet},
        }

    def _program(self) -> dict[str, Any]:
        file = self.directory / "orders.jsonl"
        file.touch()
        command = [sys.executable, str(POLLERS / "lines_poller.py")]
        return {"command": command, "config": {"file": str(file), "tools": self.tools}, "timeout": 20}

    def _google(self, mailbox: FakeGmail, agent: str) -> dict[str, Any]:
        (token,) = mailbox.refresh_tokens
        account = {**mailbox.account(), "refresh_token": token, **self._near(mailbox.url)}
        return {"kind": "google", **account, "allow_agents": [agent, "carl"]}

    def _near(self, url: str) -> dict[str, Any]:
        return {"base_url": url, "allow_private_networks": True}

    def _bound(self, agent: str) -> dict[str, str]:
        return {"google": "google-bob" if agent == "bob" else "google-ana", "telegram": "telegram"}

    async def audit(self) -> list[tuple[str, str, str]]:
        """Who did what, newest first."""
        return [(row["who"], row["did"], row["what"]) for row in (await self.app.store.audits(limit=50)).items]

    def agent(self, name: str) -> Client:
        """What the program of this agent talks through."""
        return Client(f"{self.app.url}/mcp/{name}", raise_exceptions=True)

    async def post(self, path: str, body: bytes | dict[str, Any], **headers: str) -> tuple[int, Any]:
        """Send something as it is: the status and the answer."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", **headers}
        address = URL(f"{self.app.url}{path}", encoded=True)
        async with ClientSession() as session, session.post(address, data=data, headers=sent) as reply:
            text = await reply.text()
            return reply.status, json.loads(text) if reply.content_type.endswith("json") else text

    async def call(self, path: str, tool: Any, arguments: Any = None, **headers: str) -> tuple[int, Any]:
        """Call a tool as a client of 2025 does, without asking first whether there is such a tool."""
        params = {"name": tool, "arguments": {} if arguments is None else arguments}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        return await self.post(path, body, **{"MCP-Protocol-Version": "2025-11-25", **headers})


@asynccontextmanager
async def house(directory: Path) -> AsyncIterator[House]:
    """A house whose controller runs."""
    made = House(directory)
    async with AsyncExitStack() as stack:
        for server in (made.ana, made.bob, made.listing, made.chat):
            await stack.enter_async_context(server.serve())
        made.write()
        made.app = await stack.enter_async_context(App.start(directory, port=0))
        assert not made.app.loaded.findings, "\n".join(map(str, made.app.loaded.findings))
        yield made


def words(result: Any) -> str:
    """What an answer says to a model that reads."""
    (block,) = result.content
    return str(block.text)


def refusal(reply: tuple[int, Any]) -> str:
    """The words of a tool that said no."""
    assert reply[1]["result"]["isError"] is True
    return str(reply[1]["result"]["content"][0]["text"])
