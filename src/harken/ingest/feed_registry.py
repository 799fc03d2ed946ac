"""The feeds as this process has them: their sources, and which of them are read here.

The registry owns the LiveFeeds and their sources (opens and closes them), and decides which feeds are read here: shard
leases, schedule and streams. Intake, which calls it, runs the ticks, receives webhooks and applies definitions. Many
feeds may come from rows: of these a process has only those that it reads or that are pushed to it, and their sources
are built when they are needed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime
from random import Random

import msgspec
import structlog

from harken.clock import Clock
from harken.errors import HarkenError, NeedsAttention, RetryLater
from harken.event import Event
from harken.feed import Feed, FeedState
from harken.http import Connectivity
from harken.ingest.batched_idle_poll_writes import IdleReads
from harken.ingest.commit import Committer
from harken.ingest.feed_runtime_state import UNBUILT, LiveFeed
from harken.ingest.leases import ShardLeases
from harken.ingest.poll import SWEEP_SECONDS
from harken.ingest.scheduler import Scheduler, first_due
from harken.ingest.stored_event_backfill import FeedStore
from harken.ingest.stream import Streamer
from harken.source import Batch, Closable, Cursor, PollSource, Request, RingingSource, Source, StreamSource
from harken.store import Definitions, Opened
from harken.task_cancellation import cancel_and_wait
from harken.timings import Timings

__all__ = ["BrokenSource", "FeedRegistry", "SourceCloser"]

log = structlog.get_logger("harken.ingest")


class FeedRegistry:
    """All feeds by name. Those whose shard we hold are polled or streamed; without `reading` none is.

    `build(feed)` makes the source of a feed, `begin(live)` is called when a feed is due. A feed that `is_prompt` is
    read at once when its shard is taken over from another process; all others when their next read is due.
    `defined` are all feeds of the configuration, `feeds` those that are here: of feeds that come from rows (`is_row`)
    only what is pushed, and what is polled or streamed in the shards that we hold.
    """

    def __init__(
        self,
        store: FeedStore,
        clock: Clock,
        random: Random,
        build: Callable[[Feed], Source],
        *,
        holder: str,
        shards: int,
        reading: bool,
        committer: Committer,
        idle_reads: IdleReads,
        begin: Callable[[LiveFeed], None],
        timings: Timings,
        connectivity: Connectivity,
        is_prompt: Callable[[Feed], bool],
        is_row: Callable[[Feed], bool] = lambda feed: False,
    ) -> None:
        self._store = store
        self._is_row = is_row
        self._clock = clock
        self._random = random
        self._build = build
        self._is_prompt = is_prompt
        self._idle_reads = idle_reads
        self._rule_cache = committer.rule_cache
        self.reading = reading
        self.feeds: dict[str, LiveFeed] = {}
        self.defined: dict[str, Feed] = {}
        self._resumed = False
        # whether sources of a kind hear of changes, as the first of them does
        self._rings: dict[str, bool] = {}
        self.scheduler = Scheduler(clock, random, begin, timings)
        self.leases = ShardLeases(
            store,
            clock,
            holder,
            shards=shards,
            reading=reading,
            works=self.scheduler.works,
            on_taken=self._prepare_reading,
            on_leaving=self._end_reading,
            timings=timings,
        )
        self.closer = SourceCloser()
        leases = self.leases
        self.streamer = Streamer(
            store, committer, idle_reads, clock, random, leases.token, connectivity, timings, leases.has_expired
        )
        self._streams: dict[str, asyncio.Task[None]] = {}
        self._ending: dict[str, asyncio.Task[None]] = {}
        self._bells: dict[str, asyncio.Task[None]] = {}
        self._just_opened: Opened | None = None

    def reads(self, live: LiveFeed) -> bool:
        """Whether this process moves the feed's cursor."""
        return live.feed.shard in self.leases.held

    async def start(self, opened: Opened) -> None:
        """Take our share of the shards and begin to read their feeds, from the states that were just opened."""
        self.scheduler.start()
        if not self.reading:
            return
        self._just_opened = opened
        try:
            await self.leases.balance()
        except RetryLater as error:
            log.warning("lease.trouble", reason=str(error))
        finally:
            self._just_opened = None

    async def stop(self) -> None:
        """End the streams and close every source. Leases are kept until `leases.close`."""
        self.reading = False
        await cancel_and_wait([*self._streams.values(), *self._bells.values()])
        if self._ending:
            await asyncio.wait(self._ending.values())
        await self.closer.finish(self.feeds.values())

    def apply(
        self, definitions: Definitions, opened: Opened, *, renew: Collection[str], changed: Collection[str]
    ) -> None:
        """Have exactly the feeds of these definitions. Feeds to `renew` get a new source although they are equal.

        `changed` feeds have another revision than we knew, perhaps after a reset by another replica."""
        wanted = self.defined = {feed.name: feed for feed in definitions.feeds if feed.way != "internal"}
        self._resumed = self._resumed or definitions.starting
        for name in [name for name in self.feeds if name not in wanted or not self._belongs_here(wanted[name])]:
            self._drop(name)
        for feed in wanted.values():
            if self._belongs_here(feed):
                self._place(feed, opened.feeds[feed.name], renew=feed.name in renew)
        for name, live in self.feeds.items():
            if name in changed:
                live.outdated = True
            if definitions.starting:
                live.resumed = True

    def apply_part(self, part: Definitions, opened: Opened, *, renew: Collection[str]) -> None:
        """Have those feeds of the part that it defines, and no longer those that it only names."""
        defined = {feed.name: feed for feed in part.feeds if feed.way != "internal"}
        for name in part.only.feeds if part.only else ():
            if name in defined:
                self.defined[name] = defined[name]
            else:
                self.defined.pop(name, None)
            if name in defined and self._belongs_here(defined[name]):
                self._place(defined[name], opened.feeds[name], renew=name in renew)
                self.feeds[name].outdated = True
            elif name in self.feeds:
                self._drop(name)

    def _belongs_here(self, feed: Feed) -> bool:
        return feed.way == "push" or feed.shard in self.leases.held or not self._is_row(feed)

    def build_source(self, live: LiveFeed) -> None:
        """Build the source of the feed, if nobody has needed it yet."""
        if live.source is UNBUILT:
            live.use(self._make_source(live.feed))
            self._begin_listening(live)

    def begin_tick(self, live: LiveFeed) -> None:
        """A tick begins: what its source heard of before is read by it."""
        live.busy, live.rung = True, False
        if live.feed.name in self._bells and isinstance(live.source, RingingSource):
            live.ring_floor = self._clock.time() + live.source.ring_floor_seconds

    def end_tick(self, live: LiveFeed) -> None:
        """A tick is over: close the sources that were replaced during it, and schedule the next one."""
        live.busy = False
        if live.retired:
            self.closer.release(live)
        if self.feeds.get(live.feed.name) is live:
            self.scheduler.put(live, live.next_due if self.reads(live) else None)
            if live.rung:
                self._answer_ring(live)

    async def restore(self, live: LiveFeed) -> None:
        """Continue from the position that the store has; idle reads from before are out of date."""
        state = await self._store.state(live.feed.name)
        live.outdated = False
        self._idle_reads.drop(live.feed.name)
        live.restore(state)

    async def refresh(self, name: str) -> None:
        """The feed's state was changed in the store: use it now, or after the tick that is under way."""
        live = self.feeds.get(name)
        if live is None:
            return
        state = await self._store.state(name)
        if live.busy:
            live.health, live.outdated = state.health, True
        elif name in self._streams:
            # a connection that is open stays; one that ends continues from the position that the store has
            live.health = state.health
        else:
            live.restore(state)
            self._schedule(live, state)

    def _place(self, feed: Feed, state: FeedState, *, renew: bool) -> None:
        live = self.feeds.get(feed.name)
        if live is not None and live.feed.label != feed.label:
            # only people see it: the source and what is under way stay
            live.feed = msgspec.structs.replace(live.feed, label=feed.label)
        if live is not None and live.feed == feed and not renew:
            return
        waits = self._may_wait(feed)
        if waits and live is not None and live.feed == feed and live.source is UNBUILT:
            return
        source = UNBUILT if waits else self._make_source(feed)
        if live is not None and live.feed == feed and live.use(source):
            self.closer.release(live)
            self._end_bell(feed.name)
            self._begin_listening(live)
            return
        if live is not None:
            self._drop(feed.name)
        swept_at = self._clock.time() - self._random.random() * SWEEP_SECONDS
        live = self.feeds[feed.name] = LiveFeed(feed, source, state, swept_at=swept_at)
        self._begin_reading(live, state)

    def _may_wait(self, feed: Feed) -> bool:
        """Whether the source need not be built before it is used.

        One that hears of changes listens from the start, and the first of a kind is built to see whether it does.
        """
        if feed.way == "push":
            return self._is_row(feed)
        if feed.way != "poll" or feed.path or self._is_prompt(feed):
            return False
        return self._rings.get(feed.kind) is False

    def _make_source(self, feed: Feed) -> Source:
        try:
            source = self._build(feed)
        except HarkenError as error:
            return BrokenSource(error)
        if feed.kind not in self._rings:
            self._rings[feed.kind] = isinstance(source, RingingSource)
        return source

    def _drop(self, name: str) -> None:
        live = self.feeds.pop(name)
        self.scheduler.put(live, None)
        self._idle_reads.drop(name)
        self._end_bell(name)
        self.closer.retire(live)
        if name in self._streams:
            self._end_stream(name)

    def _begin_reading(self, live: LiveFeed, state: FeedState, *, taken_over: bool = False) -> None:
        name, source = live.feed.name, live.source
        if source is UNBUILT:
            if live.poll is not None:
                self._schedule(live, state, taken_over=taken_over)
        elif isinstance(source, StreamSource):
            if name not in self._streams and self.reading and self.reads(live):
                following = self._follow(live, self._ending.get(name))
                self._streams[name] = asyncio.create_task(following, name=f"stream {name}")
        elif isinstance(source, PollSource):
            self._schedule(live, state, taken_over=taken_over)
            self._begin_listening(live)

    def _begin_listening(self, live: LiveFeed) -> None:
        name, source = live.feed.name, live.source
        if (
            source is not UNBUILT
            and isinstance(source, RingingSource)
            and name not in self._bells
            and self.reading
            and self.reads(live)
        ):
            bell = asyncio.get_running_loop().create_task(self._listen(live, source), name=f"bell of {name}")
            self._bells[name] = bell
            bell.add_done_callback(_on_bell_ended)

    async def _listen(self, live: LiveFeed, source: RingingSource) -> None:
        while True:
            await source.rung()
            live.rung = True
            if not live.busy:
                self._answer_ring(live)

    def _answer_ring(self, live: LiveFeed) -> None:
        """Make the feed due, unless it is paused or failing: then it is read when its health allows."""
        due = max(self._clock.time(), live.ring_floor)
        if live.due is not None and due < live.due and live.health.clean:
            self.scheduler.put(live, due)

    def _end_bell(self, name: str) -> None:
        bell = self._bells.pop(name, None)
        if bell is not None:
            bell.cancel()

    def _schedule(self, live: LiveFeed, state: FeedState, *, taken_over: bool = False) -> None:
        stopped = live.health.state == "paused" and not live.health.probed
        if live.poll is None or stopped or not self.reading or not self.reads(live):
            self.scheduler.put(live, None)
            return
        now = self._clock.time()
        due = first_due(live, state, now, self._random)
        # what is failing keeps its wait, whoever reads it
        if due is not None and taken_over and live.health.clean and self._is_prompt(live.feed):
            due = min(due, now)
        self.scheduler.put(live, due)

    async def _follow(self, live: LiveFeed, before: asyncio.Task[None] | None) -> None:
        """Follow the stream, once the task that followed it before has ended."""
        if before is not None:
            await asyncio.wait({before})
        await self.streamer.follow(live)

    def _end_stream(self, name: str) -> None:
        ending = asyncio.get_running_loop().create_task(cancel_and_wait([self._streams.pop(name)]), name=f"end {name}")
        self._ending[name] = ending
        ending.add_done_callback(lambda _: self._ending.pop(name) if self._ending.get(name) is ending else None)

    async def _prepare_reading(self, shards: Collection[int]) -> Callable[[], None]:
        """Learn the positions of these shards' feeds. The function that is returned restores them and reads on."""
        # in a shared store another replica may have read them between the opening and our lease
        opened = None if self.leases.shared else self._just_opened
        taken_over = self._just_opened is None
        states = opened.feeds if opened else await self._states_of(shards, taken_over=taken_over)
        return lambda: self._resume_reading(shards, states, taken_over=taken_over)

    async def _states_of(self, shards: Collection[int], *, taken_over: bool) -> Mapping[str, FeedState]:
        """The states of the feeds of these shards: in a fleet all the others are none of our business.

        What is pushed has no position, so what was opened with the start is enough for it."""
        names = [feed.name for feed in self.defined.values() if feed.shard in shards]
        if not taken_over:
            names = [name for name in names if self.defined[name].way != "push"]
        return {state.name: state for state in await self._store.feeds(names=names)}

    def _resume_reading(self, shards: Collection[int], states: Mapping[str, FeedState], *, taken_over: bool) -> None:
        placed: set[str] = set()
        for feed in [feed for feed in self.defined.values() if feed.shard in shards and feed.name not in self.feeds]:
            if feed.name in states:
                # this begins to read it too
                self._place(feed, states[feed.name], renew=False)
                self.feeds[feed.name].resumed = self._resumed
                placed.add(feed.name)
        for live in self._feeds_of(shards):
            if live.feed.name in placed or (live.feed.way == "push" and not taken_over):
                continue
            state = states.get(live.feed.name)
            if state is None:
                continue
            self._idle_reads.drop(live.feed.name)
            if live.busy:
                live.outdated = True
                continue
            live.restore(state)
            self._begin_reading(live, state, taken_over=taken_over)

    async def _end_reading(self, shards: Collection[int]) -> None:
        """Take the feeds of these shards off the schedule, and end their streams."""
        leaving = self._feeds_of(shards)
        streams = [live.feed.name for live in leaving if live.feed.name in self._streams]
        for live in leaving:
            self.scheduler.put(live, None)
            self._end_bell(live.feed.name)
        for name in streams:
            self._end_stream(name)
        if self.leases.held:
            await self._idle_reads.write()
        for live in leaving:
            self._idle_reads.drop(live.feed.name)
            if live.feed.way != "push" and self._is_row(live.feed) and self.feeds.get(live.feed.name) is live:
                self._drop(live.feed.name)
                if self.leases.shared:
                    # whoever reads it next has newer ones
                    self._rule_cache.forget(live.feed.name)

    def _feeds_of(self, shards: Collection[int]) -> list[LiveFeed]:
        return [live for live in self.feeds.values() if live.feed.shard in shards]


def _on_bell_ended(bell: asyncio.Task[None]) -> None:
    if not bell.cancelled() and bell.exception() is not None:
        # the feed is read by its schedule
        log.error("source.bell_broken", task=bell.get_name(), exc_info=bell.exception())


class BrokenSource:
    """Stands for a source that could not be built: reading it fails with the reason, like any other failure.

    A webhook is to be sent again, as senders give up what is refused."""

    def __init__(self, error: HarkenError) -> None:
        self._error = error

    async def poll(self, cursor: Cursor, since: datetime) -> Batch:
        raise NeedsAttention(self._error.message, fix=self._error.fix)

    async def receive(self, request: Request) -> list[Event]:
        raise RetryLater("it cannot be taken now; send it again") from self._error


class SourceCloser:
    """Closes sources in the background; `finish` waits for all of them."""

    def __init__(self) -> None:
        self._closing: set[asyncio.Task[None]] = set()

    def retire(self, live: LiveFeed) -> None:
        """Close the feed's source: the feed is gone, or was replaced by one with another source."""
        if live.source is not UNBUILT:
            live.retired += (live.source,)
        self.release(live)

    def release(self, live: LiveFeed) -> None:
        """Close the feed's retired sources, unless it is being read: then this is called again after the tick."""
        if live.busy:
            return
        retired, live.retired = live.retired, ()
        for source in retired:
            self._close(source)

    async def finish(self, feeds: Iterable[LiveFeed]) -> None:
        """Close the sources of all these feeds, and wait until everything is closed."""
        for live in feeds:
            for source in (*live.retired, live.source):
                self._close(source)
        await asyncio.gather(*self._closing, return_exceptions=True)

    def _close(self, source: Source) -> None:
        if source is not UNBUILT and isinstance(source, Closable):
            task = asyncio.get_running_loop().create_task(source.aclose(), name="close a source")
            self._closing.add(task)
            task.add_done_callback(self._on_closed)

    def _on_closed(self, task: asyncio.Task[None]) -> None:
        self._closing.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("source.not_closed", exc_info=task.exception())
