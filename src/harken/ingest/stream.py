"""Streams: batches that a broker or server pushes on a connection we hold, committed before they are acknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import aclosing
from datetime import datetime
from random import Random
from typing import Any, cast

import msgspec
import structlog

from harken import circuit_breaker
from harken.clock import Clock, from_unix
from harken.errors import LeaseLost, Refused, RetryLater
from harken.event import Event, Span
from harken.feed import INTERNAL
from harken.http import Connectivity
from harken.ingest.batched_idle_poll_writes import IdleReads
from harken.ingest.commit import CommitRequest, Committer, check_starts
from harken.ingest.feed_runtime_state import LiveFeed
from harken.ingest.partly_committed_page import stored_seek
from harken.ingest.stored_event_backfill import Backfill, FeedStore
from harken.match import Read, Rules
from harken.source import Batch, Cursor, Gap, HoldingSource, Lag, SeekableSource, StreamSource
from harken.store import Commit, Failure, IdleRead, Tick
from harken.task_cancellation import cancel_and_wait
from harken.timings import Timings

__all__ = ["GAP", "InHand", "Streamer"]

log = structlog.get_logger("harken.ingest")

GAP = "feed.gap"
"""The type of the event that announces a gap."""
RECONNECT_SECONDS = 5.0
"""A stream that ended without an error is opened again after so many seconds, and a paused one looked at."""
STORE_RETRY, STORE_RETRY_CAP = 0.5, 15.0
"""While the store cannot write, the batch in hand is tried again after so many seconds, doubling."""


class InHand(msgspec.Struct, frozen=True, kw_only=True):
    """A batch that was taken from the broker at that time, and is neither committed nor acknowledged."""

    batch: Batch
    since: datetime

    def has(self, key: str) -> bool:
        """Whether a message of this name is in it."""
        events = (*self.batch.events, *(letter.event for letter in self.batch.rejected))
        return any(key in (event.key, event.subject) for event in events)


class Streamer:
    """Follows streams. Requesting the next batch from a source acknowledges the last one, so it is committed before.

    `lags` has what waited at the broker of each feed that is connected, when it was last heard of. `in_hand` has the
    batch of a feed that was taken from the broker and is not committed yet.
    """

    def __init__(
        self,
        store: FeedStore,
        committer: Committer,
        idle_reads: IdleReads,
        clock: Clock,
        random: Random,
        token: Callable[[int], int],
        connectivity: Connectivity,
        timings: Timings = Timings(),
        has_expired: Callable[[int], bool] = lambda shard: False,
    ) -> None:
        self._store = store
        self._has_expired = has_expired
        self._interval = timings.reconnect
        self._again = min(RECONNECT_SECONDS, timings.reconnect)
        self._connectivity = connectivity
        self._committer = committer
        self._backfill = Backfill(store, committer, clock)
        self._idle_reads = idle_reads
        self._clock = clock
        self._random = random
        self._token = token
        self.lags: dict[str, Lag] = {}
        self.in_hand: dict[str, InHand] = {}

    async def follow(self, live: LiveFeed) -> None:
        """Follow one stream, and connect again when it breaks; a paused feed when it is resumed or to be probed."""
        while True:
            wait = await self._follow_once(live) if await self._may_follow(live) else self._again
            await self._clock.sleep(wait)

    async def _may_follow(self, live: LiveFeed) -> bool:
        if live.health.state != "paused":
            return True
        if not live.health.may_try(self._clock.time()):
            return False
        try:
            # nobody wants to know whether a feed works again whose triggers a person has paused
            return not (await self._committer.rule_cache.rules(live.feed.name)).resting
        except RetryLater as error:
            log.warning("store.trouble", feed=live.feed.display_name, reason=str(error))
            return False

    async def _follow_once(self, live: LiveFeed) -> float:
        """Follow until the connection ends. Returns the seconds until the next try."""
        source = live.source
        assert isinstance(source, StreamSource)
        started = self._clock.time()
        try:
            connection = await self._open(live, source)
            # what is being yielded ends with the connection: a source closes it when its iterator is closed
            async with aclosing(cast(Any, source.stream(live.cursor))) as batches:
                while (batch := await _next(batches, source.silence_seconds)) is not None:
                    await connection.take(batch)
        except LeaseLost:
            return self._again
        except _StoreTrouble as error:
            log.warning("store.trouble", feed=live.feed.display_name, reason=str(error.__cause__))
            return self._again
        except Exception as error:
            return await self._record_failure(live, error, started)
        finally:
            # nobody knows what waits at a broker that is not heard any more
            self.lags.pop(live.feed.name, None)
        return self._again

    async def _open(self, live: LiveFeed, source: StreamSource) -> _Connection:
        """Continue from the position that the store has: a person may have reset the feed meanwhile."""
        try:
            await self._idle_reads.flush(live.feed.name)
            state = await self._store.state(live.feed.name)
            rules = await self._committer.rule_cache.rules(live.feed.name)
            if rules.revision != state.revision:
                rules = await self._committer.rule_cache.learn(live.feed.name)
        except RetryLater as error:
            raise _StoreTrouble from error
        live.restore(state)
        live.outdated = False
        live.token = self._token(live.feed.shard)
        covered_to = state.coverage[-1].end if state.coverage else self._clock.now()
        unplaced = state.cursor is None
        if not isinstance(source, SeekableSource):
            return _Connection(self, live, source, rules, covered_to, unplaced=unplaced)
        at = stored_seek(state.cursor)
        if at is not None:
            rules = await self._decide_again(live, rules)
            live.cursor = (await source.locate(at, live.cursor)).cursor
            # what was passed over was not read
            return _Connection(self, live, source, rules, max(covered_to, at), moved=True)
        if unplaced and state.last_success is None and source.begins_with_new:
            # the broker, the store or this process may have been away since then, and messages did not wait for us
            live.cursor = await _place_of_creation(source, state.created_at)
        begin = covered_to if live.cursor is None else state.created_at
        return _Connection(self, live, source, rules, begin if unplaced else covered_to, unplaced=unplaced)

    async def _decide_again(self, live: LiveFeed, rules: Rules) -> Rules:
        """Stored messages that a trigger which was moved back has not decided are decided, before others are read."""
        if not rules.backfilling:
            return rules
        try:
            await self._backfill.of_feed(live.feed.name, live.token)
            return await self._committer.rule_cache.rules(live.feed.name)
        except RetryLater as error:
            raise _StoreTrouble from error

    async def _record_failure(self, live: LiveFeed, error: Exception, started: float) -> float:
        now, error = self._clock.time(), self._connectivity.judge(error)
        roll = self._random.random()
        step = circuit_breaker.after_failure(
            error, live.health, live.policy, interval=self._interval, now=now, roll=roll
        )
        live.health = step.health
        if step.change:
            log.warning(f"feed.{step.change}", feed=live.feed.display_name, reason=step.health.message)
        failure = Failure(
            feed=live.feed.name,
            token=live.token or None,
            health=step.health,
            next_due=from_unix(now + step.wait_seconds),
            result="error",
            error=step.health.message,
            started_at=from_unix(started),
            seconds=now - started,
        )
        try:
            await self._store.fail(failure)
        except (RetryLater, LeaseLost) as trouble:
            log.warning("store.trouble", feed=live.feed.display_name, reason=str(trouble))
        return self._again if step.health.state == "paused" else step.wait_seconds


class _StoreTrouble(Exception):
    """The store cannot be read, so the connection is not even opened; its error is the cause."""


class _Connection:
    """One connection of a feed: its batches go into the store in the order in which they came."""

    def __init__(
        self,
        streamer: Streamer,
        live: LiveFeed,
        source: StreamSource,
        rules: Rules,
        covered_to: datetime,
        *,
        moved: bool = False,
        unplaced: bool = False,
    ) -> None:
        self._streamer = streamer
        self._store, self._committer = streamer._store, streamer._committer
        self._clock = streamer._clock
        self._live = live
        self._source = source
        # a trigger that is reset or moved during the connection ends it: what follows belongs to its new start
        self._starts = rules.starts
        self._covered_to = covered_to
        # whether the store has another position than the one from which we read, or none at all
        self._moved = moved or unplaced
        self._unplaced = unplaced

    async def take(self, batch: Batch) -> None:
        """Commit the batch, however long the store is away. When this returns, it may be acknowledged."""
        if batch.lag is not None:
            self._streamer.lags[self._live.feed.name] = batch.lag
        if batch.events or batch.rejected or batch.gap is not None:
            in_hand, name = self._streamer.in_hand, self._live.feed.name
            in_hand[name] = InHand(batch=batch, since=self._clock.now())
            try:
                await self._held(self._insist(lambda: self._commit(batch)))
            finally:
                del in_hand[name]
        else:
            await self._note_idle(batch)
            if self._unplaced:
                # without it, whoever connects after a crash would begin at what is new then
                await self._insist(lambda: self._streamer._idle_reads.flush(self._live.feed.name))
        self._unplaced = False

    async def _insist(self, write: Callable[[], Awaitable[None]]) -> None:
        """Try until the store has it. The broker is not asked for more, and nothing is given back to it."""
        for wait in circuit_breaker.doubling(STORE_RETRY, STORE_RETRY_CAP):
            try:
                await write()
            except RetryLater as error:
                log.warning("store.trouble", feed=self._live.feed.display_name, reason=str(error))
                await self._clock.sleep(max(wait, error.after or 0.0))
            else:
                return

    async def _held(self, doing: Coroutine[Any, Any, None]) -> None:
        """Wait for it; meanwhile keep the messages in hand from being delivered again, if the broker wants that.

        Not after the end of our lease: then another process may follow the stream, and is to get them.
        """
        if not isinstance(self._source, HoldingSource):
            await doing
            return
        task = asyncio.ensure_future(doing)
        try:
            while not task.done():
                await asyncio.wait({task}, timeout=self._source.hold_seconds / 3)
                if not task.done() and not self._streamer._has_expired(self._live.feed.shard):
                    await self._source.hold()
            task.result()
        finally:
            await cancel_and_wait([task])

    async def _commit(self, batch: Batch) -> None:
        live, now = self._live, self._clock.now()
        name = live.feed.name
        for letter in batch.rejected:
            log.warning("event.refused", feed=live.feed.display_name, reason=letter.reason)
            await self._store.dead_letter(name, letter.event, letter.reason)
        if batch.gap is not None:
            await self._announce(batch.gap, now)
        step = circuit_breaker.after_success(live.health, now.timestamp())
        rules = await self._committer.rule_cache.rules(name)
        covered, seen = self._covered(batch, now), len(batch.events) + len(batch.rejected)
        commit = Commit(
            feed=name,
            revision=rules.revision,
            token=live.token,
            cursor=batch.cursor,
            health=step.health,
            tick=Tick(result="events", started_at=now, seen=seen, new=seen, covered=covered),
        )
        request = CommitRequest(events=batch.events, read=Read(now=now), commit=commit, starts=self._starts)
        await self._streamer._idle_reads.flush(name)
        await self._take(request, rules)
        self._streamer._idle_reads.drop(name)
        live.cursor, live.health, self._moved = batch.cursor, step.health, False
        self._covered_to = covered.end if covered else self._covered_to

    async def _take(self, request: CommitRequest, rules: Rules) -> None:
        tracer, feed = self._committer.tracer, self._live.feed.display_name
        if not tracer.on:
            await self._committer.take(request, rules)
            return
        with tracer.span(f"stream {feed}", kind="consumer", root=True, feed=feed, new=len(request.events)):
            await self._committer.take(request, rules)

    async def _note_idle(self, batch: Batch) -> None:
        live, now = self._live, self._clock.now()
        rules = await self._committer.rule_cache.rules(live.feed.name)
        check_starts(live.feed.name, self._starts, rules)
        covered = self._covered(batch, now)
        step = circuit_breaker.after_success(live.health, now.timestamp())
        read = IdleRead(
            feed=live.feed.name,
            token=live.token,
            revision=rules.revision,
            count=1,
            result="nothing_new",
            seen=0,
            first_at=now,
            last_at=now,
            next_due=None,
            cursor=batch.cursor if self._moved or batch.cursor != live.cursor else msgspec.UNSET,
            covered=covered,
            health=step.health if step.health != live.health else None,
        )
        self._streamer._idle_reads.add(read)
        live.cursor, live.health, self._moved = batch.cursor, step.health, False
        self._covered_to = covered.end if covered else self._covered_to

    def _covered(self, batch: Batch, now: datetime) -> Span | None:
        """What is proven to be read: up to now, or up to the newest event while others wait behind it."""
        if batch.covered is not None:
            return batch.covered
        start, end = self._covered_to, now
        if batch.gap is not None:
            start = now
        elif batch.lag is not None and batch.lag.messages:
            dated = [event.occurred_at for event in batch.events if event.occurred_at is not None]
            end = min(max(dated, default=start), now)
        return Span(start, end) if start <= end else None

    async def _announce(self, gap: Gap, now: datetime) -> None:
        """Say what was lost, before the batch behind it is committed: a repeat after a crash has the same key."""
        feed = self._live.feed
        rules = self._committer.rule_cache.get(feed.name)
        log.error(GAP, feed=feed.display_name, reason=gap.reason, messages=gap.messages)
        data = {
            "feed": feed.display_name,
            "feed_id": feed.name,
            "reason": gap.reason,
            "messages": gap.messages,
            "since": self._covered_to.isoformat(),
            "triggers": sorted(rule.name for rule in rules.rules) if rules else [],
            "alert": True,
            "text": f"{feed.display_name} has lost messages: {gap.reason}",
        }
        key = f"{GAP}:{feed.name}@{gap.key}"
        event = Event(subject=feed.name, type=GAP, key=key, state=key, occurred_at=now, data=data)
        await self._committer.push(INTERNAL, [event], Read(now=now))


async def _place_of_creation(source: SeekableSource, created_at: datetime) -> Cursor:
    """Where a first read begins; None, which is the end, for a stream that can be read from nowhere else."""
    try:
        return (await source.locate(created_at, None)).cursor
    except Refused:
        return None


async def _next(batches: AsyncIterator[Batch], silence_seconds: float) -> Batch | None:
    """The next batch, or None at the end of the stream. Raise RetryLater when nothing is heard for too long."""
    try:
        async with asyncio.timeout(silence_seconds):
            return await anext(batches, None)
    except TimeoutError:
        raise RetryLater(f"nothing was heard for {silence_seconds:g} s", reason="timeout") from None
