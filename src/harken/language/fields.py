"""Messages with `{field}` placeholders: one pass over the template, so nothing in a value is ever expanded."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from harken.language.paths import MISSING, lookup

__all__ = ["Filled", "fill"]

LONGEST = 1_000_000
"""Characters of a message; every destination cuts it far below that."""

_PLACEHOLDER = re.compile(r"\{([^\W\d][\w-]*(?:\.[\w-]+){0,32})\}")
_WHOLE = "json"


class Filled(msgspec.Struct, frozen=True):
    """The text, and the placeholders that stayed in it because nothing has their name."""

    text: str
    unknown: tuple[str, ...] = ()


def fill(template: str, values: Mapping[str, Any]) -> Filled:
    """Replace each `{a.b}` by its value; `{json}` is all of them unless there is a field of that name."""
    unknown: list[str] = []
    room = LONGEST

    def value(found: re.Match[str]) -> str:
        nonlocal room
        name = found[1]
        got = lookup(values, name)
        if got is MISSING and name != _WHOLE:
            unknown.append(name)
            return found[0]
        text = _text(values if got is MISSING else got)[: max(0, room)]
        room -= len(text)
        return text

    return Filled(_PLACEHOLDER.sub(value, template)[:LONGEST], tuple(unknown))


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else msgspec.json.encode(value).decode()
