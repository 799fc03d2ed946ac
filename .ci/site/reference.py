"""Pages that are made from the code when the site is built: the HTTP API, and what authors of services use."""

from __future__ import annotations

import importlib
import inspect
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from harken.api.openapi import document

AUTHORS = (
    "harken.source",
    "harken.event",
    "harken.errors",
    "harken.kit",
    "harken.kit.json_api",
    "harken.kit.values_from_payload",
    "harken.kit.paging_declared_in_query",
    "harken.testing",
    "harken.testing.source",
    "harken.testing.destination",
    "harken.testing.clock",
    "harken.testing.fakes.server",
)
METHODS = ("get", "post", "put", "patch", "delete")


def http_api() -> str:
    """Every operation of the HTTP API: what it takes, what it answers."""
    api = json.loads(document())
    groups: dict[str, list[str]] = {}
    for path, item in api["paths"].items():
        for method in METHODS:
            if method in item:
                operation = item[method]
                tag = (operation.get("tags") or [path.split("/")[2] if path.count("/") > 1 else "other"])[0]
                groups.setdefault(tag, []).append(_operation(api, method, path, operation))
    parts = [f"## {tag}\n\n" + "\n".join(found) for tag, found in groups.items()]
    return "\n".join([_problems(api), *parts])


def _problems(api: Mapping[str, Any]) -> str:
    """What any operation may answer beside its result, once."""
    told = {}
    for item in api["paths"].values():
        for method in METHODS:
            for code, answer in item.get(method, {}).get("responses", {}).items():
                if _is_problem(_resolved(api, answer)):
                    told[code] = _cell(_resolved(api, answer).get("description", ""))
    rows = [f"| {code} | {told[code]} |\n" for code in sorted(told)]
    return "## Errors\n\nAs `Problem`, with a code and what to do.\n\n| status | |\n|---|---|\n" + "".join(rows)


def _is_problem(answer: Mapping[str, Any]) -> bool:
    return any(_shape(content.get("schema", {})) == "`Problem`" for content in answer.get("content", {}).values())


def _operation(api: Mapping[str, Any], method: str, path: str, operation: Mapping[str, Any]) -> str:
    lines = [f"### `{method.upper()} {path}`\n", operation.get("summary", "") + "\n"]
    if operation.get("description"):
        lines.append(operation["description"] + "\n")
    taken = [_parameter(_resolved(api, one)) for one in operation.get("parameters", [])]
    taken += _body(api, operation.get("requestBody", {}))
    if taken:
        lines.append("| takes | in | what |\n|---|---|---|\n" + "".join(taken))
    found = {code: _resolved(api, answer) for code, answer in operation.get("responses", {}).items()}
    lines += [_answer(code, answer) for code, answer in found.items() if not _is_problem(answer)]
    return "\n".join(lines)


def _parameter(one: Mapping[str, Any]) -> str:
    needed = ", required" if one.get("required") else ""
    told = _cell(_told(one.get("schema", {}), one.get("description", "")))
    return f"| `{one['name']}` | {one['in']}{needed} | {told} |\n"


def _body(api: Mapping[str, Any], body: Mapping[str, Any]) -> list[str]:
    found = []
    for kind, content in body.get("content", {}).items():
        schema = _resolved(api, content.get("schema", {}))
        needed = set(schema.get("required", ()))
        for name, part in schema.get("properties", {}).items():
            found.append(_parameter({"name": name, "in": "body", "required": name in needed, "schema": part}))
        if not schema.get("properties"):
            found.append(f"| body | {kind} | {_cell(_told(schema, ''))} |\n")
    return found


def _answer(code: str, answer: Mapping[str, Any]) -> str:
    shapes = [_shape(content.get("schema", {})) for content in answer.get("content", {}).values()]
    told = ", ".join(dict.fromkeys(shape for shape in shapes if shape))
    return f"Answers {code}: {told or answer.get('description', '')}\n"


def _resolved(api: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = api
    for part in schema.get("$ref", "").split("/")[1:]:
        found = found[part]
    return found if "$ref" in schema else schema


def _shape(schema: Mapping[str, Any]) -> str:
    name = schema.get("$ref", "").rpartition("/")[2]
    if name:
        return f"`{name}`"
    if schema.get("type") == "array":
        return f"list of {_shape(schema.get('items', {})) or 'values'}"
    return ""


def _told(schema: Mapping[str, Any], description: str) -> str:
    kind = schema.get("type") or _shape(schema) or ("one of several" if "anyOf" in schema else "")
    kind = " or ".join(kind) if isinstance(kind, list) else kind
    if "enum" in schema:
        kind = " or ".join(f"`{value}`" for value in schema["enum"])
    default = f"; default `{schema['default']}`" if schema.get("default") not in (None, "") else ""
    words = description or schema.get("description", "")
    return f"{kind}{default}{'. ' if kind and words else ''}{words}"


def _cell(text: str) -> str:
    return re.sub(r"\s*\n\s*", " ", text).replace("|", "\\|")


def python() -> str:
    """What a service may import, module by module."""
    parts = []
    for name in AUTHORS:
        module = importlib.import_module(name)
        public = [word for word in getattr(module, "__all__", ()) if not word.startswith("_")]
        parts.append(f"## `{name}`\n\n{inspect.getdoc(module) or ''}\n")
        parts += [_member(module, word) for word in public]
    return "\n".join(parts)


def _member(module: Any, name: str) -> str:
    found = getattr(module, name)
    if inspect.isclass(found):
        return _class(name, found)
    if inspect.isfunction(found):
        return f"### `{name}{_signature(found)}`\n\n{_prose(found)}\n"
    return f"### `{name}`\n\n{_constant(module, name)}\n"


def _class(name: str, found: type) -> str:
    bases = [base.__name__ for base in found.__bases__ if base.__module__.startswith("harken")]
    lines = [f"### `class {name}{'(' + ', '.join(bases) + ')' if bases else ''}`\n", _prose(found) + "\n"]
    fields = _fields(found)
    if fields:
        lines.append("| field | type | default |\n|---|---|---|\n" + "".join(fields))
    for method, function in vars(found).items():
        plain = function.__func__ if isinstance(function, (classmethod, staticmethod)) else function
        if not method.startswith("_") and inspect.isfunction(plain):
            word = "async " if inspect.iscoroutinefunction(plain) else ""
            lines.append(f"**`{word}{method}{_signature(plain)}`**  \n{_prose(plain)}\n")
    return "\n".join(lines)


def _fields(found: type) -> list[str]:
    own = {name: str(kind) for name, kind in vars(found).get("__annotations__", {}).items() if not name.startswith("_")}
    return [f"| `{name}` | `{_cell(kind)}` | {_cell(_default(found, name))} |\n" for name, kind in own.items()]


def _default(found: type, name: str) -> str:
    if issubclass(found, msgspec.Struct):
        (field,) = (field for field in msgspec.structs.fields(found) if field.name == name)
        return "required" if field.required else "" if field.default is msgspec.NODEFAULT else f"`{field.default!r}`"
    default = inspect.getattr_static(found, name, inspect.Parameter.empty)
    return f"`{default!r}`" if isinstance(default, (str, int, float, bool, tuple, type(None))) else ""


def _signature(function: Any) -> str:
    try:
        return re.sub(r"<[^<>]*? at 0x[0-9a-f]+>", "…", str(inspect.signature(function)).replace("'", ""))
    except ValueError:
        return "(…)"


def _prose(found: Any) -> str:
    """Its docstring, as far as it is its own."""
    text = inspect.cleandoc(vars(found).get("__doc__") or "") if inspect.isclass(found) else inspect.getdoc(found) or ""
    return text.replace("<", "&lt;")


def _constant(module: Any, name: str) -> str:
    """The string below an assignment."""
    told = re.search(rf'^{name}\b[^\n]*=.*?\n"""(.*?)"""', inspect.getsource(module), re.DOTALL | re.MULTILINE)
    return told[1].strip() if told and len(told[1]) < 600 else ""


MAKERS: Mapping[str, Callable[[], str]] = {"http_api": http_api, "python": python}
