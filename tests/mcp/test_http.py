"""/mcp on the controller's port: who may come in, how an agent is named, and what it costs while nobody comes."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import yaml
from aiohttp import ClientSession

from tests.mcp.world import House, refusal

LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "pollers_list", "arguments": {}}}
AT_EASE = """
import sys
import harken.app, harken.api.app, harken.app.server, harken.mcp.http, harken.cli.mcp, harken.operate
sys.exit(sorted({"mcp", "mcp_types"} & set(sys.modules)) or 0)
"""
WITHOUT = """
import sys
sys.modules["mcp"] = None
from harken.errors import Misconfigured
from harken.mcp import load_server
try:
    load_server()
except Misconfigured as error:
    print(error)
"""


def ids(answer: Any) -> list[str]:
    return [row["id"] for row in answer["result"]["structuredContent"]["items"]]


async def test_an_agent_is_named_in_the_address_or_in_a_header(home: House) -> None:
    assert ids((await home.post("/mcp/bob", LIST))[1]) == ["bobs-mail", "bobs-news"]
    assert ids((await home.post("/mcp", LIST, **{"X-Harken-Agent": "bob"}))[1]) == ["bobs-mail", "bobs-news"]
    assert ids((await home.post("/mcp/bob", LIST, **{"X-Harken-Agent": "bob"}))[1]) == ["bobs-mail", "bobs-news"]


async def test_whoever_names_no_agent_or_two_is_not_let_in(home: House) -> None:
    for path in ("/mcp", "/mcp/"):
        status, told = await home.post(path, LIST)
        assert (status, told["detail"]) == (404, "no agent is named")
        assert told["fix"] == "There are: ana, bob, carl"
    status, told = await home.post("/mcp/ana", LIST, **{"X-Harken-Agent": "bob"})
    assert (status, told["detail"]) == (400, "the address and the header name different agents")


@pytest.mark.parametrize("query", ["agent=", "agent=ana&agent=ana", "agent=ana&agent=bob", "agent=&agent=ana"])
async def test_an_agent_in_the_query_that_is_empty_or_given_twice_is_refused(home: House, query: str) -> None:
    for path in ("/mcp", "/mcp/ana"):
        status, told = await home.post(f"{path}?{query}", LIST)
        assert (status, "result" in told) == (400, False)
    async with ClientSession() as session, session.get(f"{home.app.url}/api/tools?{query}") as reply:
        assert reply.status == 400


async def test_an_agent_in_the_query_must_agree_with_the_address(home: House) -> None:
    assert ids((await home.post("/mcp?agent=bob", LIST))[1]) == ["bobs-mail", "bobs-news"]
    assert (await home.post("/mcp/ana?agent=bob", LIST))[0] == 400
    assert (await home.post("/mcp/ana", LIST, **{"X-Harken-Agent": ""}))[0] == 400


async def test_the_only_agent_need_not_be_named(home: House) -> None:
    file = home.directory / "harken.yaml"
    written = yaml.safe_load(file.read_text())
    home.write(
        agents={"ana": written["agents"]["ana"]},
        jobs=[job for job in written["pollers"]["jobs"] if job["agent"] == "ana"],
    )
    await home.app.operator.call("reload")
    status, told = await home.post("/mcp", LIST)
    assert status == 200
    assert [row["id"] for row in told["result"]["structuredContent"]["items"]] == ["mail", "news", "orders"]


async def test_an_agent_that_is_not_configured_is_not_there(home: House) -> None:
    for path in ("/mcp/zoe", "/mcp/ana/", "/mcp/bob/../ana", "/mcp/ana%00", "/mcp/%20", "/mcp//ana", "/mcp/ANA"):
        status, told = await home.post(path, LIST)
        assert status == 404
        assert "result" not in told
    assert (await home.post("/mcp/an", LIST))[1]["fix"] == "Did you mean ana?"


async def test_web_pages_are_kept_out(home: House) -> None:
    statuses = [
        (await home.post("/mcp/ana", LIST, Host="evil.example"))[0],
        (await home.post("/mcp/ana", LIST, Origin="http://evil.example"))[0],
        (await home.post("/mcp/ana", LIST, **{"Sec-Fetch-Site": "cross-site"}))[0],
        (await home.post("/mcp/ana", LIST, **{"Content-Type": "text/plain"}))[0],
    ]
    assert statuses == [421, 403, 403, 415]


async def test_there_are_no_sessions_to_listen_to(home: House) -> None:
    async with ClientSession() as session, session.get(f"{home.app.url}/mcp/ana") as reply:
        assert (reply.status, reply.headers["Allow"]) == (405, "POST")


async def test_a_session_that_a_client_makes_up_changes_nothing(home: House) -> None:
    assert ids((await home.post("/mcp/ana", LIST, **{"Mcp-Session-Id": "bob"}))[1]) == ["mail", "news", "orders"]


async def test_a_reload_is_seen_by_the_next_call(home: House) -> None:
    home.write(jobs=[job for job in home.jobs() if job["id"] != "news"])
    await home.app.operator.call("reload")
    assert ids((await home.post("/mcp/ana", LIST))[1]) == ["mail", "orders"]
    assert "there is no job news" in refusal(await home.call("/mcp/ana", "pollers_show", {"id": "news"}))


async def test_the_same_tools_are_there_as_openai_schemas(home: House) -> None:
    async with ClientSession() as session, session.get(f"{home.app.url}/api/tools/schemas?agent=bob") as reply:
        tools = (await reply.json())["tools"]
    shown = {tool["function"]["name"]: tool["function"]["parameters"] for tool in tools}
    async with home.agent("bob") as client:
        offered = {tool.name: tool.input_schema for tool in (await client.list_tools()).tools}
    assert shown == offered
    assert {tool["type"] for tool in tools} == {"function"}
    assert set(tools[0]["function"]) == {"name", "description", "parameters"}


async def test_the_api_wants_an_agent_to_be_named(home: House) -> None:
    async with ClientSession() as session, session.get(f"{home.app.url}/api/tools") as reply:
        assert (reply.status, (await reply.json())["detail"]) == (404, "no agent is named")
    body = {"name": "gmail_count_unread", "arguments": {}}
    assert (await home.post("/api/tools/call", body))[0] == 404
    assert (await home.post("/api/tools/call", {**body, "agent": "carl"}))[0] == 404


def test_the_library_is_not_loaded_before_somebody_calls() -> None:
    done = subprocess.run([sys.executable, "-c", AT_EASE], capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr


def test_without_the_library_it_says_what_to_install() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, timeout=200, check=False)
    assert "pip install 'harken[mcp]'" in done.stdout, done.stderr
