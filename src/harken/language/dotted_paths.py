"""Find a value by a dotted path, as `a.b.0.c`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

__all__ = ["MISSING", "Missing", "lookup", "step"]


class Missing:
    """The type of MISSING: false, and not equal to any JSON value."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = Missing()

_LONGEST_INDEX = 9


def lookup(data: Any, path: str) -> Any:
    """Return the value at `a.b.0.c`, or MISSING. A key with dots in it wins; an empty path returns the data."""
    if not path:
        return data
    parts = path.split(".")
    at = 0
    while at < len(parts):
        data, at = _descend(data, parts, at)
        if data is MISSING:
            return MISSING
    return data


def _descend(data: Any, parts: Sequence[str], at: int) -> tuple[Any, int]:
    if isinstance(data, Mapping):
        for end in range(len(parts), at, -1):
            key = ".".join(parts[at:end])
            if key in data:
                return data[key], end
    return step(data, parts[at]), at + 1


def step(data: Any, name: str | int) -> Any:
    """Return one key of a mapping or one item of a list, or MISSING; never a Python attribute."""
    if isinstance(data, Mapping):
        return data.get(name, MISSING)
    if isinstance(data, list | tuple):
        if isinstance(name, str) and name.isascii() and name.isdigit() and len(name) <= _LONGEST_INDEX:
            name = int(name)
        if isinstance(name, int) and 0 <= name < len(data):
            return data[name]
    return MISSING
