"""What a program offers to agents. Each call has a process of its own: a tool that hangs holds up no read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from pydantic import BaseModel, ConfigDict, Field, create_model

from harken.errors import NeedsAttention
from harken.services.exec.rpc import Conversation, UnknownMethod, shaped
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


class Offered(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    description: str = ""
    parameters: dict[str, Any] = {}
    writes: bool = True


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    tools: list[Offered]


async def discover(begin: Callable[[], Conversation], name: str) -> Mapping[str, Tool]:
    """The tools that the program lists; none when it does not know the question."""
    talk = begin()
    try:
        listed = shaped(await talk.ask("poll_list_tools", {}), Listed, name, "poll_list_tools")
    except UnknownMethod:
        return {}
    finally:
        await talk.leave()
    return {offered.name: _tool(offered, begin) for offered in listed.tools}


def _tool(offered: Offered, begin: Callable[[], Conversation]) -> Tool:
    async def run(call: Call) -> Any:
        arguments = call.params.model_dump(mode="json", by_alias=True, exclude_unset=True)
        talk = begin()
        try:
            return await talk.ask("poll_tool_call", {"name": offered.name, "arguments": arguments})
        finally:
            await talk.leave()

    return Tool(summary=offered.description[:1000], params=_params(offered), run=run, writes=offered.writes)


def _params(offered: Offered) -> type[BaseModel]:
    """A model of the JSON Schema's top level, which shows the schema as it was given; the program checks the rest."""
    schema = {"type": "object", "properties": {}, **offered.parameters}
    properties, required = schema["properties"], schema.get("required", [])
    if not isinstance(properties, dict) or not isinstance(required, list):
        raise NeedsAttention(f"the parameters of the tool {offered.name} are no JSON Schema of an object")
    # the names are the program's: as aliases they can be anything
    fields: dict[str, Any] = {
        f"argument_{number}": (_kind(described), Field(... if name in required else None, alias=str(name)))
        for number, (name, described) in enumerate(properties.items())
    }
    extra: Any = "forbid" if schema.get("additionalProperties") is False else "allow"
    config = ConfigDict(extra=extra, strict=False, json_schema_extra=lambda shown: _show(shown, schema))
    return create_model(f"Arguments of {offered.name}", __config__=config, **fields)


def _kind(described: Any) -> Any:
    kind = described.get("type") if isinstance(described, dict) else None
    return _TYPES.get(kind, Any) if isinstance(kind, str) else Any


def _show(shown: dict[str, Any], schema: Mapping[str, Any]) -> None:
    shown.clear()
    shown.update(schema)
