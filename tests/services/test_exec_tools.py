"""What a poller offers to agents: found by asking it, called in a process of its own."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from harken.errors import NeedsAttention, RetryLater
from harken.services.exec import Query, plugin
from harken.source import Call, Host, Tool
from tests.services.processes import running, zombies
from tests.services.programs import POLLERS

SCHEMA = {
    "type": "object",
    "properties": {"schema": {"type": "string", "description": "which orders"}, "limit": {"type": "integer"}},
    "required": ["schema"],
    "additionalProperties": False,
}
FIND = {"name": "find_orders", "description": "Find orders", "parameters": SCHEMA, "writes": False}


@pytest.fixture
def host(host: Host) -> Host:
    return replace(host, allow_programs=True, identity="change")


async def discovered(host: Host, folder: Path, **config: Any) -> Mapping[str, Tool]:
    command = [sys.executable, str(POLLERS / "lines_poller.py"), str(folder)]
    assert plugin.discover is not None
    return await plugin.discover(Query(command=command, config=config, timeout=20), None, host)


def call(host: Host, tool: Tool, **arguments: Any) -> Call:
    return Call(params=tool.params.model_validate(arguments), account=None, host=host, idempotency_key="k")


async def test_the_tools_of_a_poller_are_those_that_it_lists(host, tmp_path):
    tools = await discovered(host, tmp_path, tools=[FIND, {"name": "close_order"}])

    assert set(tools) == {"find_orders", "close_order"}
    assert (tools["find_orders"].summary, tools["find_orders"].writes) == ("Find orders", False)
    assert tools["find_orders"].params.model_json_schema() == SCHEMA
    assert running(str(tmp_path)) == []


async def test_a_tool_that_says_nothing_about_it_counts_as_one_that_writes(host, tmp_path):
    tools = await discovered(host, tmp_path, tools=[{"name": "close_order"}])
    assert tools["close_order"].writes is True


async def test_a_call_reaches_the_program_and_its_answer_comes_back(host, tmp_path):
    tool = (await discovered(host, tmp_path, tools=[FIND]))["find_orders"]
    answers = [await tool.run(call(host, tool, schema="open", limit=3)) for _ in range(2)]

    assert answers[0]["called"] == {"name": "find_orders", "arguments": {"schema": "open", "limit": 3}}
    assert answers[0]["pid"] != answers[1]["pid"]
    assert (running(str(tmp_path)), zombies()) == ([], [])


async def test_what_was_not_given_is_not_sent(host, tmp_path):
    tool = (await discovered(host, tmp_path, tools=[FIND]))["find_orders"]
    answer = await tool.run(call(host, tool, schema="open"))
    assert answer["called"]["arguments"] == {"schema": "open"}


@pytest.mark.parametrize("arguments", [{}, {"schema": "a", "limit": "many"}, {"schema": "a", "more": 1}])
async def test_wrong_arguments_do_not_reach_the_program(host, tmp_path, arguments):
    tool = (await discovered(host, tmp_path, tools=[FIND]))["find_orders"]
    with pytest.raises(ValidationError):
        call(host, tool, **arguments)


async def test_a_poller_without_the_method_has_no_tools(host, tmp_path):
    error = {"code": -32601, "message": "no such method"}
    assert await discovered(host, tmp_path, error=error, during="poll_list_tools") == {}


async def test_a_refused_call_is_said_with_its_reason(host, tmp_path):
    error = {"code": -32001, "message": "closed on Sundays", "data": {"retry_after": 60}}
    tool = (await discovered(host, tmp_path, tools=[FIND], error=error, during="poll_tool_call"))["find_orders"]
    with pytest.raises(RetryLater, match="closed on Sundays") as caught:
        await tool.run(call(host, tool, schema="open"))

    assert caught.value.after == 60
    assert running(str(tmp_path)) == []


@pytest.mark.parametrize("tools", ["find", [{"description": "nameless"}], [{"name": "a", "parameters": []}]])
async def test_a_list_in_another_shape_is_a_failure(host, tmp_path, tools):
    with pytest.raises(NeedsAttention, match="another shape"):
        await discovered(host, tmp_path, tools=tools)


async def test_parameters_that_are_no_schema_name_their_tool(host, tmp_path):
    with pytest.raises(NeedsAttention, match="find_orders"):
        await discovered(host, tmp_path, tools=[{"name": "find_orders", "parameters": {"properties": 3}}])
