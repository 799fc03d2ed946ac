"""Everything that brings events in: the schedule, the polls, the webhooks and the streams of one process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from datetime import datetime
from random import Random
from typing import Any

import msgspec
import structlog

from harken.clock import Clock
from harken.errors import HarkenError, LeaseLost, NeedsAttention, NotFound, RetryLater
from harken.feed import INTERNAL, Feed, FeedState
from harken.ingest.backfill import Backfill, Shelf
from harken.ingest.bounds import first_due, interval
from harken.ingest.closing import Closer
from harken.ingest.gate import Gate, Hands
from harken.ingest.lease import LEASE_SECONDS, Keeper
from harken.ingest.live import Live, Report
from harken.ingest.poll import SWEEP_SECONDS, Poller
from harken.ingest.rests import FLUSH_SECONDS, Rests
from harken.ingest.rulebook import Rulebook
from harken.ingest.stream import Streamer
from harken.ingest.timer import Timer
from harken.ingest.webhook import MAX_BYTES, Endpoint, Webhooks
from harken.source import Batch, Cursor, PollSource, PushSource, Source, StreamSource
from harken.store import Definitions, Opened

__all__ = ["Intake"]

log = structlog.get_logger("harken.ingest")

PARALLEL_TICKS = 64
LEASE_RETRY = 1.0


class Broken:
    """Stands in for a source that cannot be made; reading it fails with the reason, like any other failure."""

    def __init__(self, error: HarkenError) -> None:
        self._error = error

    async def poll(self, cursor: Cursor, since: datetime) -> Batch:
        raise NeedsAttention(self._error.message, fix=self._error.fix)


class Intake:
    """`build(feed)` makes the source of a feed; `hands` executes the runs. Start it, apply definitions, stop it."""

    def __init__(
        self,
        store: Shelf,
        clock: Clock,
        random: Random,
        hands: Hands,
        build: Callable[[Feed], Source],
        *,
        holder: str,
        lease_seconds: float = LEASE_SECONDS,
        rulebook: Rulebook | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._random = random
        self._build = build
        self.keeper = Keeper(store, clock, holder, seconds=lease_seconds)
        self.rulebook = rulebook or Rulebook(store)
        self.gate = Gate(store, self.rulebook, hands, clock)
        self.rests = Rests(store)
        self.poller = Poller(store, self.gate, self.rests, clock, random, self.keeper.token)
        self.backfill = Backfill(store, self.gate, clock)
        self.streamer = Streamer(store, self.gate, clock, random, self.keeper.token)
        self.webhooks = Webhooks(self.gate, clock)
        self.timer = Timer(clock, random, self._begin)
        self.feeds: dict[str, Live] = {}
        self.skipped: Callable[[Live], None] = lambda live: None
        self._running: set[asyncio.Task[Any]] = set()
        self._streams: dict[str, asyncio.Task[None]] = {}
        self._closer = Closer()
        self._room = asyncio.Semaphore(PARALLEL_TICKS)
        self._stopping = False

    async def start(self, definitions: Definitions) -> Opened:
        """Take the lease, apply the definitions and begin to read."""
        # who joins others that read already starts nothing anew
        starting = await self.keeper.take() and definitions.starting
        opened = await self.apply(msgspec.structs.replace(definitions, starting=starting))
        self._spawn(self.keeper.keep(), "lease")
        self._spawn(self._flush(), "rests")
        self.timer.start()
        return opened

    async def stop(self) -> None:
        """Read no more; let pages in flight commit; give the lease up."""
        self._stopping = True
        self.timer.stop()
        for task in list(self._running) + list(self._streams.values()):
            task.cancel()
        await asyncio.gather(*self._running, *self._streams.values(), return_exceptions=True)
        await self._closer.finish(self.feeds.values())
        try:
            await self.rests.flush()
            await self.keeper.give_up()
        except (RetryLater, LeaseLost) as error:
            log.warning("store.trouble", reason=str(error))

    async def apply(self, definitions: Definitions, *, renew: Collection[str] = ()) -> Opened:
        """Make these definitions the ones that run; what did not change goes on undisturbed.

        Feeds to `renew` get a new source although they are the same: their credential is another.
        """
        # what was read last has to stand in the store, or a feed that is replaced would be read again at once
        await self._write_rests()
        opened = await self._store.open(definitions)
        self.rulebook.adopt(definitions, opened)
        if INTERNAL in opened.feeds:
            # runs match what they cause without waiting for the store
            await self.rulebook.learn(INTERNAL)
        wanted = {feed.name: feed for feed in definitions.feeds}
        for name in [name for name in self.feeds if name not in wanted]:
            self._drop(name)
        for feed in wanted.values():
            if feed.way != "internal":
                self._place(feed, opened.feeds[feed.name], renew=feed.name in renew)
        if definitions.starting:
            for live in self.feeds.values():
                live.resumed = True
        self._serve()
        await self.backfill.of_pushed(definitions, opened)
        return opened

    async def refresh(self, feed: str) -> None:
        """A person changed something about this feed in the store: stand where it says."""
        self.rests.drop(feed)
        await self.rulebook.learn(feed)
        live = self.feeds.get(feed)
        if live is None:
            return
        state = await self._store.state(feed)
        if not live.busy:
            live.place(state)
            self._schedule(live, state)
        else:
            live.health, live.moved = state.health, True

    async def tick(self, feed: str, by_hand: str = "") -> Report:
        """Read the feed now, through the same lease and commit as its schedule; for the trigger `by_hand`."""
        live = self._readable(feed)
        while live.busy:
            await self._clock.sleep(0.05)
            # a reload may have put another in its place
            live = self._readable(feed)
        self.timer.put(live, None)
        report = await self._tick(live, by_hand)
        # whoever asked for the read looks at once at what has become of it
        await self._write_rests(feed)
        return report

    def _readable(self, feed: str) -> Live:
        live = self.feeds.get(feed)
        if live is None or live.poll is None:
            raise NotFound(f"there is no feed {feed!r} that can be read")
        return live

    def _place(self, feed: Feed, state: FeedState, *, renew: bool) -> None:
        live = self.feeds.get(feed.name)
        if live is not None and live.feed == feed and not renew:
            return
        try:
            source = self._build(feed)
        except HarkenError as error:
            source = Broken(error)
        if live is not None and live.feed == feed and live.use(source):
            self._closer.release(live)
            return
        if live is not None:
            self._drop(feed.name)
        swept_at = self._clock.time() - self._random.random() * SWEEP_SECONDS
        live = self.feeds[feed.name] = Live(feed, source, state, swept_at=swept_at)
        if isinstance(source, StreamSource):
            self._streams[feed.name] = asyncio.create_task(self.streamer.follow(live), name=f"stream {feed.name}")
        elif isinstance(source, PollSource):
            self._schedule(live, state)

    def _drop(self, name: str) -> None:
        live = self.feeds.pop(name)
        self.timer.put(live, None)
        self.rests.drop(name)
        self._closer.retire(live)
        stream = self._streams.pop(name, None)
        if stream is not None:
            stream.cancel()

    def _serve(self) -> None:
        self.webhooks.serve(
            {
                live.feed.path: Endpoint(feed=name, source=live.source, max_bytes=_largest(live.source))
                for name, live in self.feeds.items()
                if live.feed.path and isinstance(live.source, PushSource)
            }
        )

    def _schedule(self, live: Live, state: FeedState) -> None:
        if live.poll is None or live.health.state == "paused":
            self.timer.put(live, None)
            return
        self.timer.put(live, first_due(live, state, self._clock.time(), self._random))

    def _begin(self, live: Live) -> None:
        if not live.busy and not self._stopping:
            self._spawn(self._tick(live), live.feed.name)

    async def _tick(self, live: Live, by_hand: str = "") -> Report:
        live.busy = True
        try:
            report = await self._read(live, by_hand)
        except RetryLater as error:
            live.next_due = self._clock.time() + LEASE_RETRY
            report = Report(feed=live.feed.name, result="skipped", error=str(error))
        except Exception:
            # what is due already must not be tried again without a pause
            live.next_due = self._clock.time() + interval(live.feed)
            raise
        finally:
            live.busy = False
            self._closer.release(live)
            if self.feeds.get(live.feed.name) is live and not self._stopping:
                self.timer.put(live, live.next_due)
        if report.result == "skipped":
            self.skipped(live)
        return report

    async def _read(self, live: Live, by_hand: str) -> Report:
        try:
            async with self._room:
                if not self.keeper.held and not await self.keeper.take():
                    live.next_due = self._clock.time() + LEASE_RETRY
                    return Report(feed=live.feed.name, result="skipped", error="another process reads this feed")
                rules = await self.rulebook.rules(live.feed.name)
                if rules.resting:
                    live.next_due = None
                    return Report(feed=live.feed.name, result="skipped", error="all its triggers are paused")
                report = await self.poller.tick(live, by_hand)
                if live.moved:
                    await self._stand(live)
                return report
        except LeaseLost:
            await self._lost(live)
            return Report(feed=live.feed.name, result="skipped", error="the lease was lost; the read begins again")

    async def _lost(self, live: Live) -> None:
        """Someone else may have moved the cursor: stand where the store says before reading on."""
        await self.keeper.take()
        await self._stand(live)
        live.next_due = self._clock.time() + LEASE_RETRY

    async def _stand(self, live: Live) -> None:
        """Stand where the store says; what was noted of reads before is out of date."""
        live.moved = False
        self.rests.drop(live.feed.name)
        live.place(await self._store.state(live.feed.name))

    async def _flush(self) -> None:
        while True:
            await self._clock.sleep(FLUSH_SECONDS)
            await self._write_rests()

    async def _write_rests(self, feed: str = "") -> None:
        try:
            await self.rests.flush(feed)
        except (RetryLater, LeaseLost) as error:
            log.warning("store.trouble", reason=str(error))

    def _spawn(self, work: Any, name: str) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("ingest.failed", task=task.get_name(), exc_info=task.exception())


def _largest(source: PushSource) -> int:
    """What the source says about the size of a body, or the default."""
    return int(getattr(source, "max_bytes", MAX_BYTES))
