"""Messages with `{field}` placeholders, filled in one pass: placeholders inside of a value are not expanded."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from harken.language.dotted_paths import MISSING, lookup

__all__ = ["Filled", "fill", "placeholders"]

LONGEST = 1_000_000
"""Characters of a message; every destination has a much lower limit."""

_PLACEHOLDER = re.compile(r"\{([^\W\d][\w-]*(?:\.[\w-]+){0,32})\}")
_WHOLE = "json"


class Filled(msgspec.Struct, frozen=True):
    """The text, and the placeholders that were left in it because there is no such field."""

    text: str
    unknown: tuple[str, ...] = ()


def fill(template: str, values: Mapping[str, Any]) -> Filled:
    """Replace each `{a.b}` by its value. `{json}` is all values, unless there is a field named json."""
    unknown: list[str] = []
    remaining = LONGEST

    def value(found: re.Match[str]) -> str:
        nonlocal remaining
        name = found[1]
        got = lookup(values, name)
        if got is MISSING and name != _WHOLE:
            unknown.append(name)
            return found[0]
        text = _text(values if got is MISSING else got)[: max(0, remaining)]
        remaining -= len(text)
        return text

    return Filled(_PLACEHOLDER.sub(value, template)[:LONGEST], tuple(unknown))


def placeholders(template: str) -> tuple[str, ...]:
    """The names in a message, each once; `{json}` is always there."""
    return tuple(name for name in dict.fromkeys(_PLACEHOLDER.findall(template)) if name != _WHOLE)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else msgspec.json.encode(value).decode()
