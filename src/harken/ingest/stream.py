"""Streams: batches that a broker or server pushes on a connection we hold, committed before they are acknowledged."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import msgspec
import structlog

from harken import backoff
from harken.clock import Clock, from_unix
from harken.errors import LeaseLost, RetryLater, StoreBusy, StoreUnavailable
from harken.http import Connectivity
from harken.ingest.commit import CommitRequest, Committer
from harken.ingest.live import LiveFeed
from harken.match import Read
from harken.source import Batch, StreamSource
from harken.store import Commit, Failure, Feeds, Tick

__all__ = ["Streamer"]

log = structlog.get_logger("harken.ingest")

RECONNECT_SECONDS = 5.0
INTERVAL = 60.0
"""A stream has no interval: after failures it is tried again as a feed that is read every minute."""


class Streamer:
    """Follows streams. Requesting the next batch from a source acknowledges the last one, so it is committed before."""

    def __init__(
        self,
        store: Feeds,
        committer: Committer,
        clock: Clock,
        random: Random,
        token: Callable[[int], int],
        connectivity: Connectivity,
    ) -> None:
        self._store = store
        self._connectivity = connectivity
        self._committer = committer
        self._clock = clock
        self._random = random
        self._token = token

    async def follow(self, live: LiveFeed) -> None:
        """Follow one stream, and connect again when it breaks; a paused feed when it is resumed or to be probed."""
        while True:
            if await self._may_follow(live):
                wait = await self._follow_once(live)
            else:
                wait = RECONNECT_SECONDS
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
            live.token = 0 if source.shared else self._token(live.feed.shard)
            async for batch in source.stream(live.cursor):
                await self._commit(live, source, batch)
        except LeaseLost:
            return RECONNECT_SECONDS
        except (StoreBusy, StoreUnavailable) as error:
            # not the fault of the sender: nothing was acknowledged, so it will send it again
            log.warning("store.trouble", feed=live.feed.display_name, reason=str(error))
            return max(RECONNECT_SECONDS, error.after or 0.0)
        except Exception as error:
            return await self._record_failure(live, error, started)
        return RECONNECT_SECONDS

    async def _commit(self, live: LiveFeed, source: StreamSource, batch: Batch) -> None:
        name, now = live.feed.name, self._clock.now()
        step = backoff.after_success(live.health, now.timestamp())
        rules = await self._committer.rule_cache.rules(name)
        commit = Commit(feed=name, revision=rules.revision)
        if not source.shared:
            seen = len(batch.events)
            tick = Tick(result="events", started_at=now, seen=seen, new=seen, covered=batch.covered)
            commit = msgspec.structs.replace(
                commit, token=live.token, cursor=batch.cursor, tick=tick, health=step.health
            )
        request = CommitRequest(events=batch.events, read=Read(now=now), commit=commit)
        await self._committer.take(request, rules)
        live.cursor, live.health = batch.cursor, step.health

    async def _record_failure(self, live: LiveFeed, error: Exception, started: float) -> float:
        now, error = self._clock.time(), self._connectivity.judge(error)
        roll = self._random.random()
        step = backoff.after_failure(error, live.health, live.policy, interval=INTERVAL, now=now, roll=roll)
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
        return RECONNECT_SECONDS if step.health.state == "paused" else step.wait_seconds
