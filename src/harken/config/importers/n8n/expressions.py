"""Expressions of n8n, `={{ $json.title }}`, as templates and as CEL.

Only what names a value is translated: a path from the item, from another node or from the environment, and a few
functions on it. Anything else is JavaScript, and the node that has it is told as not translated.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec

__all__ = ["Scope", "Untranslatable", "ValuePath", "cel_value", "of_the_usual_shape", "template_of", "value_path"]

_PIECE = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_ENVIRONMENT = re.compile(r"\$env(?:\.([A-Za-z_]\w*)|\[\s*['\"]([A-Za-z_]\w*)['\"]\s*\])")
_ROOTS = (
    re.compile(r"\$json\b"),
    re.compile(r"\$input\.(?:item|first\(\)|last\(\))\.json\b"),
    re.compile(r"items\[0\]\.json\b"),
)
_NODE_ROOTS = (
    re.compile(r"""\$node\[\s*(?P<quote>['"])(?P<name>.*?)(?P=quote)\s*\]\.json\b"""),
    re.compile(r"""\$node\.(?P<name>\w+)\.json\b"""),
    re.compile(r"""\$\(\s*(?P<quote>['"])(?P<name>.*?)(?P=quote)\s*\)\.(?:item|first\(\)|last\(\))\.json\b"""),
    re.compile(r"""\$items\(\s*(?P<quote>['"])(?P<name>.*?)(?P=quote)\s*\)\[0\]\.json\b"""),
)
_FIELD = re.compile(r"""\s*(?:\??\.\s*([A-Za-z_$][\w$]*)(?![\w$]|\s*\()|\[\s*(?:'([^']*)'|"([^"]*)"|(\d+))\s*\])""")
_FUNCTION = re.compile(r"\.([A-Za-z]+)\(\)")
_FUNCTIONS: Mapping[str, str] = {
    "toUpperCase": "upper",
    "toLowerCase": "lower",
    "trim": "trim",
    "toString": "toString",
}
_STRINGIFY = re.compile(r"JSON\.stringify\((.*?)(?:,\s*null\s*,\s*\d+)?\)", re.DOTALL)
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LONGEST = 60


class Untranslatable(Exception):
    """Says why a node is not taken over."""

    def __init__(self, message: str, fix: str = "") -> None:
        super().__init__(message)
        self.fix = fix


@contextmanager
def of_the_usual_shape() -> Iterator[None]:
    """Raise Untranslatable for a node that has a number where n8n writes a list, and the like: a person looks at it."""
    try:
        yield
    except (TypeError, AttributeError, LookupError, ValueError) as error:
        raise Untranslatable("a value of it is not of the kind that n8n writes", "Look at it in n8n") from error


class ValuePath(msgspec.Struct, frozen=True, kw_only=True):
    """A value: where it begins (`event`, or `steps.ID.response`), the fields to it, and functions on it."""

    base: tuple[str, ...]
    fields: tuple[str | int, ...] = ()
    functions: tuple[str, ...] = ()

    def as_template(self) -> str:
        """`.trigger.event.title | upper`, or with `index` where a field is no plain name."""
        base = ("trigger", "event") if self.base == ("event",) else self.base
        parts: list[str | int] = [*base, *self.fields]
        plain = 0
        while plain < len(parts) and isinstance(parts[plain], str) and _PLAIN.fullmatch(str(parts[plain])):
            plain += 1
        made = "." + ".".join(map(str, parts[:plain]))
        rest = " ".join(json.dumps(part, ensure_ascii=False) for part in parts[plain:])
        if rest:
            made = f"index {made} {rest}"
        return " | ".join((made, *self.functions))

    def as_cel(self) -> str:
        if self.functions:
            raise Untranslatable(f"{self.functions[0]} cannot be used in a condition", "Set the value in a step before")
        return self._path(self.fields)

    def is_there(self) -> str:
        """Whether the last field exists, in CEL: `has()` takes plain names only."""
        last = self.fields[-1]
        if _PLAIN.fullmatch(str(last)):
            return f"has({self.as_cel()})"
        return f"{json.dumps(last, ensure_ascii=False)} in {self._path(self.fields[:-1])}"

    def _path(self, fields: tuple[str | int, ...]) -> str:
        made = ".".join(self.base)
        for part in fields:
            plain = isinstance(part, str) and _PLAIN.fullmatch(part)
            made += f".{part}" if plain else f"[{json.dumps(part, ensure_ascii=False)}]"
        return made


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """What a node sees: how fields of its own item and of another node's are found, and the name of the workflow."""

    item: Callable[[tuple[str | int, ...]], ValuePath]
    node: Callable[[str, tuple[str | int, ...]], ValuePath]
    workflow: str


def value_path(expression: str, scope: Scope) -> ValuePath:
    """The value that a JavaScript expression names; raises Untranslatable if it does more than that."""
    text = expression.strip()
    stringified = _STRINGIFY.fullmatch(text)
    if stringified:
        found = value_path(stringified[1], scope)
        return msgspec.structs.replace(found, functions=(*found.functions, "toJson"))
    if text in ("$execution.id", "$executionId"):
        return ValuePath(base=("run", "id"))
    for pattern in _ROOTS:
        if root := pattern.match(text):
            fields, functions = _fields(text, root.end())
            return msgspec.structs.replace(scope.item(fields), functions=functions)
    for pattern in _NODE_ROOTS:
        if root := pattern.match(text):
            fields, functions = _fields(text, root.end())
            return msgspec.structs.replace(scope.node(root["name"], fields), functions=functions)
    raise _javascript(text)


def _fields(text: str, position: int) -> tuple[tuple[str | int, ...], tuple[str, ...]]:
    fields: list[str | int] = []
    while found := _FIELD.match(text, position):
        named = next(value for value in found.groups() if value is not None)
        fields.append(int(named) if found[4] is not None else named)
        position = found.end()
    functions: list[str] = []
    while (found := _FUNCTION.match(text, position)) and found[1] in _FUNCTIONS:
        functions.append(_FUNCTIONS[found[1]])
        position = found.end()
    if text[position:].strip():
        raise _javascript(text)
    return tuple(fields), tuple(functions)


def _javascript(text: str) -> Untranslatable:
    shown = " ".join(text.split())
    shown = shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}…"
    return Untranslatable(f"{{{{ {shown} }}}} is JavaScript", "Write the value as a template, or compute it in a step")


def template_of(value: Any, scope: Scope) -> Any:
    """A parameter of a node as a value of a step: texts that begin with `=` have expressions in them."""
    if isinstance(value, dict):
        return {str(key): template_of(inner, scope) for key, inner in value.items()}
    if isinstance(value, list):
        return [template_of(inner, scope) for inner in value]
    if not isinstance(value, str):
        return value
    if not value.startswith("="):
        return _quote(value)
    text = value[1:]
    made, position = "", 0
    for piece in _PIECE.finditer(text):
        made += _quote(text[position : piece.start()])
        # a dollar before a value, as in a price, would begin a reference
        made += ("$" if made.endswith("$") else "") + _template_piece(piece[1], scope)
        position = piece.end()
    return made + _quote(text[position:])


def _template_piece(expression: str, scope: Scope) -> str:
    text = expression.strip()
    if environment := _ENVIRONMENT.fullmatch(text):
        return f"${{{environment[1] or environment[2]}}}"
    if text == "$workflow.name":
        return _quote(scope.workflow)
    return "{{" + value_path(text, scope).as_template() + "}}"


def _quote(text: str) -> str:
    parts = re.split(r"(\{\{|\}\})", text)
    return "".join("{{`" + part + "`}}" if part in ("{{", "}}") else part for part in parts).replace("${", "$${")


def cel_value(value: Any, scope: Scope) -> tuple[str, ValuePath | None]:
    """A side of a comparison in CEL, and the path if it is one."""
    if isinstance(value, str) and value.startswith("="):
        text = value[1:]
        whole = _PIECE.fullmatch(text.strip())
        if whole:
            path = value_path(whole[1], scope)
            return path.as_cel(), path
        if "{{" in text:
            raise Untranslatable("a condition compares with a text that has values in it", "Set it in a step before")
        value = text
    if isinstance(value, bool | int | float | str) or value is None:
        return json.dumps(value, ensure_ascii=False), None
    raise Untranslatable("a condition compares with a list or an object", "Write the condition in CEL")
