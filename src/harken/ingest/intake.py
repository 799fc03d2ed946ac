"""Everything that brings events in: the schedule, the polls, the webhooks and the streams of one process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from random import Random
from typing import Any

import msgspec
import structlog

from harken.clock import Clock
from harken.errors import LeaseLost, NotFound, RetryLater
from harken.feed import INTERNAL, Feed, FeedState
from harken.ingest.backfill import Backfill, FeedStore
from harken.ingest.commit import Committer, Executor, RuleCache
from harken.ingest.feed_registry import FeedRegistry
from harken.ingest.idle_reads import FLUSH_SECONDS, IdleReads
from harken.ingest.leases import LEASE_SECONDS, ShardLeases
from harken.ingest.live import LiveFeed, TickReport
from harken.ingest.poll import Poller
from harken.ingest.scheduler import Scheduler, interval
from harken.ingest.stream import Streamer
from harken.ingest.webhook import MAX_BYTES, Endpoint, Webhooks
from harken.source import PushSource, Source
from harken.store import HOUSEKEEPING, Definitions, Opened
from harken.tasks import end

__all__ = ["Intake"]

log = structlog.get_logger("harken.ingest")

PARALLEL_TICKS = 64
LEASE_RETRY = 1.0
SOONER = 1.0


class Intake:
    """`build(feed)` makes the source of a feed; `hands` executes the runs. Start it, apply definitions, stop it.

    Every feed is known here; those are read whose shard this process holds. Without `reads` it holds none.
    """

    def __init__(
        self,
        store: FeedStore,
        clock: Clock,
        random: Random,
        executor: Executor,
        build: Callable[[Feed], Source],
        *,
        holder: str,
        lease_seconds: float = LEASE_SECONDS,
        rule_cache: RuleCache | None = None,
        shards: int = 1,
        reads: bool = True,
    ) -> None:
        self._store = store
        self._clock = clock
        self._random = random
        self._holder = holder
        self._reading = reads
        self.leases = ShardLeases(store, clock, holder, shards=shards, seconds=lease_seconds, reading=reads)
        self.rule_cache = rule_cache or RuleCache(store)
        self.committer = Committer(store, self.rule_cache, executor, clock)
        self.idle_reads = IdleReads(store)
        self.idle_reads.on_stale = self._changed
        self.poller = Poller(store, self.committer, self.idle_reads, clock, random, self.leases.token)
        self.backfill = Backfill(store, self.committer, clock)
        self.streamer = Streamer(store, self.committer, clock, random, self.leases.token)
        self.webhooks = Webhooks(self.committer, clock)
        self.scheduler = Scheduler(clock, random, self._begin)
        self.registry = FeedRegistry(
            store,
            clock,
            random,
            build,
            leases=self.leases,
            scheduler=self.scheduler,
            idle_reads=self.idle_reads,
            streamer=self.streamer,
            reading=reads,
        )
        self.feeds = self.registry.feeds
        self.leases.works = self.scheduler.works
        self.leases.on_taken, self.leases.on_leaving = self.registry.begin_reading, self.registry.leave
        self.skipped: Callable[[LiveFeed], None] = lambda live: None
        self._running: set[asyncio.Task[Any]] = set()
        self._room = asyncio.Semaphore(PARALLEL_TICKS)
        self._stopping = False

    async def start(self, definitions: Definitions) -> Opened:
        """Apply the definitions, take our share of the feeds and begin to read."""
        others = any(held.shard != HOUSEKEEPING and held.holder != self._holder for held in await self._store.leases())
        # who joins others that read already starts nothing anew
        starting = definitions.starting and not others
        opened = await self.apply(msgspec.structs.replace(definitions, starting=starting))
        self._spawn(self._flush(), "rests")
        self.scheduler.start()
        if self._reading:
            self.registry.just_opened = opened
            try:
                await self.leases.look()
            except RetryLater as error:
                log.warning("lease.trouble", reason=str(error))
            finally:
                self.registry.just_opened = None
            self._spawn(self.leases.keep(), "leases")
        return opened

    async def stop(self) -> None:
        """Read no more; let pages in flight commit; give the leases up."""
        self._stopping = True
        self.scheduler.stop()
        await end(self._running)
        await self.registry.stop()
        await self.idle_reads.write()
        try:
            await self.leases.close()
        except (RetryLater, LeaseLost) as error:
            log.warning("store.trouble", reason=str(error))

    async def apply(self, definitions: Definitions, *, renew: Collection[str] = ()) -> Opened:
        """Make these definitions the ones that run; what did not change goes on undisturbed.

        Feeds to `renew` get a new source although they are the same: their credential is another.
        """
        # what was read last has to stand in the store, or a feed that is replaced would be read again at once
        await self.idle_reads.write()
        known = {name: rules.revision for name in self.feeds if (rules := self.rule_cache.get(name)) is not None}
        opened = await self.leases.renewing(self._open, definitions)
        self.rule_cache.adopt(definitions, opened)
        if INTERNAL in opened.feeds:
            # runs match what they cause without waiting for the store
            await self.rule_cache.learn(INTERNAL)
        wanted = {feed.name: feed for feed in definitions.feeds}
        for name in [name for name in self.feeds if name not in wanted]:
            self.registry.drop(name)
        for feed in wanted.values():
            if feed.way != "internal":
                self.registry.place(feed, opened.feeds[feed.name], renew=feed.name in renew)
        for name in known.keys() & self.feeds.keys():
            if opened.feeds[name].revision != known[name]:
                # perhaps by a reset that we have not heard of: stand where the store says before the next read
                self.feeds[name].moved = True
        if definitions.starting:
            for live in self.feeds.values():
                live.resumed = True
        self._serve()
        await self.backfill.of_pushed(definitions, opened)
        return opened

    async def _open(self, definitions: Definitions) -> Opened:
        return await self._store.open(msgspec.structs.replace(definitions, holder=self._holder))

    async def refresh(self, feed: str) -> None:
        """A person changed something about this feed in the store: stand where it says."""
        self.idle_reads.drop(feed)
        await self.rule_cache.learn(feed)
        live = self.feeds.get(feed)
        if live is None:
            return
        state = await self._store.state(feed)
        if not live.busy:
            live.place(state)
            self.registry.schedule(live, state)
        else:
            live.health, live.moved = state.health, True

    def _changed(self, feed: str) -> None:
        if not self._stopping:
            self._spawn(self._refresh(feed), f"refresh {feed}")

    async def _refresh(self, feed: str) -> None:
        try:
            await self.refresh(feed)
        except RetryLater as error:
            # the next read that finds nothing tells of it again
            log.debug("refresh.later", feed=feed, reason=str(error))

    def is_woken(self, state: FeedState) -> bool:
        """Whether the store wants the feed read earlier than it is planned here."""
        live = self.feeds.get(state.name)
        planned = live.due if live is not None else None
        return planned is not None and state.next_due is not None and state.next_due.timestamp() < planned - SOONER

    async def tick(self, feed: str, by_hand: str = "") -> TickReport:
        """Read the feed now, through the same lease and commit as its schedule; for the trigger `by_hand`."""
        live = self._readable(feed)
        while live.busy:
            await self._clock.sleep(0.05)
            # a reload may have put another in its place
            live = self._readable(feed)
        self.scheduler.put(live, None)
        report = await self._tick(live, by_hand)
        # whoever asked for the read looks at once at what has become of it
        await self.idle_reads.write(feed)
        return report

    def _readable(self, feed: str) -> LiveFeed:
        live = self.feeds.get(feed)
        if live is None or live.poll is None:
            raise NotFound(f"there is no feed {feed!r} that can be read")
        return live

    def _serve(self) -> None:
        self.webhooks.serve(
            {
                live.feed.path: Endpoint(feed=name, source=live.source, max_bytes=_largest(live.source))
                for name, live in self.feeds.items()
                if live.feed.path and isinstance(live.source, PushSource)
            }
        )

    def _begin(self, live: LiveFeed) -> None:
        if not live.busy and not self._stopping:
            self._spawn(self._tick(live), live.feed.name)

    async def _tick(self, live: LiveFeed, by_hand: str = "") -> TickReport:
        live.busy = True
        try:
            report = await self._read(live, by_hand)
        except RetryLater as error:
            live.next_due = self._clock.time() + LEASE_RETRY
            report = TickReport(feed=live.feed.name, result="skipped", error=str(error))
        except Exception:
            # what is due already must not be tried again without a pause
            live.next_due = self._clock.time() + interval(live.feed)
            raise
        finally:
            live.busy = False
            self.registry.closer.release(live)
            if self.feeds.get(live.feed.name) is live and not self._stopping:
                self.scheduler.put(live, live.next_due if self.registry.reads(live) else None)
        if report.result == "skipped":
            self.skipped(live)
        return report

    async def _read(self, live: LiveFeed, by_hand: str) -> TickReport:
        try:
            async with self._room:
                if not self.registry.reads(live):
                    return TickReport(feed=live.feed.name, result="skipped", error="another replica reads this feed")
                if self.leases.is_late(live.feed.shard):
                    # better before the read than in vain after it
                    await self.leases.doubt(live.feed.shard)
                if live.moved:
                    await self._stand(live)
                rules = await self.rule_cache.rules(live.feed.name)
                if rules.resting:
                    live.next_due = None
                    return TickReport(feed=live.feed.name, result="skipped", error="all its triggers are paused")
                report = await self.poller.tick(live, by_hand)
                if live.moved:
                    await self._stand(live)
                return report
        except LeaseLost:
            await self._lost(live)
            return TickReport(feed=live.feed.name, result="skipped", error="the lease was lost; the read begins again")

    async def _lost(self, live: LiveFeed) -> None:
        """Someone else may have moved the cursor: stand where the store says before reading on."""
        await self.leases.doubt(live.feed.shard)
        await self._stand(live)
        live.next_due = self._clock.time() + LEASE_RETRY

    async def _stand(self, live: LiveFeed) -> None:
        """Stand where the store says; what was noted of reads before is out of date."""
        state = await self._store.state(live.feed.name)
        live.moved = False
        self.idle_reads.drop(live.feed.name)
        live.place(state)

    async def _flush(self) -> None:
        while True:
            await self._clock.sleep(FLUSH_SECONDS)
            try:
                await self.idle_reads.write()
            except Exception:
                # what waits is written with the next ones
                log.exception("rests.failed")

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
