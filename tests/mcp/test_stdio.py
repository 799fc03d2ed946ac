"""`harken mcp`: the same tools for a program that starts us."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest
from mcp import Client, StdioServerParameters, stdio_client

from tests.mcp.world import House, words

pytestmark = [pytest.mark.process, pytest.mark.worker_group("mcp-stdio")]

HARKEN = [sys.executable, "-m", "harken.cli"]


async def types(directory: Path, *args: str, stdin: bytes = b"") -> tuple[int, str, str]:
    command = [*HARKEN, "--config", str(directory), "mcp", *args]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe)
    out, err = await process.communicate(stdin)
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


def started(home: House, agent: str) -> Client:
    words = [*HARKEN[1:], "--config", str(home.directory), "mcp", "--agent", agent]
    # the client's own default is the stderr of the moment when it was imported, which pytest may have closed
    return Client(stdio_client(StdioServerParameters(command=HARKEN[0], args=words), errlog=sys.stderr))


async def test_an_agent_has_the_same_tools_over_stdio_as_over_http(home: House) -> None:
    home.bob.receive()
    async with started(home, "bob") as here, home.agent("bob") as there:
        assert (await here.list_tools()).tools == (await there.list_tools()).tools
        counted = await here.call_tool("gmail_count_unread")
        assert counted.structured_content == {"unread": 1, "or_more": False}
        listed = (await here.call_tool("pollers_list")).structured_content
        assert [row["id"] for row in listed["items"]] == ["bobs-mail", "bobs-news"]
        foreign = await here.call_tool("pollers_pause", {"id": "news"})
        assert (foreign.is_error, words(foreign)) == (True, "there is no job news. Did you mean bobs-news?")
        invented = await here.call_tool("pollers_create", {"id": "evil"})
        assert (invented.is_error, words(invented).partition(".")[0]) == (True, "there is no tool pollers_create")
        paused = await here.call_tool("pollers_pause", {"id": "bobs-news"})
        assert not paused.is_error
    assert ("agent bob", "pollers.pause", "bobs-news") in await home.audit()


async def test_no_trick_with_an_id_becomes_another_address(home: House) -> None:
    async with started(home, "ana") as client:
        for id in ("", "..", "../bobs-news", "bobs-news/pause", "mail?agent=bob", "reload", "a/b", "x" * 100_000):
            assert (await client.call_tool("pollers_show", {"id": id})).is_error
            assert (await client.call_tool("pollers_run", {"id": id})).is_error
    assert [row for row in await home.audit() if row[1].startswith("pollers")] == []


async def test_when_the_controller_goes_each_call_says_so(home: House) -> None:
    async with started(home, "ana") as client:
        await home.app.stop()
        answer = await client.call_tool("pollers_list")
    assert answer.is_error
    assert "no controller is running" in words(answer)
    assert "harken start" in words(answer)


async def test_without_a_controller_it_says_so_and_ends(tmp_path: Path) -> None:
    code, out, err = await types(tmp_path, "--agent", "ana")
    assert (code, out) == (1, "")
    assert f"no controller is running for {tmp_path}" in err
    assert "harken start" in err


async def test_an_agent_that_is_not_there_is_said_at_once(home: House) -> None:
    code, out, err = await types(home.directory, "--agent", "anna")
    assert (code, out) == (1, "")
    assert "there is no agent anna" in err
    assert "Did you mean ana?" in err
    assert "There are: ana, bob, carl" in (await types(home.directory))[2]


async def test_garbage_on_standard_input_is_answered_and_survived(home: House) -> None:
    asked = b'\xff\xfe garbage\n[]\n{"jsonrpc": "2.0", "id": 7, "method": "ping"}\n'
    pipe = asyncio.subprocess.PIPE
    words = [*HARKEN, "--config", str(home.directory), "mcp", "--agent", "ana"]
    process = await asyncio.create_subprocess_exec(*words, stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.DEVNULL)
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(asked)
    async for line in process.stdout:
        told = json.loads(line)
        assert told["jsonrpc"] == "2.0"
        if told.get("id") == 7:
            process.stdin.close()
    assert await process.wait() == 0


async def test_the_schemas_are_printed_with_a_controller_and_without(home: House) -> None:
    code, running, err = await types(home.directory, "--agent", "ana", "--schemas")
    assert (code, err) == (0, "")
    await home.app.stop()
    code, alone, _ = await types(home.directory, "--agent", "ana", "--schemas", "--json")
    assert (code, alone) == (0, running)
    names = {tool["function"]["name"] for tool in json.loads(alone)}
    assert {"pollers_reset", "gmail_search", "orders_find_orders"} < names
