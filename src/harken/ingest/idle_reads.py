"""Reads that found nothing new: gathered for a few seconds and written together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import structlog

from harken.errors import LeaseLost, RetryLater
from harken.event import Span
from harken.store import Feeds, IdleRead

__all__ = ["FLUSH_SECONDS", "IdleReads"]

log = structlog.get_logger("harken.ingest")

FLUSH_SECONDS = 5.0
AT_ONCE = 200


class IdleReads:
    """At most one entry per feed; losing it in a crash costs one repeated read."""

    def __init__(self, store: Feeds) -> None:
        self._store = store
        self._waiting: dict[str, IdleRead] = {}
        # hears of a feed that a person changed in the store, so that what was read before is out of date
        self.on_stale: Callable[[str], None] = lambda feed: None

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, rest: IdleRead) -> None:
        before = self._waiting.get(rest.feed)
        self._waiting[rest.feed] = rest if before is None else _joined(before, rest)

    def drop(self, feed: str) -> None:
        """A commit of this feed follows, or its state was changed by hand: what waits here is out of date."""
        self._waiting.pop(feed, None)

    async def flush(self, feed: str = "") -> None:
        """Write what waits (of one feed, or of all)."""
        names = [feed] if feed else list(self._waiting)
        for begin in range(0, len(names), AT_ONCE):
            # only now, so that a commit of a feed cannot overtake what waits for it
            batch = [self._waiting.pop(name) for name in names[begin : begin + AT_ONCE] if name in self._waiting]
            if batch:
                await self._write(batch)

    async def write(self, feed: str = "") -> None:
        """As `flush`; trouble is only said, as what could not be written is written later."""
        try:
            await self.flush(feed)
        except (RetryLater, LeaseLost) as error:
            log.warning("store.trouble", reason=str(error))

    async def _write(self, batch: list[IdleRead]) -> None:
        try:
            for feed in await self._store.record_idle(batch):
                self.on_stale(feed)
        except RetryLater:
            for rest in batch:
                after = self._waiting.get(rest.feed)
                self._waiting[rest.feed] = rest if after is None else _joined(rest, after)
            raise
        except LeaseLost:
            if len(batch) == 1:
                raise
            await self._write_apart(batch)

    async def _write_apart(self, batch: list[IdleRead]) -> None:
        """Some of them are no longer ours to write; the others are not lost with them."""
        lost: LeaseLost | None = None
        for rest in batch:
            try:
                await self._write([rest])
            except LeaseLost as error:
                lost = error
        if lost is not None:
            raise lost


def _joined(before: IdleRead, after: IdleRead) -> IdleRead:
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
