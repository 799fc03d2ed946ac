"""One tick: read a feed page by page and commit each page before the next is asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from datetime import datetime
from random import Random
from typing import Any

import msgspec
import structlog

from harken import backoff
from harken.clock import Clock, from_unix
from harken.errors import HarkenError, LeaseLost, RetryLater, StoreBusy, StoreUnavailable
from harken.event import Span, Verdict
from harken.ingest.backfill import Backfill, FeedStore
from harken.ingest.commit import CommitRequest, Committer
from harken.ingest.idle_reads import IdleReads
from harken.ingest.live import LiveFeed, TickReport
from harken.ingest.scheduler import due_after, since, watermark
from harken.match import Read, Rules, Sighting, in_turn, memory_id
from harken.schedule import Every
from harken.source import Batch
from harken.store import Failure, IdleRead, Tick

__all__ = ["Poller", "count_fired", "let_go"]

log = structlog.get_logger("harken.ingest")


def let_go(live: LiveFeed, rules: Rules, now: datetime) -> None:
    """Forget the runs of a trigger once the next one would be due: what is new goes out at once again."""
    known = {rule.uid: rule for rule in rules.rules}
    for uid, count in tuple(live.fired.items()):
        begun, rule = live.begun[uid], known.get(uid)
        # one that has yet to begin was noted before the clock was set back
        if rule is None or begun > now or in_turn(rule, rules, begun, count) <= now:
            del live.fired[uid], live.begun[uid]


def count_fired(live: LiveFeed, rules: Rules, verdicts: Iterable[Iterable[Verdict]], now: datetime) -> None:
    """Note what was committed, so that what comes later has its place behind it."""
    by_name = {rule.name: rule.uid for rule in rules.rules if rule.trigger.spacing is not None}
    if not by_name:
        return
    for verdict in (verdict for decided in verdicts for verdict in decided):
        uid = by_name.get(verdict.trigger)
        if uid is not None and verdict.outcome in ("fired", "held"):
            live.fired[uid] = live.fired.get(uid, 0) + 1
            live.begun.setdefault(uid, now)


SWEEP_SECONDS = 3600.0

TOUCH_SLACK = 2 * SWEEP_SECONDS

MEMORY_CAP = 10_000


class Poller:
    """Ticks feeds. `token` gives that of a shard when a read begins: whoever takes the shard over ends the read."""

    def __init__(
        self,
        store: FeedStore,
        committer: Committer,
        idle_reads: IdleReads,
        clock: Clock,
        random: Random,
        token: Callable[[int], int],
    ) -> None:
        self._store = store
        self._committer = committer
        self._idle_reads = idle_reads
        self._clock = clock
        self._random = random
        self._token = token
        self._backfill = Backfill(store, committer, clock)
        self.observe: Callable[[LiveFeed, TickReport, float], None] = lambda live, report, seconds: None

    async def tick(self, live: LiveFeed, by_hand: str = "") -> TickReport:
        """Read the feed once; it is never raised from, except for a lost lease or a cancelled task.

        `by_hand` is the trigger for which a person asked."""
        clock = self._clock
        started, began = clock.time(), clock.monotonic()
        live.health = backoff.before_try(live.health, started)
        live.by_hand = by_hand
        live.token = self._token(live.feed.shard)
        try:
            report = await self._read(live, started, began)
        except LeaseLost:
            raise
        except Exception as error:
            report = await self._failed(live, error, started, clock.monotonic() - began)
        self.observe(live, report, clock.monotonic() - began)
        return report

    async def _read(self, live: LiveFeed, started: float, began: float) -> TickReport:
        seen = new = 0
        feed = live.feed
        rules = await self._committer.rule_cache.rules(feed.name)
        if rules.backfilling:
            await self._backfill.decide_again(feed.name, live.token)
            rules = await self._committer.rule_cache.rules(feed.name)
        poll = live.poll
        assert poll is not None
        deadline = began + feed.tick_timeout
        while True:
            start = since(live, rules)
            if not live.page:
                live.reading_since = start
            try:
                async with asyncio.timeout(feed.page_timeout):
                    batch = await poll(live.cursor, start)
            except TimeoutError as error:
                message = f"{feed.name} gave no page within {feed.page_timeout:.0f} s"
                raise RetryLater(message, reason="timeout") from error
            late = self._clock.monotonic() > deadline
            fresh = await self._take(live, batch, rules, started, (seen, new), late)
            seen += len(batch.events)
            new += fresh
            if not batch.more or late:
                break
        result = "events" if new else "unchanged" if batch.unchanged else "nothing_new"
        return TickReport(feed=feed.name, result=result, seen=seen, new=new)

    async def _take(
        self, live: LiveFeed, batch: Batch, rules: Rules, started: float, sums: tuple[int, int], late: bool
    ) -> int:
        feed = live.feed
        now = self._clock.time()
        sightings = await self._committer.recognise(feed.name, batch.events) if batch.events else []
        self._list(live, batch, rules)
        done = not batch.more
        step = backoff.after_success(live.health, now) if done else None
        due = due_after(live, now, started, self._random, batch.next_at) if done else now if late else None
        newest = watermark(live, batch, now)
        whole = done and batch.complete
        covered = batch.covered or (Span(live.reading_since, from_unix(started)) if whole else None)
        quiet = done and not sightings and live.baselined and not live.page and not rules.backfilling
        if quiet:
            self._rest(live, batch, rules.revision, due, newest, covered, step, started, now)
        else:
            await self._commit(live, batch, sightings, rules, due, newest, covered, step, started, now, sums)
        live.cursor, live.watermark, live.next_due = batch.cursor, newest, due
        live.page += 1
        if done:
            live.page, live.baselined = 0, True
            live.whole, live.resumed = True, False
            if step is not None and step.health is not live.health:
                self._say(live, step)
                live.health = step.health
            await self._sweep(live, batch, now)
        return len(sightings)

    def _rest(
        self,
        live: LiveFeed,
        batch: Batch,
        revision: int,
        due: float | None,
        watermark: datetime | None,
        covered: Span | None,
        step: backoff.Step | None,
        started: float,
        now: float,
    ) -> None:
        health = step.health if step is not None and step.health is not live.health else None
        self._idle_reads.add(
            IdleRead(
                feed=live.feed.name,
                token=live.token,
                revision=revision,
                count=1,
                result="unchanged" if batch.unchanged else "nothing_new",
                seen=len(batch.events),
                first_at=from_unix(started),
                last_at=from_unix(now),
                next_due=None if due is None else from_unix(due),
                cursor=batch.cursor if batch.cursor != live.cursor else msgspec.UNSET,
                watermark=watermark if watermark != live.watermark else None,
                covered=covered,
                health=health,
            )
        )

    async def _commit(
        self,
        live: LiveFeed,
        batch: Batch,
        sightings: list[Sighting],
        rules: Rules,
        due: float | None,
        watermark: datetime | None,
        covered: Span | None,
        step: backoff.Step | None,
        started: float,
        now: float,
        sums: tuple[int, int],
    ) -> None:
        done = not batch.more
        tick = None
        if done:
            new = sums[1] + len(sightings)
            tick = Tick(
                result="events" if new else "changed",
                started_at=from_unix(started),
                seconds=now - started,
                seen=sums[0] + len(batch.events),
                new=new,
                covered=covered,
            )
        rest: dict[str, Any] = {
            "cursor": batch.cursor,
            "watermark": watermark,
            "next_due": None if due is None else from_unix(due),
            "health": step.health if step is not None and step.health is not live.health else None,
            "tick": tick,
            "done": done,
        }
        # a cursor that we did not set may stand in the middle of a read that began later than now asked for, and so
        # may one of ours, where a trigger came in the meantime
        whole = done and live.whole
        looked_back = [rule for rule in rules.backfilling if whole and live.reading_since <= rule.start_line]
        rest["backfilled"] = [rule.uid for rule in looked_back]
        if not live.page:
            let_go(live, rules, from_unix(now))
        read = Read(
            now=from_unix(now),
            first=not live.baselined,
            page=live.page,
            fired=live.fired,
            begun=live.begun,
            resumed=live.resumed,
            by_hand=live.by_hand,
        )
        page = CommitRequest(
            events=batch.events,
            read=read,
            token=live.token,
            rest=rest,
            epochs={rule.uid: rule.state.epoch for rule in rules.rules},
            ends_first=done and not live.baselined,
        )
        await self._idle_reads.flush(live.feed.name)
        committed = await self._committer.take(live.feed.name, page, sightings)
        # what could not be written before is older than this
        self._idle_reads.drop(live.feed.name)
        count_fired(live, rules, committed.verdicts, read.now)
        if looked_back:
            await self._committer.rule_cache.learn(live.feed.name)

    def _list(self, live: LiveFeed, batch: Batch, rules: Rules) -> None:
        """While a sweep is due, note what two complete reads list."""
        if not batch.complete:
            live.listed = None
        elif live.listed is not None and not batch.unchanged:
            live.listed.update(memory_id(event, rules.feed.identity) for event in batch.events)

    async def _sweep(self, live: LiveFeed, batch: Batch, now: float) -> None:
        """Forget what the last two complete reads with content did not list, if it was last seen long ago."""
        if now - live.swept_at < SWEEP_SECONDS or batch.unchanged or not batch.complete:
            return
        if live.listed is None:
            live.listed, live.sweeps = set(), 0
            return
        live.sweeps += 1
        if live.sweeps < 2:
            return
        listed, live.listed, live.swept_at = live.listed, None, now
        before = from_unix(now - live.feed.memory_seconds - TOUCH_SLACK)
        gone = await self._store.forget(live.feed.name, live.token, sorted(listed), before)
        if len(listed) > MEMORY_CAP:
            log.warning("memory.large", feed=live.feed.name, listed=len(listed), cap=MEMORY_CAP)
        if gone:
            log.debug("memory.swept", feed=live.feed.name, gone=gone)

    async def _failed(self, live: LiveFeed, error: Exception, started: float, seconds: float) -> TickReport:
        feed = live.feed
        now = self._clock.time()
        interval = feed.schedule.seconds if isinstance(feed.schedule, Every) else 60.0
        step = backoff.after_failure(
            error, live.health, live.policy, interval=interval, now=now, roll=self._random.random()
        )
        message = step.health.message if step.health is not live.health else str(error)
        report = TickReport(feed=feed.name, result="error", error=message)
        live.next_due = None if step.health.state == "paused" else now + step.wait_seconds
        if isinstance(error, StoreBusy | StoreUnavailable):
            return report
        limited = isinstance(error, RetryLater) and error.reason == "rate_limited"
        failure = Failure(
            feed=feed.name,
            token=live.token,
            health=step.health,
            next_due=None if live.next_due is None else from_unix(live.next_due),
            result="rate_limited" if limited else "error",
            error=message,
            started_at=from_unix(started),
            seconds=seconds,
        )
        self._say(live, step, error)
        live.health = step.health
        try:
            await self._idle_reads.flush(feed.name)
            await self._store.fail(failure)
        except (StoreBusy, StoreUnavailable) as trouble:
            log.warning("store.trouble", feed=feed.name, reason=str(trouble))
        return msgspec.structs.replace(report, result="rate_limited") if limited else report

    def _say(self, live: LiveFeed, step: backoff.Step, error: Exception | None = None) -> None:
        if not step.say:
            return
        level = {"recovered": "info", "failing": "warning", "rate_limited": "warning"}.get(step.say, "error")
        expected = error is None or isinstance(error, HarkenError)
        getattr(log, level)(
            f"feed.{step.say}",
            feed=live.feed.name,
            reason=step.health.message,
            failures=step.health.failures,
            exc_info=None if expected else error,
        )
