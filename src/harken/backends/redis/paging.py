"""Keyset pages over numbers that rise."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from harken.backends.redis.transaction import Home
from harken.store import Page

__all__ = ["below", "older", "page"]

T = TypeVar("T")


async def page(
    some: Callable[[int | None], Awaitable[list[tuple[int, T | None]]]],
    wanted: Callable[[T], bool],
    before: int | None,
    limit: int,
) -> Page:
    """Read on until the page is full: what a filter drops must not look like the end."""
    items: list[T] = []
    while batch := await some(before):
        for number, item in batch:
            before = number
            if item is not None and wanted(item):
                items.append(item)
                if len(items) == limit:
                    return Page(items=items, next=before)
    return Page(items=items)


async def below(
    home: Home, what: str, field: str, buckets: str, before: int | None, limit: int
) -> list[tuple[int, bytes]]:
    """Rows with a lower number, newest first."""
    found: list[tuple[int, bytes]] = []
    while True:
        asked = (what, field, buckets, before or False, limit - len(found))
        rows, following = await home.link.look("below", home.ask(), asked)
        found += [(int(number), value) for number, value in rows]
        if not int(following):
            return found
        before = int(following)


async def older(home: Home, key: str, before: int | None, limit: int, digits: int = 0) -> list[bytes]:
    rows: list[bytes] = await home.link.look("older", home.ask(), (key, before or False, limit, digits))
    return rows
