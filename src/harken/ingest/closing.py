"""Sources that are read no more let go of what they hold, but not while a read of theirs is under way."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import structlog

from harken.ingest.live import Live
from harken.source import Closable, Source

__all__ = ["Closer"]

log = structlog.get_logger("harken.ingest")


class Closer:
    """Closes in the background; `finish` waits for all of it."""

    def __init__(self) -> None:
        self._closing: set[asyncio.Task[None]] = set()

    def retire(self, live: Live) -> None:
        """The feed is gone, or read with another source from the start."""
        live.left.append(live.source)
        self.release(live)

    def release(self, live: Live) -> None:
        """Close what the feed has left behind. A feed that is being read is looked at again when that has ended."""
        if live.busy:
            return
        while live.left:
            self._close(live.left.pop())

    async def finish(self, feeds: Iterable[Live]) -> None:
        """Close the sources of all these feeds, and wait until everything is closed."""
        for live in feeds:
            for source in (*live.left, live.source):
                self._close(source)
        await asyncio.gather(*self._closing, return_exceptions=True)

    def _close(self, source: Source) -> None:
        if isinstance(source, Closable):
            task = asyncio.get_running_loop().create_task(source.aclose(), name="close a source")
            self._closing.add(task)
            task.add_done_callback(self._closed)

    def _closed(self, task: asyncio.Task[None]) -> None:
        self._closing.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("source.not_closed", exc_info=task.exception())
