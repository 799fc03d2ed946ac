"""Everything that brings events into one process.

Intake starts and stops, applies definitions, runs the ticks and receives webhooks. The FeedRegistry, which it calls,
owns the feeds with their sources and decides which of them are read here: shard leases, schedule and streams.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from random import Random
from typing import Any

import msgspec
import structlog

from harken.clock import Clock
from harken.errors import LeaseLost, NotFound, RetryLater
from harken.feed import INTERNAL, Feed, FeedState
from harken.http import Connectivity
from harken.ingest.batched_idle_poll_writes import IdleReads
from harken.ingest.commit import Committer, Executor, RuleCache
from harken.ingest.feed_registry import FeedRegistry
from harken.ingest.feed_runtime_state import UNBUILT, Late, LiveFeed, TickReport
from harken.ingest.poll import Poller
from harken.ingest.scheduler import TickSlots
from harken.ingest.start_times_set_by_wrong_clock import FUTURE, StartLines
from harken.ingest.stored_event_backfill import Backfill, FeedStore
from harken.ingest.webhook import MAX_BYTES, Endpoint, Webhooks
from harken.ingest.webhook_run_results import RunAnswers
from harken.source import Announced, AnnouncedSource, Lag, PushSource, Source
from harken.store import HOUSEKEEPING, Definitions, Opened
from harken.task_cancellation import cancel_and_wait
from harken.timings import Timings

__all__ = ["Intake"]

log = structlog.get_logger("harken.ingest")

LEASE_RETRY = 1.0
"""After a lost lease, or while the store is away, a feed is tried again after so many seconds."""
LOOK_SECONDS = 60.0
"""How often start lines are compared with the clock."""
SOONER = 1.0
"""A feed was woken if the store has it due so many seconds earlier than it is scheduled here."""


class Intake:
    """`build(feed)` makes the source of a feed; `executor` executes the runs. Start it, apply definitions, stop it.

    Every feed is known here; only those are read whose shard this process holds. Without `reads` it holds none.
    `slot_key(feed)` is the credential or host that the feed shares with others: see TickSlots.
    `is_prompt(feed)`: people wait for what it finds, so a process that takes it over from another reads it at once.
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
        rule_cache: RuleCache | None = None,
        shards: int = 1,
        reads: bool = True,
        timings: Timings = Timings(),
        connectivity: Connectivity | None = None,
        slot_key: Callable[[Feed], str] = lambda feed: feed.integration or feed.kind,
        is_prompt: Callable[[Feed], bool] = lambda feed: False,
        is_row: Callable[[Feed], bool] = lambda feed: False,
    ) -> None:
        self._store = store
        self._clock = clock
        self._holder = holder
        connectivity = connectivity or Connectivity(clock)
        self._flush_seconds = timings.idle_flush
        self.rule_cache = rule_cache or RuleCache(store)
        self.committer = Committer(store, self.rule_cache, executor, clock)
        self.idle_reads = IdleReads(store, on_stale=self._on_stale)
        self.registry = FeedRegistry(
            store,
            clock,
            random,
            build,
            holder=holder,
            shards=shards,
            reading=reads,
            committer=self.committer,
            idle_reads=self.idle_reads,
            begin=self._begin_tick,
            timings=timings,
            connectivity=connectivity,
            is_prompt=is_prompt,
            is_row=is_row,
        )
        self.feeds, self.leases, self.scheduler = self.registry.feeds, self.registry.leases, self.registry.scheduler
        engine = (store, self.committer, self.idle_reads, clock, random, self.leases.token)
        self.poller = Poller(*engine, timings=timings, connectivity=connectivity)
        self.backfill = Backfill(store, self.committer, clock)
        self.start_lines = StartLines(
            store,
            self.committer,
            self.backfill,
            clock,
            self.refresh,
            is_pushed=lambda feed: not self._is_polled(feed),
            skews=self._skews,
            newest=lambda: [live.newest for live in self.feeds.values() if live.newest is not None],
        )
        self.scheduler.on_jump = self._on_jump
        self._looked_at = clock.monotonic()
        self.run_answers = RunAnswers(store, clock)
        self.webhooks = Webhooks(self.committer, clock, self.run_answers)
        self.skipped: Callable[[LiveFeed], None] = lambda live: None
        self._running: set[asyncio.Task[Any]] = set()
        self._slot_key = slot_key
        self._slots = TickSlots(clock)
        # feeds whose sources are built when their webhook is called first, by path
        self._unbuilt: dict[str, str] = {}
        self._stopping = False

    async def start(self, definitions: Definitions) -> Opened:
        """Apply the definitions, take our share of the feeds and begin to read."""
        others = any(held.shard != HOUSEKEEPING and held.holder != self._holder for held in await self._store.leases())
        # a replica that joins others which read already is no new start for the triggers
        starting = definitions.starting and not others
        opened = await self._apply(msgspec.structs.replace(definitions, starting=starting), ())
        self.start_lines.note(opened, {trigger.name: trigger.feed for trigger in definitions.triggers})
        self._spawn(self._flush_idle_reads(), "idle reads")
        await self.registry.start(opened)
        # only now: before, no shard was held
        self._forget_rules_elsewhere()
        if self.registry.reading:
            self._spawn(self.leases.keep(), "leases")
        return opened

    async def stop(self) -> None:
        """End ticks and streams, write the idle reads, and release the leases."""
        self._stopping = True
        self.scheduler.stop()
        await cancel_and_wait(self._running)
        await self.registry.stop()
        await self.idle_reads.write()
        try:
            await self.leases.close()
        except (RetryLater, LeaseLost) as error:
            log.warning("store.trouble", reason=str(error))

    async def apply(self, definitions: Definitions, *, renew: Collection[str] = ()) -> Opened:
        """Make these definitions the ones that run; feeds that did not change go on undisturbed.

        Feeds to `renew` get a new source although they are equal: their credential was changed.
        """
        opened = await self._apply(definitions, renew)
        self._forget_rules_elsewhere()
        return opened

    async def _apply(self, definitions: Definitions, renew: Collection[str]) -> Opened:
        # a feed that is replaced starts from what the store has: without its last read it would be read again at once
        await self.idle_reads.write()
        known = {name: known for name in self.feeds if (known := self.rule_cache.revision(name)) is not None}
        opened = await self.leases.open_definitions(self._open, definitions)
        self.rule_cache.adopt(definitions, opened)
        if INTERNAL in opened.feeds:
            # runs match the events that they cause without waiting for the store
            await self.rule_cache.learn(INTERNAL)
        changed = {
            name for name, revision in known.items() if name in opened.feeds and opened.feeds[name].revision != revision
        }
        self.registry.apply(definitions, opened, renew=renew, changed=changed)
        self._serve_webhooks()
        await self.backfill.of_pushed(definitions, opened)
        return opened

    async def apply_part(self, part: Definitions, *, renew: Collection[str] = ()) -> Opened:
        """Make a part of the configuration current (`part.only`); all else goes on undisturbed."""
        assert part.only is not None
        opened = await self.leases.open_definitions(self._open, part)
        before = self._with_paths(part.only.feeds)
        for name in part.only.feeds:
            if name not in opened.feeds:
                self.rule_cache.forget(name)
            elif name in self.feeds or name == INTERNAL:
                await self.rule_cache.learn(name)
            else:
                # learnt when it is read
                self.rule_cache.forget(name)
        self.registry.apply_part(part, opened, renew=renew)
        self._serve_changed(before, self._with_paths(part.only.feeds))
        await self.backfill.of_pushed(part, opened)
        return opened

    def is_elsewhere(self, feed: str) -> bool:
        """Whether only other replicas read the feed, and nothing of it is here but its definition."""
        return feed not in self.feeds and feed in self.registry.defined

    def _forget_rules_elsewhere(self) -> None:
        """Have no rules of feeds that others read: who takes one over learns them as they are then."""
        if self.leases.shared:
            self.rule_cache.keep(lambda feed: not self.is_elsewhere(feed))

    def _with_paths(self, feeds: Collection[str]) -> list[Feed]:
        """Those of the feeds that have a webhook, as they are defined now."""
        defined = self.registry.defined
        return [found for name in feeds if (found := defined.get(name)) is not None and found.path]

    async def _open(self, definitions: Definitions) -> Opened:
        return await self._store.open(msgspec.structs.replace(definitions, holder=self._holder))

    async def refresh(self, feed: str) -> None:
        """The feed or its triggers were changed in the store: learn its rules and its position."""
        if self.is_elsewhere(feed):
            self.rule_cache.forget(feed)
            return
        self.idle_reads.drop(feed)
        await self.rule_cache.learn(feed)
        await self.registry.refresh(feed)

    def _on_stale(self, feed: str) -> None:
        if not self._stopping:
            self._spawn(self._refresh_or_wait(feed), f"refresh {feed}")

    async def _refresh_or_wait(self, feed: str) -> None:
        try:
            await self.refresh(feed)
        except RetryLater as error:
            # the next idle read is stale again, and leads here again
            log.debug("feed.refresh_postponed", feed=self.display_name(feed), reason=str(error))

    def display_name(self, feed: str) -> str:
        """What people see in place of the name of a feed."""
        found = self.registry.defined.get(feed)
        return found.display_name if found is not None else feed

    def _is_polled(self, feed: str) -> bool:
        found = self.registry.defined.get(feed)
        return found is not None and found.way == "poll"

    def _skews(self) -> list[float]:
        """How many seconds each service is ahead of us, of those that say so."""
        clocks = (live.service_clock for live in self.feeds.values())
        return [clock.skew for clock in clocks if clock.is_known]

    def _are_lines_ahead(self) -> bool:
        """Whether a start line is in the future; looked at once a minute."""
        now = self._clock.monotonic()
        if now - self._looked_at < LOOK_SECONDS:
            return False
        self._looked_at = now
        return bool(self.rule_cache.start_lines_after(self._clock.now() + FUTURE))

    def _on_jump(self, seconds: float) -> None:
        for live in self.feeds.values():
            live.service_clock.shift(seconds)
        if seconds < 0 and not self._stopping:
            self._spawn(self.start_lines.clock_set_back(-seconds), "start lines")

    def is_woken(self, state: FeedState) -> bool:
        """Whether the store has the feed due earlier than it is scheduled here."""
        live = self.feeds.get(state.name)
        if live is None or live.due is None or live.health.offline_since is not None:
            # offline, most tries are not written, and the next one comes soon
            return False
        return state.next_due is not None and state.next_due.timestamp() < live.due - SOONER

    def late_reads(self) -> dict[str, Late]:
        """The feeds whose reads are due and wait for a slot, by name."""
        now = self._clock.monotonic()
        return {
            name: Late(seconds=max(0.0, now - waiting.since), reason=f"waits for a slot, {waiting.reason}")
            for name, waiting in self._slots.waiting().items()
        }

    def stream_lags(self) -> dict[str, Lag]:
        """What waits at the brokers of the streams that this process follows, by feed, as far as they say."""
        now = self._clock.now()
        return {name: lag.at(now) for name, lag in self.registry.streamer.lags.items()}

    def announced(self) -> dict[str, Announced]:
        """How many changes the feeds that hear of them were told of, by feed."""
        sources = ((name, live.source) for name, live in self.feeds.items())
        return {name: source.announced for name, source in sources if isinstance(source, AnnouncedSource)}

    def in_hand_since(self, feed: str, key: str) -> datetime | None:
        """Since when this process holds a message of a stream that is not committed yet; None if it has none."""
        found = self.registry.streamer.in_hand.get(feed)
        return found.since if found is not None and found.has(key) else None

    @property
    def lag(self) -> float:
        """How many seconds late the last read was begun, or how long one waits for its slot if that is longer."""
        return max([0.0, self.scheduler.lag, *(late.seconds for late in self.late_reads().values())])

    async def tick(self, feed: str, by_hand: str = "") -> TickReport:
        """Read the feed now, through the same lease and commit as its schedule; for the trigger `by_hand`."""
        live = self._pollable(feed)
        while live.busy:
            await self._clock.sleep(0.05)
            # a reload may have replaced it
            live = self._pollable(feed)
        self.scheduler.put(live, None)
        report = await self._tick(live, by_hand)
        # the caller looks at the outcome at once
        await self.idle_reads.write(feed)
        return report

    def _pollable(self, feed: str) -> LiveFeed:
        live = self.feeds.get(feed)
        if live is None or live.poll is None:
            raise NotFound(f"there is no feed {feed!r} that can be read")
        return live

    def _serve_webhooks(self) -> None:
        with_paths = {live.feed.path: live for live in self.feeds.values() if live.feed.path}
        endpoints = {
            path: _endpoint(live.feed, live.source)
            for path, live in with_paths.items()
            if live.source is not UNBUILT and isinstance(live.source, PushSource)
        }
        polled = [path for path, endpoint in endpoints.items() if self._is_polled(endpoint.feed)]
        endpoints |= {short: endpoints[path] for short, path in _short_paths(polled).items()}
        self._unbuilt = {path: live.feed.name for path, live in with_paths.items() if live.source is UNBUILT}
        self.webhooks.serve(endpoints, further=self._unbuilt.keys(), find=self._find_endpoint)

    def _serve_changed(self, before: Sequence[Feed], after: Sequence[Feed]) -> None:
        """Serve the webhooks of feeds that were changed; of 100,000 the others are not looked at."""
        if any(feed.way == "poll" for feed in (*before, *after)):
            # these have short paths too, which depend on each other
            self._serve_webhooks()
            return
        lives = {feed.path: self.feeds.get(feed.name) for feed in after}
        for path in {feed.path for feed in before} | lives.keys():
            live = lives.get(path)
            self._unbuilt.pop(path, None)
            endpoint: Endpoint | None = None
            if live is not None and live.source is UNBUILT:
                self._unbuilt[path] = live.feed.name
            elif live is not None and isinstance(live.source, PushSource):
                endpoint = _endpoint(live.feed, live.source)
            self.webhooks.change(path, endpoint)

    def _find_endpoint(self, path: str) -> Endpoint | None:
        live = self.feeds.get(self._unbuilt[path])
        if live is None:
            return None
        self.registry.build_source(live)
        return _endpoint(live.feed, live.source) if isinstance(live.source, PushSource) else None

    def _begin_tick(self, live: LiveFeed) -> None:
        if not live.busy and not self._stopping:
            self._spawn(self._tick(live), live.feed.name)

    async def _tick(self, live: LiveFeed, by_hand: str = "") -> TickReport:
        self.registry.begin_tick(live)
        try:
            report = await self._read(live, by_hand)
        except RetryLater as error:
            live.next_due = self._clock.time() + LEASE_RETRY
            report = TickReport(feed=live.feed.name, result="skipped", error=str(error))
        except Exception:
            # it was due already: without a pause it would be tried again at once
            live.next_due = self._clock.time() + live.feed.interval
            raise
        finally:
            self.registry.end_tick(live)
        if report.result == "skipped":
            self.skipped(live)
        return report

    def _key_of(self, live: LiveFeed) -> str:
        """Work out the key of the feed's slot, once: that costs as much as a tenth of a tick."""
        live.slot_key = self._slot_key(live.feed)
        return live.slot_key

    async def _read(self, live: LiveFeed, by_hand: str) -> TickReport:
        try:
            with await self._slots.enter(live.feed.name, live.slot_key or self._key_of(live)):
                if not self.registry.reads(live):
                    return TickReport(feed=live.feed.name, result="skipped", error="another replica reads this feed")
                if self.leases.has_expired(live.feed.shard):
                    # better to find out before the read than after it
                    await self.leases.verify(live.feed.shard)
                if live.outdated:
                    await self.registry.restore(live)
                if live.source is UNBUILT:
                    self.registry.build_source(live)
                rules = await self.rule_cache.rules(live.feed.name)
                if rules.resting:
                    live.next_due = None
                    return TickReport(feed=live.feed.name, result="skipped", error="all its triggers are paused")
                report = await self.poller.tick(live, rules, by_hand)
                if live.outdated:
                    await self.registry.restore(live)
                return report
        except LeaseLost:
            # another replica may have moved the cursor
            await self.leases.verify(live.feed.shard)
            await self.registry.restore(live)
            live.next_due = self._clock.time() + LEASE_RETRY
            return TickReport(feed=live.feed.name, result="skipped", error="the lease was lost; the read begins again")

    async def _flush_idle_reads(self) -> None:
        while True:
            await self._clock.sleep(self._flush_seconds)
            try:
                await self.idle_reads.write()
                if self._are_lines_ahead():
                    await self.start_lines.look()
            except Exception:
                # they are kept and written with the next ones
                log.exception("idle_reads.failed")

    def _spawn(self, work: Any, name: str) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("ingest.failed", task=task.get_name(), exc_info=task.exception())


def _short_paths(paths: Sequence[str]) -> dict[str, str]:
    """The whole path by its first part (`github`), where only one of these paths begins with it."""
    count = Counter(path.partition("/")[0] for path in paths)
    return {short: path for path in paths if count[short := path.partition("/")[0]] == 1}


def _endpoint(feed: Feed, source: PushSource) -> Endpoint:
    """Where webhooks of the feed arrive, with the limits of its source, or the default ones."""
    return Endpoint(
        feed=feed.name,
        source=source,
        max_bytes=int(getattr(source, "max_bytes", MAX_BYTES)),
        empty_answer=bool(getattr(source, "empty_answer", False)),
        claims_tickets=bool(getattr(source, "claims_tickets", False)),
        max_per_minute=int(getattr(source, "max_per_minute", 0)),
        respond_seconds=feed.respond_seconds,
    )
