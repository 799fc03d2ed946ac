"""One tick: read a feed page by page, and commit each page, a long one in parts, before the next one is requested."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from random import Random

import msgspec
import structlog

from harken import circuit_breaker
from harken.clock import Clock, from_unix
from harken.errors import HarkenError, LeaseLost, Offline, RetryLater, StoreBusy, StoreUnavailable
from harken.event import Event, Span, Verdict
from harken.http import Connectivity
from harken.ingest.batched_idle_poll_writes import IdleReads
from harken.ingest.commit import CommitRequest, Committer
from harken.ingest.feed_runtime_state import LiveFeed, TickReport, later
from harken.ingest.partly_committed_page import PageDigest, with_cap, with_progress
from harken.ingest.scheduler import due_after
from harken.ingest.stored_event_backfill import Backfill, FeedStore
from harken.kit.timeout_without_own_work import answer_within
from harken.match import Read, Rules, Sighting, memory_id, spaced_due
from harken.source import Batch
from harken.store import Commit, Failure, IdleRead, Tick
from harken.timings import Timings

__all__ = ["SWEEP_SECONDS", "Poller", "TickResult", "since", "sum_up", "watermark"]

log = structlog.get_logger("harken.ingest")

SWEEP_SECONDS = 3600.0
"""How often the memory of a feed is swept."""

TOUCH_SLACK = 2 * SWEEP_SECONDS
"""An item may have been seen so much later than the store has noted."""

OFFLINE_NOTE_SECONDS = 600.0
"""While we are offline, every try fails alike: the store learns of one in so many seconds."""


LOG_LEVELS = {"recovered": "info", "failing": "warning", "rate_limited": "warning", "offline": "warning"}

MOST_LISTED = 5_000
"""While a sweep is due, what is listed is noted in the store in portions of about this size."""


class Earlier(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What the parts of a page before its last one amount to. `newest`: the newest time that is not in the future."""

    seen: int = 0
    new: int = 0
    newest: datetime | None = None


NOTHING_EARLIER = Earlier()


class TickResult(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a tick amounts to after one of its pages: everything that the store has to learn with that page.

    `rules` are those with which the tick began; while it reads, the feed may get others.
    `seen` and `new` count the items of the tick up to and including this page; `started` and `now` are wall time.
    `done`: this was the last page. `idle`: the whole tick was one page without anything new.
    `recovery`: how this success changes the feed's health; None if it does not.
    `backfilled`: the triggers that have now been shown everything since their start line.
    """

    batch: Batch
    sightings: list[Sighting]
    rules: Rules
    started: float
    now: float
    seen: int
    new: int
    done: bool
    idle: bool
    next_due: float | None
    watermark: datetime | None
    covered: Span | None
    recovery: circuit_breaker.Step | None
    backfilled: Sequence[str] = ()


class Poller:
    """Runs ticks. `token(shard)` gives the token of our lease, which is read once per tick: losing it ends the tick."""

    def __init__(
        self,
        store: FeedStore,
        committer: Committer,
        idle_reads: IdleReads,
        clock: Clock,
        random: Random,
        token: Callable[[int], int],
        *,
        timings: Timings = Timings(),
        connectivity: Connectivity | None = None,
    ) -> None:
        self._store = store
        self._connectivity = connectivity or Connectivity(clock)
        self._committer = committer
        self._idle_reads = idle_reads
        self._clock = clock
        self._random = random
        self._token = token
        self._memory_cap = timings.memory_cap
        self._backfill = Backfill(store, committer, clock)
        self.observe: Callable[[LiveFeed, TickReport, float], None] = lambda live, report, seconds: None

    async def tick(self, live: LiveFeed, rules: Rules, by_hand: str = "") -> TickReport:
        """Read the feed once. Failures are recorded and reported; only LeaseLost is raised.

        `by_hand` names the trigger for which a person requested the tick."""
        clock = self._clock
        started, began = clock.time(), clock.monotonic()
        live.health = circuit_breaker.before_try(live.health, started)
        live.by_hand = by_hand
        live.token = self._token(live.feed.shard)
        page, cursor = live.page, live.cursor
        try:
            read = self._read_traced if self._committer.tracer.on else self._read
            report = await read(live, rules, started, began + live.feed.tick_timeout)
        except LeaseLost:
            raise
        except Exception as error:
            moved = live.page > page and live.cursor != cursor
            report = await self._record_failure(live, error, started, clock.monotonic() - began, moved)
        self.observe(live, report, clock.monotonic() - began)
        return report

    async def _read_traced(self, live: LiveFeed, rules: Rules, started: float, deadline: float) -> TickReport:
        with self._committer.tracer.span(
            f"poll {live.feed.display_name}", kind="client", root=True, feed=live.feed.display_name
        ) as span:
            report = await self._read(live, rules, started, deadline)
            span.note(seen=report.seen, new=report.new)
            # reads that found nothing are counted by the metrics
            span.dropped = not report.new
            return report

    async def _read(self, live: LiveFeed, rules: Rules, started: float, deadline: float) -> TickReport:
        if rules.backfilling:
            await self._backfill.decide_again(live.feed.name, live.token)
            rules = await self._committer.rule_cache.rules(live.feed.name)
        result: TickResult | None = None
        while True:
            lag = live.service_clock.lag
            batch = await self._read_page(live, rules)
            if live.service_clock.lag > lag and not live.page:
                # the first answer told that the service's clock is behind: we asked for less than is new by its clock
                log.warning("feed.clock_behind", feed=live.feed.display_name, seconds=live.service_clock.lag)
                batch = await self._read_page(live, rules)
            late = self._clock.monotonic() > deadline
            result = await self._take(live, batch, rules, started, late, result)
            if result.done or late:
                break
        outcome = "events" if result.new else "unchanged" if batch.unchanged else "nothing_new"
        return TickReport(feed=live.feed.name, result=outcome, seen=result.seen, new=result.new)

    async def _read_page(self, live: LiveFeed, rules: Rules) -> Batch:
        poll, feed, start = live.poll, live.feed, since(live, rules, self._clock.time())
        assert poll is not None
        if not live.page:
            live.reading_since = start
        try:
            with answer_within(feed.page_timeout):
                return await poll(live.cursor, start)
        except TimeoutError as error:
            message = f"{feed.display_name} gave no page within {feed.page_timeout:.0f} s"
            raise RetryLater(message, reason="timeout") from error

    async def _take(
        self, live: LiveFeed, batch: Batch, rules: Rules, started: float, late: bool, before: TickResult | None
    ) -> TickResult:
        """Write the page to the store, and only then move the feed forward."""
        now = self._clock.time()
        # the page is recognised and matched by the newest rules we know; the tick counts as begun with its own
        current = self._committer.rule_cache.get(live.feed.name) or rules
        if live.spaced and not live.page:
            _forget_spaced(live, current, from_unix(now))
        earlier = NOTHING_EARLIER
        if len(batch.events) > current.part_size:
            batch, earlier = await self._take_earlier(live, batch, rules, current, now)
            current = self._committer.rule_cache.get(live.feed.name) or current
        sightings = await self._committer.recognise(current, batch.events) if batch.events else []
        if live.listed is not None:
            await self._note_listed(live, batch, batch.events, current)
        next_due = now if late else None
        if not batch.more:
            next_due = due_after(live, now, started, self._random, batch.next_at)
        result = sum_up(
            live, batch, sightings, rules, started=started, now=now, next_due=next_due, before=before, earlier=earlier
        )
        if result.idle:
            self._idle_reads.add(_idle_read(live, result))
        else:
            await self._commit(live, _commit_request(live, result), current, result.sightings)
        if result.backfilled:
            await self._committer.rule_cache.learn(live.feed.name)
        self._advance(live, result)
        if result.done and now - live.swept_at >= SWEEP_SECONDS:
            await self._sweep(live, batch, now)
        return result

    async def _take_earlier(
        self, live: LiveFeed, batch: Batch, rules: Rules, current: Rules, now: float
    ) -> tuple[Batch, Earlier]:
        """Commit all parts of a long page but the last. Return the last one, and what the others amount to."""
        events, size = batch.events, current.part_size
        digest, newest, new = PageDigest(current.feed.identity), None, 0
        if live.progress is not None:
            digest, newest = await self._skip_committed(live, batch, current, now)
        while len(events) - digest.events > size:
            part = events[digest.events : digest.events + size]
            current = self._committer.rule_cache.get(live.feed.name) or current
            sightings = await self._committer.recognise(current, part)
            if live.listed is not None:
                await self._note_listed(live, batch, part, current)
            digest.add(part)
            newest, new = _newest(part, now, newest), new + len(sightings)
            if sightings:
                request = _part_request(live, rules, part, digest, now, len(events) - digest.events)
                await self._commit(live, request, current, sightings)
                live.progress = digest.progress
            # a part that was known already waits for nothing
            await asyncio.sleep(0)
        last = msgspec.structs.replace(batch, events=events[digest.events :])
        return last, Earlier(seen=digest.events, new=new, newest=newest)

    async def _skip_committed(
        self, live: LiveFeed, batch: Batch, rules: Rules, now: float
    ) -> tuple[PageDigest, datetime | None]:
        """Pass the events that were committed when the page was read before, if it begins with the same ones."""
        progress = live.progress
        assert progress is not None
        digest, newest = PageDigest(rules.feed.identity), None
        while digest.events < progress.events < len(batch.events):
            part = batch.events[digest.events : min(digest.events + rules.part_size, progress.events)]
            if live.listed is not None:
                await self._note_listed(live, batch, part, rules)
            digest.add(part)
            newest = _newest(part, now, newest)
            await asyncio.sleep(0)
        if digest.progress == progress:
            return digest, newest
        # the page has changed: then memory tells what is new
        return PageDigest(rules.feed.identity), None

    async def _commit(self, live: LiveFeed, request: CommitRequest, rules: Rules, sightings: list[Sighting]) -> None:
        name = live.feed.name
        await self._idle_reads.flush(name)
        committed = await self._committer.take(request, rules, sightings)
        # idle reads that could not be written before are older than this commit
        self._idle_reads.drop(name)
        _count_spaced(live, rules, committed.verdicts, request.read.now)

    async def _note_listed(self, live: LiveFeed, batch: Batch, events: Sequence[Event], rules: Rules) -> None:
        """While a sweep is due, note what two complete reads list."""
        if not batch.complete:
            live.listed = None
        elif live.listed is not None and not batch.unchanged:
            live.listed.update(memory_id(event, rules.feed.identity) for event in events)
            if len(live.listed) > MOST_LISTED:
                await self._store.forget(live.feed.name, live.token, sorted(live.listed), None)
                live.listed_before += len(live.listed)
                live.listed.clear()

    def _advance(self, live: LiveFeed, result: TickResult) -> None:
        """Move the feed behind the page, which the store has now."""
        live.cursor, live.watermark, live.next_due = result.batch.cursor, result.watermark, result.next_due
        if result.watermark is not None:
            live.newest = later(live.newest, result.watermark)
        live.progress = None
        if not result.done:
            live.page += 1
            live.capped = _cap(live, result)
            return
        live.page, live.capped = 0, None
        live.baselined = live.between_reads = True
        live.resumed = False
        if result.recovery is not None:
            self._log_change(live, result.recovery)
            live.health = result.recovery.health

    async def _sweep(self, live: LiveFeed, batch: Batch, now: float) -> None:
        """Forget items that the last two complete reads with content did not list and that were last seen long ago."""
        if batch.unchanged or not batch.complete:
            return
        if live.listed is None:
            live.listed, live.listed_before, live.sweeps = set(), 0, 0
            return
        live.sweeps += 1
        if live.sweeps < 2:
            return
        listed, live.listed, live.swept_at = live.listed, None, now
        before = from_unix(now - live.feed.memory_seconds - TOUCH_SLACK)
        forgotten = await self._store.forget(live.feed.name, live.token, sorted(listed), before)
        # in several portions the two reads may have counted an item twice
        count = len(listed) if not live.listed_before else (live.listed_before + len(listed)) // 2
        if count > self._memory_cap:
            log.warning("memory.large", feed=live.feed.display_name, listed=count, cap=self._memory_cap)
        if forgotten:
            log.debug("memory.swept", feed=live.feed.display_name, gone=forgotten)

    async def _record_failure(
        self, live: LiveFeed, error: Exception, started: float, seconds: float, moved: bool
    ) -> TickReport:
        """Record what a failure does to the feed. `moved`: pages before it were committed, so the read got further."""
        feed, error = live.feed, self._connectivity.judge(error)
        now = self._clock.time()
        after = circuit_breaker.after_progress if moved else circuit_breaker.after_failure
        step = after(error, live.health, live.policy, interval=feed.interval, now=now, roll=self._random.random())
        message = circuit_breaker.error_text(error)
        stopped = step.health.state == "paused" and not step.health.probed
        live.next_due = None if stopped else now + step.wait_seconds
        if isinstance(error, StoreBusy | StoreUnavailable):
            # what was written last may have taken effect although we were not told
            live.outdated = True
            return TickReport(feed=feed.name, result="error", error=message)
        if isinstance(error, Offline) and not step.change and now - live.failed_at < OFFLINE_NOTE_SECONDS:
            live.health = step.health
            return TickReport(feed=feed.name, result="error", error=message)
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
        self._log_change(live, step, error)
        live.health, live.failed_at = step.health, now
        try:
            await self._idle_reads.flush(feed.name)
            await self._store.fail(failure)
        except (StoreBusy, StoreUnavailable) as trouble:
            log.warning("store.trouble", feed=feed.display_name, reason=str(trouble))
        return TickReport(feed=feed.name, result=failure.result, error=message)

    def _log_change(self, live: LiveFeed, step: circuit_breaker.Step, error: Exception | None = None) -> None:
        if not step.change:
            return
        level = LOG_LEVELS.get(step.change, "error")
        expected = error is None or isinstance(error, HarkenError)
        getattr(log, level)(
            f"feed.{step.change}",
            feed=live.feed.display_name,
            reason=step.health.message,
            failures=step.health.failures,
            exc_info=None if expected else error,
        )


def since(live: LiveFeed, rules: Rules, now: float | None = None) -> datetime:
    """Everything after this has to be read, by the service's clock: what is new, and what a trigger looks back for."""
    lag = timedelta(seconds=live.service_clock.lag)
    start = (rules.reads_from or live.created_at) - lag
    if live.feed.lookback:
        # services round times down to seconds: what happens next may be dated a little before the start
        start = start.replace(microsecond=0)
    if live.watermark is None or (now is not None and live.watermark > from_unix(now)):
        # a watermark in the future was seen by a clock that was ahead
        return start
    ordinary = max(start, live.watermark - timedelta(seconds=live.feed.lookback))
    return min([ordinary, *(rule.start_line - lag for rule in rules.backfilling)])


def watermark(live: LiveFeed, batch: Batch, now: float) -> datetime | None:
    """The newest time of any item, but never one in the future."""
    return _newest(batch.events, now, live.watermark)


def _capped(newest: datetime | None, live: LiveFeed) -> datetime | None:
    """The watermark, no later than when the first page of this read was taken that reached the present.

    A read may be interrupted for days between two pages. What became visible meanwhile, dated before the page that was
    taken last, is read again next time only then."""
    if newest is None or live.capped is None:
        return newest
    cap = from_unix(live.capped) - timedelta(seconds=live.service_clock.lag)
    return newest if newest <= cap else later(live.watermark, cap)


def _cap(live: LiveFeed, result: TickResult) -> float | None:
    """When a page of this read was first taken within whose dates something may still become visible; None if none was.

    That is as late as the lookback allows."""
    if result.done or live.capped is not None:
        return None if result.done else live.capped
    edge = from_unix(result.now - live.feed.lookback - live.service_clock.lag)
    near = any(event.occurred_at is not None and event.occurred_at >= edge for event in result.batch.events)
    return result.now if near else None


def _newest(events: Sequence[Event], now: float, before: datetime | None) -> datetime | None:
    if not events and before is None:
        return None
    limit = from_unix(now)
    seen = [time for event in events if (time := event.occurred_at) is not None and time <= limit]
    if before is not None and before <= limit:
        seen.append(before)
    return max(seen, default=None)


def sum_up(
    live: LiveFeed,
    batch: Batch,
    sightings: list[Sighting],
    rules: Rules,
    *,
    started: float,
    now: float,
    next_due: float | None,
    before: TickResult | None = None,
    earlier: Earlier = NOTHING_EARLIER,
) -> TickResult:
    """What the tick amounts to with this page; `before` is the result of the page before it.

    Of a page in parts, `batch` and `sightings` have only the last one; `earlier` is what the others amount to."""
    done = not batch.more
    covered = batch.covered
    if covered is None and done and batch.complete:
        covered = Span(live.reading_since, from_unix(started))
    recovery = circuit_breaker.after_success(live.health, now) if done and not live.health.clean else None
    if recovery is not None and recovery.health is live.health:
        recovery = None
    return TickResult(
        batch=batch,
        sightings=sightings,
        rules=rules,
        started=started,
        now=now,
        seen=len(batch.events) + earlier.seen + (before.seen if before is not None else 0),
        new=len(sightings) + earlier.new + (before.new if before is not None else 0),
        done=done,
        idle=done and not sightings and not earlier.new and live.baselined and not live.page and not rules.backfilling,
        next_due=next_due,
        watermark=_capped(later(watermark(live, batch, now), earlier.newest), live),
        covered=covered,
        recovery=recovery,
        backfilled=_backfilled(live, rules) if done and rules.backfilling else (),
    )


def _backfilled(live: LiveFeed, rules: Rules) -> Sequence[str]:
    """The triggers that looked back and have been shown everything since their start line by this read.

    None of them if the read began at a cursor that may be in the middle of an earlier read: that one may have begun
    later than the start line. Triggers that came during the read are not among `rules`."""
    if not live.between_reads:
        return ()
    return [rule.uid for rule in rules.backfilling if live.reading_since <= rule.start_line]


def _idle_read(live: LiveFeed, result: TickResult) -> IdleRead:
    batch, due = result.batch, result.next_due
    return IdleRead(
        feed=live.feed.name,
        token=live.token,
        revision=result.rules.revision,
        count=1,
        result="unchanged" if batch.unchanged else "nothing_new",
        seen=result.seen,
        first_at=from_unix(result.started),
        last_at=from_unix(result.now),
        next_due=None if due is None else from_unix(due),
        cursor=batch.cursor if batch.cursor != live.cursor or live.progress is not None else msgspec.UNSET,
        watermark=result.watermark if result.watermark != live.watermark else None,
        covered=result.covered,
        health=None if result.recovery is None else result.recovery.health,
    )


def _part_request(
    live: LiveFeed, rules: Rules, events: Sequence[Event], digest: PageDigest, now: float, following: int
) -> CommitRequest:
    """A part of a page that is not its last: the cursor stays, and notes how much of the page is committed."""
    return CommitRequest(
        events=events,
        read=_circumstances(live, now, following),
        commit=Commit(
            feed=live.feed.name,
            revision=rules.revision,
            token=live.token,
            cursor=with_progress(live.cursor, digest.progress, live.capped),
        ),
        starts=rules.starts,
    )


def _commit_request(live: LiveFeed, result: TickResult) -> CommitRequest:
    started, due, cap = from_unix(result.started), result.next_due, _cap(live, result)
    tick = None
    if result.done:
        tick = Tick(
            result="events" if result.new else "changed",
            started_at=started,
            seconds=result.now - result.started,
            seen=result.seen,
            new=result.new,
            covered=result.covered,
        )
    return CommitRequest(
        events=result.batch.events,
        read=_circumstances(live, result.now),
        commit=Commit(
            feed=live.feed.name,
            revision=result.rules.revision,
            token=live.token,
            cursor=result.batch.cursor if cap is None else with_cap(result.batch.cursor, cap),
            watermark=result.watermark,
            next_due=None if due is None else from_unix(due),
            health=None if result.recovery is None else result.recovery.health,
            tick=tick,
            done=result.done,
            backfilled=result.backfilled,
        ),
        starts=result.rules.starts,
        ends_first=result.done and not live.baselined,
    )


def _circumstances(live: LiveFeed, now: float, following: int = 0) -> Read:
    return Read(
        now=from_unix(now),
        first=not live.baselined,
        page=live.page,
        spaced=live.spaced,
        spaced_from=live.spaced_from,
        resumed=live.resumed,
        by_hand=live.by_hand,
        lag=live.service_clock.lag,
        following=following,
    )


def _forget_spaced(live: LiveFeed, rules: Rules, now: datetime) -> None:
    """Forget the spaced runs of a trigger once the next one would be due anyway: new events fire at once again."""
    known, spaced = {rule.uid: rule for rule in rules.rules}, dict(live.spaced)
    for uid, count in live.spaced.items():
        first, rule = live.spaced_from[uid], known.get(uid)
        # a first run in the future was noted before the clock was set back
        if rule is None or first > now or spaced_due(rule, rules, first, count) <= now:
            del spaced[uid]
    live.spaced, live.spaced_from = spaced, {uid: live.spaced_from[uid] for uid in spaced}


def _count_spaced(live: LiveFeed, rules: Rules, verdicts: Iterable[Iterable[Verdict]], now: datetime) -> None:
    """Count the committed runs of triggers with `spacing`, so that later runs are due behind them."""
    by_name = {rule.name: rule.uid for rule in rules.rules if rule.trigger.spacing is not None}
    if not by_name:
        return
    spaced = dict(live.spaced)
    for verdict in (verdict for decided in verdicts for verdict in decided):
        uid = by_name.get(verdict.trigger)
        if uid is not None and verdict.outcome in ("fired", "held"):
            spaced[uid] = spaced.get(uid, 0) + 1
    live.spaced, live.spaced_from = spaced, {uid: live.spaced_from.get(uid, now) for uid in spaced}
