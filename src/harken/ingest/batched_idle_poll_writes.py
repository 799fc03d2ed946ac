"""Reads that found nothing new: gathered for a few seconds and written together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import structlog

from harken.errors import LeaseLost, RetryLater
from harken.event import Span
from harken.store import Feeds, IdleRead

__all__ = ["IdleReads"]

log = structlog.get_logger("harken.ingest")

AT_ONCE = 200
"""At most so many idle reads are written in one call of the store."""


class IdleReads:
    """At most one entry per feed; losing it in a crash costs one repeated read.

    `on_stale(feed)` is called for a feed that was changed in the store since it was read.
    """

    def __init__(self, store: Feeds, on_stale: Callable[[str], None] = lambda feed: None) -> None:
        self._store = store
        self._on_stale = on_stale
        self._waiting: dict[str, IdleRead] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, read: IdleRead) -> None:
        before = self._waiting.get(read.feed)
        self._waiting[read.feed] = read if before is None else _join(before, read)

    def drop(self, feed: str) -> None:
        """Forget the entry of this feed: a newer commit was made, or the feed's state was changed in the store."""
        self._waiting.pop(feed, None)

    async def flush(self, feed: str = "") -> None:
        """Write the entry of one feed, or all entries."""
        names = [feed] if feed else list(self._waiting)
        for begin in range(0, len(names), AT_ONCE):
            # taken only now: a feed may have written its entry while the batches before were written
            batch = [self._waiting.pop(name) for name in names[begin : begin + AT_ONCE] if name in self._waiting]
            if batch:
                await self._write(batch)

    async def write(self, feed: str = "") -> None:
        """As `flush`, but log failures instead of raising: the entries are kept and written later."""
        try:
            await self.flush(feed)
        except (RetryLater, LeaseLost) as error:
            log.warning("store.trouble", reason=str(error))

    async def _write(self, batch: list[IdleRead]) -> None:
        try:
            for feed in await self._store.record_idle(batch):
                self._on_stale(feed)
        except RetryLater:
            for read in batch:
                after = self._waiting.get(read.feed)
                self._waiting[read.feed] = read if after is None else _join(read, after)
            raise
        except LeaseLost:
            if len(batch) == 1:
                raise
            await self._write_apart(batch)

    async def _write_apart(self, batch: list[IdleRead]) -> None:
        """One of the leases is lost: write each entry alone, so that the others are not lost with it."""
        lost: LeaseLost | None = None
        for read in batch:
            try:
                await self._write([read])
            except LeaseLost as error:
                lost = error
        if lost is not None:
            raise lost


def _join(before: IdleRead, after: IdleRead) -> IdleRead:
    if before.revision != after.revision:
        return after
    covered: Span | None = after.covered
    if before.covered is not None and covered is not None:
        covered = Span(min(before.covered.start, covered.start), max(before.covered.end, covered.end))
    changes: dict[str, Any] = {
        "count": before.count + after.count,
        "first_at": before.first_at,
        "covered": covered or before.covered,
        "cursor": before.cursor if after.cursor is msgspec.UNSET else after.cursor,
        "health": after.health or before.health,
        "watermark": after.watermark or before.watermark,
    }
    return msgspec.structs.replace(after, **changes)
