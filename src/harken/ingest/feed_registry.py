"""Every feed of the configuration as this process knows it: its source, and whether we read it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime
from random import Random

import structlog

from harken.clock import Clock
from harken.errors import HarkenError, NeedsAttention
from harken.feed import Feed, FeedState
from harken.ingest.idle_reads import IdleReads
from harken.ingest.leases import ShardLeases
from harken.ingest.live import LiveFeed
from harken.ingest.poll import SWEEP_SECONDS
from harken.ingest.scheduler import Scheduler, first_due
from harken.ingest.stream import Streamer
from harken.source import Batch, Closable, Cursor, PollSource, Source, StreamSource
from harken.store import Opened, Records
from harken.tasks import end

__all__ = ["BrokenSource", "FeedRegistry", "SourceCloser"]

log = structlog.get_logger("harken.ingest")


class BrokenSource:
    """Reading it fails with the reason, like any other failure."""

    def __init__(self, error: HarkenError) -> None:
        self._error = error

    async def poll(self, cursor: Cursor, since: datetime) -> Batch:
        raise NeedsAttention(self._error.message, fix=self._error.fix)


class SourceCloser:
    """Closes in the background; `finish` waits for all of it."""

    def __init__(self) -> None:
        self._closing: set[asyncio.Task[None]] = set()

    def retire(self, live: LiveFeed) -> None:
        """The feed is gone, or read with another source from the start."""
        live.left.append(live.source)
        self.release(live)

    def release(self, live: LiveFeed) -> None:
        """Close what the feed has left behind. A feed that is being read is looked at again when that has ended."""
        if live.busy:
            return
        while live.left:
            self._close(live.left.pop())

    async def finish(self, feeds: Iterable[LiveFeed]) -> None:
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


class FeedRegistry:
    """`build(feed)` makes the source of a feed. Without `reading` nothing is polled or followed here."""

    def __init__(
        self,
        store: Records,
        clock: Clock,
        random: Random,
        build: Callable[[Feed], Source],
        *,
        leases: ShardLeases,
        scheduler: Scheduler,
        idle_reads: IdleReads,
        streamer: Streamer,
        reading: bool,
    ) -> None:
        self._store = store
        self._clock = clock
        self._random = random
        self._build = build
        self._leases = leases
        self._scheduler = scheduler
        self._idle_reads = idle_reads
        self._streamer = streamer
        self._reading = reading
        self.feeds: dict[str, LiveFeed] = {}
        self.closer = SourceCloser()
        # what the store said a moment ago need not be asked for again
        self.just_opened: Opened | None = None
        self._streams: dict[str, asyncio.Task[None]] = {}
        self._ending: dict[str, asyncio.Task[None]] = {}

    def reads(self, live: LiveFeed) -> bool:
        """Whether it is this process that moves the feed's cursor."""
        return live.feed.shard in self._leases.held

    async def stop(self) -> None:
        """End the streams and close every source."""
        self._reading = False
        await end(self._streams.values())
        if self._ending:
            await asyncio.wait(self._ending.values())
        await self.closer.finish(self.feeds.values())

    def place(self, feed: Feed, state: FeedState, *, renew: bool) -> None:
        live = self.feeds.get(feed.name)
        if live is not None and live.feed == feed and not renew:
            return
        try:
            source = self._build(feed)
        except HarkenError as error:
            source = BrokenSource(error)
        if live is not None and live.feed == feed and live.use(source):
            self.closer.release(live)
            return
        if live is not None:
            self.drop(feed.name)
        swept_at = self._clock.time() - self._random.random() * SWEEP_SECONDS
        live = self.feeds[feed.name] = LiveFeed(feed, source, state, swept_at=swept_at)
        self._set_going(live, state)

    def _set_going(self, live: LiveFeed, state: FeedState) -> None:
        name, source = live.feed.name, live.source
        if isinstance(source, StreamSource):
            if name not in self._streams and self._reading and (source.shared or self.reads(live)):
                following = self._follow(live, self._ending.get(name))
                self._streams[name] = asyncio.create_task(following, name=f"stream {name}")
        elif isinstance(source, PollSource):
            self.schedule(live, state)

    async def _follow(self, live: LiveFeed, before: asyncio.Task[None] | None) -> None:
        """Follow it, once nobody else here does any more."""
        if before is not None:
            await asyncio.wait({before})
        await self._streamer.follow(live)

    def _end_stream(self, name: str) -> None:
        ending = asyncio.get_running_loop().create_task(end([self._streams.pop(name)]), name=f"end {name}")
        self._ending[name] = ending
        ending.add_done_callback(lambda _: self._ending.pop(name) if self._ending.get(name) is ending else None)

    async def begin_reading(self, shards: Collection[int]) -> Callable[[], None]:
        """These become ours: learn where the last reader stood. What is returned stands there and reads on."""
        opened = self.just_opened
        states = opened.feeds if opened else {state.name: state for state in await self._store.feeds()}
        return lambda: self._read_on(shards, states)

    def _read_on(self, shards: Collection[int], states: Mapping[str, FeedState]) -> None:
        for live in self._in(shards):
            state = states.get(live.feed.name)
            if state is None:
                continue
            self._idle_reads.drop(live.feed.name)
            if live.busy:
                live.moved = True
                continue
            live.place(state)
            self._set_going(live, state)

    async def leave(self, shards: Collection[int]) -> None:
        """Another reads these from now on."""
        leaving = self._in(shards)
        streams = [live.feed.name for live in leaving if live.feed.name in self._streams and not _is_shared(live)]
        for live in leaving:
            self._scheduler.put(live, None)
        for name in streams:
            self._end_stream(name)
        if self._leases.held:
            await self._idle_reads.write()
        for live in leaving:
            self._idle_reads.drop(live.feed.name)

    def _in(self, shards: Collection[int]) -> list[LiveFeed]:
        return [live for live in self.feeds.values() if live.feed.shard in shards]

    def drop(self, name: str) -> None:
        live = self.feeds.pop(name)
        self._scheduler.put(live, None)
        self._idle_reads.drop(name)
        self.closer.retire(live)
        if name in self._streams:
            self._end_stream(name)

    def schedule(self, live: LiveFeed, state: FeedState) -> None:
        if live.poll is None or live.health.state == "paused" or not self._reading or not self.reads(live):
            self._scheduler.put(live, None)
            return
        self._scheduler.put(live, first_due(live, state, self._clock.time(), self._random))


def _is_shared(live: LiveFeed) -> bool:
    return isinstance(live.source, StreamSource) and live.source.shared
