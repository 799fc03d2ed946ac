"""As much of WIQL as the fake Azure DevOps understands; anything else is refused, as a wrong query is there."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

__all__ = ["BadQuery", "compiled"]

_TOKEN = re.compile(r"\s*(?:(\[[\w.]+\])|'((?:[^']|'')*)'|(@project)|(>=|<|=|,|\(|\))|([A-Za-z]+))", re.IGNORECASE)
_HEAD = ["SELECT", "[System.Id]", "FROM", "WorkItems", "WHERE"]
_TAIL = ["ORDER", "BY", "[System.ChangedDate]", ",", "[System.Id]"]

Test = Callable[[Mapping[str, Any]], bool]


class BadQuery(Exception):
    """The text is no query that is understood."""


class _Text(str):
    """What stood in quotes."""


def compiled(source: str, project: str, *, with_time: bool) -> Test:
    """Whether a work item's fields are asked for. Without time precision a time in a date is refused."""
    tokens = _tokens(source, project)
    if tokens[: len(_HEAD)] != _HEAD or tokens[-len(_TAIL) :] != _TAIL:
        raise BadQuery("the frame of the query")
    body = tokens[len(_HEAD) : -len(_TAIL)]
    tests: list[Test] = []
    while body:
        test, body = _clause(body, with_time)
        tests.append(test)
        if body and body.pop(0) != "AND":
            raise BadQuery("AND is missing")
    return lambda fields: all(test(fields) for test in tests)


def _tokens(source: str, project: str) -> list[str]:
    found: list[str] = []
    place = 0
    while source[place:].strip():
        match = _TOKEN.match(source, place)
        if match is None:
            raise BadQuery(f"at {place}")
        field, quoted, macro, sign, word = match.groups()
        text = quoted.replace("''", "'") if quoted is not None else project if macro else None
        found.append(field or sign or word if text is None else _Text(text))
        place = match.end()
    return found


def _clause(body: list[str], with_time: bool) -> tuple[Test, list[str]]:
    field, sign, *rest = body
    if not field.startswith("[") or isinstance(field, _Text):
        raise BadQuery("a field is missing")
    name = field[1:-1]
    if sign == "IN":
        end = rest.index(")")
        values = {_value(one).casefold() for one in rest[1:end:2]}
        return (lambda fields: _text(fields, name) in values), rest[end + 1 :]
    value = _value(rest[0])
    if name == "System.ChangedDate":
        return _dated(name, sign, value, with_time), rest[1:]
    return _plain(name, sign, value.casefold()), rest[1:]


def _value(token: str) -> str:
    if not isinstance(token, _Text):
        raise BadQuery("a value has no quotes")
    return token


def _dated(name: str, sign: str, value: str, with_time: bool) -> Test:
    if "T" in value and not with_time:
        raise BadQuery("You cannot supply a time with the date when running a query using date precision")
    at = datetime.fromisoformat(value)
    return {
        ">=": lambda fields: datetime.fromisoformat(fields[name]) >= at,
        "<": lambda fields: datetime.fromisoformat(fields[name]) < at,
    }[sign]


def _plain(name: str, sign: str, value: str) -> Test:
    tests: dict[str, Test] = {
        "=": lambda fields: value in _names(fields.get(name)),
        "CONTAINS": lambda fields: value in [tag.strip() for tag in _text(fields, name).split(";")],
        "UNDER": lambda fields: _text(fields, name) == value or _text(fields, name).startswith(value + "\\"),
    }
    if sign not in tests:
        raise BadQuery(f"the operator {sign}")
    return tests[sign]


def _names(value: Any) -> Sequence[str]:
    """What a field may be called: a person is known by name and by address."""
    if isinstance(value, Mapping):
        return [str(value.get(key, "")).casefold() for key in ("uniqueName", "displayName")]
    return [str(value or "").casefold()]


def _text(fields: Mapping[str, Any], name: str) -> str:
    return str(fields.get(name) or "").casefold()
