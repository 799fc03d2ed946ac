"""How far the rows of a query have been read."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from harken.services.sql.values import Packed
from harken.source import Cursor

__all__ = ["Border", "Place", "stored"]

Border: TypeAlias = tuple[Packed, Packed]
"""Watermark and key of a row."""


class Place(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`border` is the watermark and key of the last row read, while a read is unfinished.

    `by`: whether watermarks are times, once there was any. `top` is the highest watermark so far, if they are not.
    """

    of: str
    by: Literal["", "time", "order"] = ""
    top: Packed | None = None
    border: Border | None = None


def stored(place: Place) -> Cursor:
    """The cursor as the store returns it: JSON has no tuples."""
    return msgspec.json.decode(msgspec.json.encode(place))
