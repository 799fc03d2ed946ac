"""The tools that a program offers to agents. Each call has its own process: a tool that hangs delays no read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from pydantic import BaseModel, ConfigDict, Field, create_model

from harken.errors import NeedsAttention
from harken.services.exec.rpc import RpcClient, UnknownMethod, expect_shape
from harken.source import Call, Tool

__all__ = ["discover"]

_TYPES: Mapping[str, Any] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "array": list[Any],
    "object": dict[str, Any],
}


class OfferedTool(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    description: str = ""
    parameters: dict[str, Any] = {}
    writes: bool = True


class ToolList(msgspec.Struct, frozen=True, kw_only=True):
    tools: list[OfferedTool]


async def discover(begin: Callable[[], RpcClient], name: str) -> Mapping[str, Tool]:
    """The tools that the program lists; none if it does not know poll_list_tools."""
    client = begin()
    try:
        listed = expect_shape(await client.request("poll_list_tools", {}), ToolList, name, "poll_list_tools")
    except UnknownMethod:
        return {}
    finally:
        await client.shutdown()
    return {offered.name: _tool(offered, begin) for offered in listed.tools}


def _tool(offered: OfferedTool, begin: Callable[[], RpcClient]) -> Tool:
    async def run(call: Call) -> Any:
        arguments = call.params.model_dump(mode="json", by_alias=True, exclude_unset=True)
        client = begin()
        try:
            return await client.request("poll_tool_call", {"name": offered.name, "arguments": arguments})
        finally:
            await client.shutdown()

    return Tool(summary=offered.description[:1000], params=_params(offered), run=run, writes=offered.writes)


def _params(offered: OfferedTool) -> type[BaseModel]:
    """A model of the JSON Schema's top level, which publishes the schema unchanged; the program checks the rest."""
    schema = {"type": "object", "properties": {}, **offered.parameters}
    properties, required = schema["properties"], schema.get("required", [])
    if not isinstance(properties, dict) or not isinstance(required, list):
        raise NeedsAttention(f"the parameters of the tool {offered.name} are not the JSON Schema of an object")
    # the program's names may not be Python identifiers: use them as aliases
    fields: dict[str, Any] = {
        f"argument_{number}": (_kind(described), Field(... if name in required else None, alias=str(name)))
        for number, (name, described) in enumerate(properties.items())
    }
    extra: Any = "forbid" if schema.get("additionalProperties") is False else "allow"
    config = ConfigDict(
        extra=extra, strict=False, json_schema_extra=lambda generated: _replace_schema(generated, schema)
    )
    return create_model(f"Arguments of {offered.name}", __config__=config, **fields)


def _kind(described: Any) -> Any:
    kind = described.get("type") if isinstance(described, dict) else None
    return _TYPES.get(kind, Any) if isinstance(kind, str) else Any


def _replace_schema(generated: dict[str, Any], schema: Mapping[str, Any]) -> None:
    generated.clear()
    generated.update(schema)
