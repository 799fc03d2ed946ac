"""Judged by others: the protocol's own conformance suite, and its inspector."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.downloads.node_programs import command
from tests.mcp.world import House

pytestmark = [pytest.mark.process, pytest.mark.worker_group("mcp-node"), pytest.mark.timeout(700)]

STAMP = re.compile(r"-\d{4}-\d\d-\d\dT[-\d]+Z$")
PASS = {
    "server-initialize",
    "ping",
    "tools-list",
    "tools-call-error",
    "dns-rebinding-protection",
    "resources-list",
    "prompts-list",
}

FIXTURE = "calls a tool that only a test server has"
LEFT_OUT = {
    "tools-call-simple-text": FIXTURE,
    "tools-call-image": FIXTURE,
    "tools-call-audio": FIXTURE,
    "tools-call-embedded-resource": FIXTURE,
    "tools-call-mixed-content": FIXTURE,
    "tools-call-with-logging": FIXTURE,
    "tools-call-with-progress": FIXTURE,
    "tools-call-sampling": FIXTURE,
    "tools-call-elicitation": FIXTURE,
    "elicitation-sep1034-defaults": FIXTURE,
    "elicitation-sep1330-enums": FIXTURE,
    "logging-set-level": "logging is not offered: it leaves the protocol in 2026-07-28",
    "completion-complete": "completions are not offered, and it asks for those of a test server's prompt",
    "server-sse-multiple-streams": "there are no sessions, so it only says that it cannot try",
    **dict.fromkeys(
        ("resources-read-text", "resources-read-binary", "resources-templates-read",
         "resources-subscribe", "resources-unsubscribe"),
        "reads a resource that only a test server has",
    ),
    **dict.fromkeys(
        ("prompts-get-simple", "prompts-get-with-args", "prompts-get-embedded-resource",
         "prompts-get-with-image"),
        "gets a prompt that only a test server has",
    ),
}  # fmt: skip


async def run(words: list[str], folder: Path) -> tuple[int, str]:
    """Run it to its end: its code, and what it printed."""
    env = {"PATH": str(Path(words[0]).parent), "HOME": str(folder)}
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*words, cwd=folder, env=env, stdout=pipe, stderr=sys.stderr)
    out, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode()


def verdicts(folder: Path) -> dict[str, set[str]]:
    """The states of all checks of each scenario that was run."""
    found: dict[str, set[str]] = {}
    for file in folder.glob("*/checks.json"):
        # the folder is called like the scenario, with the time behind it
        name = STAMP.sub("", file.parent.name.removeprefix("server-"))
        found[name] = {check["status"] for check in json.loads(file.read_text())}
    return found


async def test_every_scenario_that_needs_no_fixture_passes(home: House, tmp_path: Path) -> None:
    words = command("@modelcontextprotocol/conformance")
    results = tmp_path / "results"
    await run([*words, "server", "--url", f"{home.app.url}/mcp/ana", "--output-dir", str(results)], tmp_path)
    found = verdicts(results)
    assert set(found) == PASS | set(LEFT_OUT)
    assert {name: sorted(found[name]) for name in PASS} == {name: ["SUCCESS"] for name in PASS}


# milliseconds: starting Harken takes long on a busy machine
PATIENT = ("--connect-timeout", "120000")


class TestTheInspector:
    async def test_lists_the_tools_and_finds_no_fault_with_their_schemas(self, home: House, tmp_path: Path) -> None:
        code, answer = await self.asks(home, tmp_path, "--method", "tools/list", "--strict")
        names = [tool["name"] for tool in answer["tools"]]
        assert (code, names[:2]) == (0, ["pollers_list", "pollers_show"])
        assert {"gmail_search", "orders_find_orders"} < set(names)

    async def test_calls_a_tool(self, home: House, tmp_path: Path) -> None:
        use = ("--method", "tools/call", "--tool-name", "pollers_show", "--tool-arg")
        code, answer = await self.asks(home, tmp_path, *use, "id=news")
        assert (code, answer["structuredContent"]["id"]) == (0, "news")
        code, answer = await self.asks(home, tmp_path, *use, "id=bobs-news")
        assert (code, answer["isError"]) == (5, True)

    async def test_starts_harken_mcp_itself(self, home: House, tmp_path: Path) -> None:
        words = command("@modelcontextprotocol/inspector")
        server = [sys.executable, "-m", "harken.cli", "mcp", "--agent", "ana"]
        use = ["-e", f"HARKEN_CONFIG={home.directory}", "--method", "tools/call", "--tool-name", "gmail_count_unread"]
        code, out = await run([*words, "--cli", *server, *use, *PATIENT], tmp_path)
        assert (code, json.loads(out)["structuredContent"]) == (0, {"unread": 0, "or_more": False})

    async def asks(self, home: House, folder: Path, *words: str) -> tuple[int, Any]:
        where = [f"{home.app.url}/mcp/ana", "--transport", "http"]
        code, out = await run([*command("@modelcontextprotocol/inspector"), "--cli", *where, *words, *PATIENT], folder)
        return code, json.loads(out)
