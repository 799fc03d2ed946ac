"""The kinds of JSON values, as messages to people name them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["kind_of"]


def kind_of(value: Any) -> str:
    """Return `null`, `boolean`, `number`, `string`, `object` or `list`; the Python type for anything else."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    if isinstance(value, Mapping):
        return "object"
    return "list" if isinstance(value, list | tuple | set | frozenset) else type(value).__name__
