"""The metrics of poller jobs. Without a pollers section there is none of them."""

from __future__ import annotations

from collections.abc import Mapping

from harken.app.metrics import Metrics
from harken.backoff import before_try
from harken.clock import Clock
from harken.config import Loaded
from harken.config.jobs import Job
from harken.ingest.live import Live
from harken.runs import Claimed

__all__ = ["PollerGauges"]

STATUSES = ("ok", "transient", "permanent", "skipped")
MILLISECONDS = (10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 300_000)
CLOSED, HALF_OPEN, OPEN = 0, 1, 2


class PollerGauges:
    """Counts for each job from 0 on; `feeds` are all that are configured."""

    def __init__(self, feeds: Mapping[str, Live], clock: Clock) -> None:
        self._feeds = feeds
        self._clock = clock
        self._configured = False
        self._jobs: dict[str, Job] = {}
        self._by_feed: dict[str, Job] = {}
        # jobs are written by the operator, so no stranger can make one more series
        self._metrics = metrics = Metrics(most=None)
        self._ticks = metrics.counter("poller_ticks_total", "Ticks of poller jobs.")
        self._latency = metrics.histogram("poller_latency_ms", "How long reads of jobs took.", MILLISECONDS)
        self._seen = metrics.counter("poller_items_seen_total", "New items that jobs found.")
        self._dispatched = metrics.counter("poller_items_dispatched_total", "Messages that were delivered.")
        self._takeovers = metrics.counter("poller_lease_takeovers_total", "Jobs taken over from another process.")
        metrics.gauges("poller_consecutive_errors", "Failed reads in a row.", "job_id", self._errors)
        metrics.gauges("poller_breaker_state", "0 closed, 1 half-open, 2 open.", "job_id", self._breakers)

    def use(self, loaded: Loaded) -> None:
        """What is counted is there from the start, and goes with its job, or when that is another kind or agent's."""
        before, self._jobs = self._jobs, dict(loaded.jobs)
        self._configured = loaded.pollers is not None
        self._by_feed = {job.feed: job for job in self._jobs.values()}
        same = {id for id, job in self._jobs.items() if id in before and _labels(before[id]) == _labels(job)}
        self._metrics.keep("job_id", same)
        for job in self._jobs.values():
            labels = _labels(job)
            for status in STATUSES:
                self._ticks(0, **labels, status=status)
            self._latency(None, **labels)
            self._seen(0, **labels)
            self._dispatched(0, **labels)
            self._takeovers(0, job_id=job.id)

    def page(self) -> bytes:
        return self._metrics.page() if self._configured else b""

    def ticked(self, feed: str, status: str, seconds: float | None = None, count: int = 1) -> None:
        """A tick was made, or `count` were due and not made; `seconds` where the source was asked."""
        job = self._by_feed.get(feed)
        if job is None:
            return
        self._ticks(count, **_labels(job), status=status)
        if seconds is not None:
            self._latency(seconds * 1_000, **_labels(job))

    def saw(self, feed: str, count: int) -> None:
        job = self._by_feed.get(feed)
        if job is not None:
            self._seen(count, **_labels(job))

    def ended(self, what: str, claimed: Claimed) -> None:
        """A try of a run ended so; the trigger of a job is called like the job."""
        job = self._jobs.get(claimed.trigger) if what == "done" else None
        if job is not None:
            self._dispatched(**_labels(job))

    def taken_over(self, shard: int) -> None:
        for job, live in self._lives():
            if live.feed.shard == shard:
                self._takeovers(job_id=job.id)

    def _errors(self) -> Mapping[str, float]:
        return {job.id: live.health.failures for job, live in self._lives()}

    def _breakers(self) -> Mapping[str, float]:
        now = self._clock.time()
        return {job.id: _breaker(live, now) for job, live in self._lives()}

    def _lives(self) -> list[tuple[Job, Live]]:
        return [(job, self._feeds[job.feed]) for job in self._jobs.values() if job.feed in self._feeds]


def _labels(job: Job) -> dict[str, str]:
    return {"kind": job.kind, "agent": job.agent, "job_id": job.id}


def _breaker(live: Live, now: float) -> int:
    """An open one whose wait is over is half-open: the next read is the probe, and then under way."""
    return {"closed": CLOSED, "half_open": HALF_OPEN}.get(before_try(live.health, now).state, OPEN)
