"""Cursors as msgspec structs: between two reads the engine stores them as JSON."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from harken.source import Cursor

__all__ = ["dump_cursor", "load_cursor"]

S = TypeVar("S", bound=msgspec.Struct)


def load_cursor(cursor: Cursor, type: type[S], *, of: str | None = None) -> S | None:
    """Return the stored cursor as a struct; None when nothing was read yet or another version of the service wrote it.

    With `of`, also None unless the struct's own `of` is the same: a page number of another query means nothing.
    """
    try:
        loaded = msgspec.convert(cursor, type)
    except msgspec.ValidationError:
        return None
    return loaded if of is None or getattr(loaded, "of", None) == of else None


def dump_cursor(struct: msgspec.Struct) -> Cursor:
    """Return the struct as the JSON value that a batch takes as its cursor."""
    return msgspec.to_builtins(struct)
