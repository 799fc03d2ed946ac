"""TypeScript of the API's shapes and operations: `python -m harken.api.typescript > harken.d.ts`."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any

from harken.api.openapi import CHOSEN, specification

__all__ = ["declarations"]

HEAD = "// Made by `python -m harken.api.typescript`; do not edit.\n"
_NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_PLAIN = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}


def declarations() -> str:
    """An interface for each shape, and `Operations`: what each operation takes and answers, by its name."""
    found = specification()
    shapes = [_declaration(name, schema) for name, schema in found["components"]["schemas"].items()]
    operations = [_operation(one) for methods in found["paths"].values() for one in methods.values()]
    return "\n".join([HEAD, *shapes, "export interface Operations {\n" + "".join(sorted(operations)) + "}\n"])


def _declaration(name: str, schema: Mapping[str, Any]) -> str:
    if "properties" in schema:
        return f"export interface {name} {_object(schema)}\n"
    if schema.get("type") == "object":
        # an interface may name itself, which a type that is a record may not
        return f"export interface {name} {{\n  [name: string]: {_type(schema['additionalProperties'])};\n}}\n"
    return f"export type {name} = {_type(schema)};\n"


def _operation(operation: Mapping[str, Any]) -> str:
    given = {
        one["name"]: (one["schema"], one.get("required", False)) for one in operation["parameters"] if "name" in one
    }
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    for name, schema in body.get("properties", {}).items():
        given[name] = (schema, name in body.get("required", ()))
    params = "; ".join(f"{_key(name)}{'' if needed else '?'}: {_type(one)}" for name, (one, needed) in given.items())
    answers = operation["responses"]
    content = (answers.get("200") or answers["201"])["content"]
    answer = _type(next(iter(content.values()))["schema"])
    takes = f"{{ {params} }}" if params else "Record<string, never>"
    return f"  {_key(operation['operationId'])}: {{ params: {takes}; answer: {answer} }};\n"


def _object(schema: Mapping[str, Any]) -> str:
    needed = schema.get("required", ())
    fields = schema.get("properties", {}).items()
    lines = [f"  {_key(name)}{'' if name in needed else '?'}: {_type(inner)};\n" for name, inner in fields]
    return "{\n" + "".join(lines) + "}"


def _type(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "enum" in schema:
        return " | ".join(f'"{value}"' for value in schema["enum"])
    if "anyOf" in schema:
        # who asks for some fields knows which: the others would have to look for each whether it is there
        return " | ".join(dict.fromkeys(_type(one) for one in schema["anyOf"] if one != CHOSEN))
    kind = schema.get("type")
    if isinstance(kind, list):
        return " | ".join(_PLAIN[one] for one in kind)
    if kind == "array":
        inner = _type(schema.get("items", {}))
        return f"({inner})[]" if " " in inner else f"{inner}[]"
    if kind == "object":
        fields = schema.get("properties", {})
        if fields:
            needed = schema.get("required", ())
            pairs = [f"{_key(name)}{'' if name in needed else '?'}: {_type(one)}" for name, one in fields.items()]
            return f"{{ {'; '.join(pairs)} }}"
        values = schema.get("additionalProperties")
        return f"Record<string, {_type(values) if isinstance(values, dict) else 'unknown'}>"
    return _PLAIN.get(str(kind), "unknown")


def _key(name: str) -> str:
    return name if _NAME.fullmatch(name) else f'"{name}"'


if __name__ == "__main__":
    sys.stdout.write(declarations())
