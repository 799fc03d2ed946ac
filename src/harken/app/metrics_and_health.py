"""The contents of /metrics and /health, counted from what intake, worker and store report."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import structlog

from harken.app.metric_registry import Metrics
from harken.app.refused_inbound_connections import REFUSED as REFUSED_FOR
from harken.app.run_metrics import RunMetrics
from harken.app.source_and_action_factory import Factory
from harken.circuit_breaker import REFUSED, before_try, is_permanent
from harken.circuit_breaker import Health as FeedHealth
from harken.clock import Clock, from_unix
from harken.config.files_and_rows import is_row_feed
from harken.config.loaded import Loaded
from harken.config.pollers.schema import Job
from harken.errors import HarkenError
from harken.feed import Feed
from harken.ingest.feed_runtime_state import LiveFeed, TickReport
from harken.ingest.intake import Intake
from harken.ingest.refused_webhooks import REASONS
from harken.kit.cursor_codec import load_cursor
from harken.operate.unreadable_tracker_locations import trouble_of
from harken.run.worker import Worker
from harken.runs import Claimed
from harken.schedule import Every
from harken.source import Lag
from harken.store import Commit, Committed, Definitions, Store
from harken.tickets import feed_name
from harken.tickets.cursor import TicketCursor

if TYPE_CHECKING:
    from harken.app.http_protocol import Connections
    from harken.app.otlp import SpanExporter

__all__ = ["Telemetry"]

Subsystem = tuple[str, str, str]
"""name, state (up, degraded, down, disabled), reason"""

STATUSES = ("success", "error", "not_modified", "rate_limited", "skipped")
STATUS = {"events": "success", "nothing_new": "success", "unchanged": "not_modified"}
KINDS_OF_ERROR = ("retry", "attention", "cursor_expired", "timeout")
ERRORS = {**{kind: kind for kind in KINDS_OF_ERROR}, **dict.fromkeys(REFUSED, "attention")}
WEBHOOK_RESULTS = ("accepted", "duplicate", "refused", "unavailable", "failed")
MAX_LAG = 10.0
MOST_FEEDS = 1_000
"""Feeds whose commits are counted at most before these counts are added to the series of their services."""

POLLER_STATUSES = ("ok", "transient", "permanent", "skipped")
MILLISECONDS = (10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 300_000)
CLOSED, HALF_OPEN, OPEN = 0, 1, 2

log = structlog.get_logger("harken.app")


class Telemetry:
    """Counts what the engine does. The application sets `stale`, `behind`, `idle`, `unshown` and `not_reading` for
    /health; `unshown`: why nothing can be written on tickets."""

    def __init__(self, store: Store, intake: Intake, worker: Worker, factory: Factory, clock: Clock) -> None:
        self._store = store
        self._intake = intake
        self._factory = factory
        self._health = Health(clock)
        self._dead: dict[str, str] = {}
        self._metrics = metrics = Metrics()
        self._polls = metrics.counter("harken_poll_trigger_polls_total", "Reads of polled feeds.")
        self._new = metrics.counter("harken_poll_trigger_events_total", "New events found by polling.")
        self._latency = metrics.histogram("harken_poll_trigger_latency_seconds", "How long reads took.")
        self._errors = metrics.counter("harken_poll_trigger_errors_total", "Reads that failed.")
        # what reads, commits and webhooks came to since the last page: this is called for each, so it only counts
        self._reads: dict[tuple[str, str], int] = {}
        # by feed, what was decided and how often; "" counts events
        self._commits: dict[str, dict[str, int]] = {}
        self._providers: dict[str, str] = {}
        self._answers: dict[tuple[str, int], int] = {}
        self._received = metrics.counter("triggers_events_received_total", "Events received, by service.")
        self._filtered = metrics.counter("triggers_events_filtered_total", "Events that started no run at once.")
        self._started = metrics.counter("triggers_runs_started_total", "Runs that events asked for.")
        refused = metrics.counter("harken_webhooks_refused_total", "Webhooks that were refused, by reason.")
        for reason in REASONS:
            refused(0, reason=reason)
        intake.webhooks.refusals.on_refused = lambda reason: refused(reason=reason)
        self._webhooks = metrics.counter("harken_webhooks_total", "Requests to webhooks, by result.")
        self._paths: dict[str, str] = {}
        metrics.gauge("harken_poll_trigger_active", "Feeds that are read on a schedule.", self._active)
        metrics.gauge(
            "harken_schedule_lag_seconds", "How late the last read began, or waits to begin.", lambda: intake.lag
        )
        metrics.gauge(
            "harken_reads_waiting", "Reads that are due and wait for a slot.", lambda: len(intake.late_reads())
        )
        metrics.gauges(
            "harken_stream_lag_messages", "Messages that wait at the broker of a stream.", "feed", self._lag_messages
        )
        metrics.gauges(
            "harken_stream_lag_seconds",
            "Age of the oldest of these messages.",
            "feed",
            self._lag_seconds,
        )
        metrics.gauges(
            "harken_doorbell_announced", "Changes that a feed's doorbell announced.", "feed", self._announced
        )
        metrics.gauges(
            "harken_doorbell_missed", "Changes that were found without an announcement.", "feed", self._missed
        )
        metrics.gauge("harken_runs_in_flight", "Runs being executed.", lambda: worker.in_flight)
        metrics.gauge("harken_store_queue", "Writes waiting for the disk.", lambda: store.queued)
        self._runs = RunMetrics(worker.workflow_name)
        self._pollers = PollerTelemetry(intake.feeds, clock)
        intake.poller.observe = self._count_poll
        intake.webhooks.observe = self._count_webhook
        intake.committer.on_refused = self._runs.count_refused_event
        factory.on_delivery = self._runs.count_delivery
        worker.observe = self._count_run
        intake.skipped = self._count_skipped
        intake.leases.on_takeover = self._pollers.count_takeovers
        self.loaded = factory.loaded
        self.stale: Callable[[], Sequence[str]] = tuple
        self.behind: Callable[[], str] = str
        self.idle = ""
        self.unshown: Callable[[], str] = str
        self.not_reading: Callable[[], tuple[str, str]] = lambda: ("degraded", "no shard is held")

    def count_connections(self, connections: Connections) -> None:
        """Show the listeners' connections, and count what they refuse from now on."""
        metrics = self._metrics
        refused = metrics.counter("harken_connections_refused_total", "Connections that were refused, by reason.")
        known = connections.refused.counts()
        for reason in REFUSED_FOR:
            refused(known.get(reason, 0), reason=reason)
        connections.refused.on_refused = lambda reason: refused(reason=reason)
        metrics.gauge("harken_connections", "Open connections to the listeners.", lambda: len(connections.table))

    def count_spans(self, exporter: SpanExporter) -> None:
        """Count the spans that are sent to a collector, and those that are not."""
        metrics = self._metrics
        exported = metrics.counter("harken_spans_exported_total", "Spans that a collector has taken.")
        dropped = metrics.counter("harken_spans_dropped_total", "Spans that were not sent, or refused.")
        exported(0)
        dropped(0)
        exporter.on_exported, exporter.on_dropped = exported, dropped

    @property
    def loaded(self) -> Loaded:
        return self._loaded

    @loaded.setter
    def loaded(self, loaded: Loaded) -> None:
        """Create the series of each integration at 0; drop those of integrations without a feed."""
        self._add_counts()
        self._loaded = loaded
        self._names = {_label(feed) for feed in loaded.feeds if feed.way == "poll"}
        self._metrics.keep("integration", self._names)
        self._metrics.keep("provider", {feed.kind for feed in loaded.feeds})
        for name in sorted(self._names):
            self._begin_series(name)
        self._paths = {feed.name: feed.path for feed in loaded.feeds if feed.path}
        self._metrics.keep("webhook", frozenset(self._paths.values()))
        for feed, path in self._paths.items():
            # those of rows may be many: each begins when it is called first
            for result in () if is_row_feed(loaded, feed) else WEBHOOK_RESULTS:
                self._webhooks(0, webhook=path, result=result)
        self._runs.use(loaded, self._factory.channels())
        self._pollers.use(loaded)

    def use_part(self, loaded: Loaded, part: Definitions) -> None:
        """Have a configuration of which only this part has changed. Series of what is gone stay until a reload."""
        self._loaded = loaded
        for feed in part.feeds:
            if feed.way == "poll" and _label(feed) not in self._names:
                self._names.add(_label(feed))
                self._begin_series(_label(feed))
            if feed.path:
                self._paths[feed.name] = feed.path

    def _begin_series(self, integration: str) -> None:
        for status in STATUSES:
            self._polls(0, integration=integration, status=status)
        for kind in KINDS_OF_ERROR:
            self._errors(0, integration=integration, error_type=kind)

    async def scrape(self) -> bytes:
        """The page, with what the store says about held and dead runs; without these while it does not answer."""
        try:
            self._runs.backlogs = await self._store.backlogs()
        except HarkenError as error:
            # /health says that the store is away; old numbers would say that all is as it was
            log.debug("metrics.incomplete", reason=str(error))
            self._runs.backlogs = None
        return self.page()

    def page(self) -> bytes:
        self._add_counts()
        return self._metrics.page() + self._runs.page() + self._pollers.page()

    def health(self) -> Mapping[str, Any]:
        parts = [self._store_health(), self._ingest_health(), self._run_health(), self._config_health()]
        parts += [self._tracker_health(name) for name in sorted(self.loaded.trackers)]
        dead: list[Subsystem] = [(name, "down", why) for name, why in self._dead.items() if name != "worker"]
        return self._health.report([*parts, *dead], self._began())

    def count_commit(self, feed: str, commit: Commit, committed: Committed) -> None:
        live = self._intake.feeds.get(feed)
        polled = live is not None and live.feed.way == "poll"
        commits = self._commits.get(feed)
        if commits is None:
            if len(self._commits) >= MOST_FEEDS:
                self._add_counts()
            commits = self._commits[feed] = {"": 0}
            self._providers[feed] = live.feed.kind if live else "harken"
        new = 0
        for entry in commit.entries:
            # events that are decided again were counted when they came
            if not entry.again:
                new += 1
                if polled:
                    assert live is not None
                    self._new(integration=_label(live.feed), type=entry.event.type)
        commits[""] += new
        if polled:
            self._pollers.count_items(feed, new)
        for verdicts in committed.verdicts:
            for verdict in verdicts:
                outcome = verdict.outcome
                commits[outcome] = commits.get(outcome, 0) + 1

    def _add_counts(self) -> None:
        """Add to the series what was counted since the last page."""
        reads, self._reads = self._reads, {}
        for (integration, result), count in reads.items():
            self._polls(count, integration=integration, status=result)
        commits, self._commits = self._commits, {}
        for feed, counts in commits.items():
            provider = self._providers.pop(feed)
            for outcome, count in counts.items():
                if not outcome:
                    self._received(count, provider=provider)
                elif outcome in ("fired", "gathered"):
                    self._started(count, provider=provider)
                elif outcome != "before_start":
                    self._filtered(count, provider=provider, result=outcome)
        answers, self._answers = self._answers, {}
        for (path, status), count in answers.items():
            self._webhooks(count, webhook=path, result=_webhook_result(status))

    def note_task_end(self, task: asyncio.Task[Any]) -> None:
        """A task that failed is reported as down from now on."""
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            self._dead[task.get_name()] = f"it stopped: {type(error).__name__}"
            log.error("task.died", task=task.get_name(), exc_info=error)

    def _count_poll(self, live: LiveFeed, report: TickReport, seconds: float) -> None:
        feed, result = live.feed, report.result
        name = feed.integration or feed.kind
        if name not in self._names:
            # its feed left the configuration during the read
            return
        # no call was made: the credential's rate limit postponed the read
        deferred = result == "rate_limited" and live.health.code == "deferred"
        key = name, "skipped" if deferred else STATUS.get(result, result)
        self._reads[key] = self._reads.get(key, 0) + 1
        self._latency(seconds, integration=name)
        if self._pollers.has(feed.name):
            self._pollers.count_ticks(feed.name, _status(report, live, deferred), None if deferred else seconds)
        if missed := _missed(feed, seconds):
            self._polls(missed, integration=name, status="skipped")
            self._pollers.count_ticks(feed.name, "skipped", count=missed)
        if result == "error":
            self._errors(integration=name, error_type=ERRORS.get(live.health.code, "retry"))

    def _count_skipped(self, live: LiveFeed) -> None:
        if _label(live.feed) in self._names:
            self._polls(integration=_label(live.feed), status="skipped")
            self._pollers.count_ticks(live.feed.name, "skipped")

    def _count_run(self, what: str, claimed: Claimed) -> None:
        if what == "started":
            # only ends are shown
            return
        self._runs.count_run(what, claimed)
        self._pollers.count_run(what, claimed)

    def _count_webhook(self, feed: str, status: int) -> None:
        path = self._paths.get(feed)
        if path is not None:
            key = path, status
            self._answers[key] = self._answers.get(key, 0) + 1

    def _active(self) -> float:
        return sum(1 for live in self._ours() if live.feed.way == "poll" and live.health.state != "paused")

    def _announced(self) -> Mapping[str, float]:
        feeds = self._intake.feeds
        return {feeds[name].feed.display_name: one.announced for name, one in self._intake.announced().items()}

    def _missed(self) -> Mapping[str, float]:
        feeds = self._intake.feeds
        return {feeds[name].feed.display_name: one.missed for name, one in self._intake.announced().items()}

    def _lag_messages(self) -> Mapping[str, float]:
        return {feed: lag.messages for feed, lag in self._stream_lags() if lag.messages is not None}

    def _lag_seconds(self) -> Mapping[str, float]:
        return {feed: lag.seconds for feed, lag in self._stream_lags() if lag.seconds is not None}

    def _stream_lags(self) -> list[tuple[str, Lag]]:
        lags, feeds = self._intake.stream_lags(), self._intake.feeds
        return [(feeds[name].feed.display_name, lag) for name, lag in lags.items() if name in feeds]

    def _ours(self) -> list[LiveFeed]:
        """The feeds that this process reads."""
        return [live for live in self._intake.feeds.values() if self._intake.registry.reads(live)]

    def _store_health(self) -> Subsystem:
        trouble = self._store.trouble
        return ("store", "down", trouble) if trouble else ("store", "up", "")

    def _ingest_health(self) -> Subsystem:
        if not self._intake.scheduler.works():
            return "ingest", "down", "the scheduler has stopped"
        if not self._intake.leases.held:
            return "ingest", *self.not_reading()
        ours = self._ours()
        paused = [live.feed.display_name for live in ours if live.health.state == "paused"]
        failing = [live.feed.display_name for live in ours if live.health.failures and live.health.state != "paused"]
        troubles = [f"{name} is paused" for name in paused] + [f"{name} fails" for name in failing]
        away = [live.health.offline_since for live in ours if live.health.offline_since is not None]
        if away:
            troubles.insert(0, f"offline since {from_unix(min(away)):%Y-%m-%d %H:%M:%S}Z")
        troubles += [f"nothing came for the trigger {name}" for name in self.stale()]
        if troubles:
            return "ingest", "degraded", ", ".join(troubles[:5])
        late = max(self._intake.late_reads().items(), key=lambda one: one[1].seconds, default=None)
        if late is not None and late[1].seconds > MAX_LAG:
            return "ingest", "degraded", f"{late[0]} is {late[1].seconds:.0f} s late: it {late[1].reason}"
        if self._intake.scheduler.lag > MAX_LAG:
            return "ingest", "degraded", f"reads begin {self._intake.scheduler.lag:.0f} s late"
        return "ingest", "up", ""

    def _began(self) -> dict[str, float]:
        """When the feeds of a subsystem began to fail, of those that fail now: the store knows, whoever asks when."""
        began: dict[str, float] = {}
        trackers = {feed_name(tracker) for tracker in self.loaded.trackers}
        for live in self._ours():
            since = _failing_since(live.health)
            for name in ("ingest", live.feed.name) if live.feed.name in trackers else ("ingest",):
                if since is not None:
                    began[name] = min(since, began.get(name, since))
        return began

    def _tracker_health(self, tracker: str) -> Subsystem:
        """Whether the tickets of this tracker are read. One that no project uses is switched off."""
        name = feed_name(tracker)
        live, settings = self._intake.feeds.get(name), self.loaded.trackers[tracker]
        if live is None:
            return name, "disabled", "no project uses it"
        if not self._intake.registry.reads(live):
            return name, *self.not_reading()
        health = live.health
        if health.state == "paused":
            return name, "down", health.message
        if health.offline_since is not None:
            return name, "degraded", f"offline since {from_unix(health.offline_since):%Y-%m-%d %H:%M:%S}Z"
        if health.failures:
            return name, "degraded", health.message
        if unread := trouble_of(load_cursor(live.cursor, TicketCursor), settings):
            return name, "degraded", unread
        if why := self.unshown():
            return name, "degraded", f"nothing is written on tickets: {why}"
        return name, "up", "" if settings.polled else "it is not polled, but read every 15 minutes"

    def _run_health(self) -> Subsystem:
        if self.idle:
            return "run", "disabled", self.idle
        dead = self._dead.get("worker")
        return ("run", "down", dead) if dead else ("run", "up", "")

    def _config_health(self) -> Subsystem:
        if behind := self.behind():
            return (
                "config",
                "degraded",
                f"the other replicas run generation {behind}, and the files here another",
            )
        refused = sorted(self.loaded.refused)
        return ("config", "degraded", f"refused: {', '.join(refused[:5])}") if refused else ("config", "up", "")


def _failing_since(health: FeedHealth) -> float | None:
    if health.state == "paused" or health.failures:
        return health.failing_since or health.since
    return health.offline_since


def _label(feed: Feed) -> str:
    return feed.integration or feed.kind


def _webhook_result(status: int) -> str:
    return {202: "accepted", 200: "duplicate", 503: "unavailable", 500: "failed"}.get(status, "refused")


def _status(report: TickReport, live: LiveFeed, deferred: bool) -> str:
    """The status of a job's tick. A rate-limited service has not failed permanently, but was not read either."""
    if deferred:
        return "skipped"
    if report.result == "rate_limited":
        return "transient"
    if report.result != "error":
        return "ok"
    return "permanent" if is_permanent(live.health.code) else "transient"


def _missed(feed: Feed, seconds: float) -> int:
    """How many reads were due during one that took so long."""
    return int(seconds // feed.schedule.seconds) if isinstance(feed.schedule, Every) else 0


class PollerTelemetry:
    """Metrics for each poller job; `feeds` are all that are configured."""

    def __init__(self, feeds: Mapping[str, LiveFeed], clock: Clock) -> None:
        self._feeds = feeds
        self._clock = clock
        self._configured = False
        self._jobs: dict[str, Job] = {}
        self._by_feed: dict[str, Job] = {}
        # jobs are configured by the operator, so no outsider can add series
        self._metrics = metrics = Metrics(most=None)
        self._ticks = metrics.counter("poller_ticks_total", "Ticks of poller jobs.")
        self._latency = metrics.histogram("poller_latency_ms", "How long reads of jobs took.", MILLISECONDS)
        self._seen = metrics.counter("poller_items_seen_total", "New items that jobs found.")
        self._dispatched = metrics.counter("poller_items_dispatched_total", "Messages that were delivered.")
        self._takeovers = metrics.counter("poller_lease_takeovers_total", "Jobs taken over from another process.")
        metrics.gauges("poller_consecutive_errors", "Failed reads in a row.", "job_id", self._errors)
        metrics.gauges("poller_breaker_state", "0 closed, 1 half-open, 2 open.", "job_id", self._breakers)

    def use(self, loaded: Loaded) -> None:
        """Create the series of each job at 0; drop those of jobs that are gone or have another kind or agent."""
        before, self._jobs = self._jobs, dict(loaded.jobs)
        self._configured = loaded.pollers is not None
        self._by_feed = {job.feed: job for job in self._jobs.values()}
        same = {id for id, job in self._jobs.items() if id in before and _labels(before[id]) == _labels(job)}
        self._metrics.keep("job_id", same)
        for job in self._jobs.values():
            labels = _labels(job)
            for status in POLLER_STATUSES:
                self._ticks(0, **labels, status=status)
            self._latency(None, **labels)
            self._seen(0, **labels)
            self._dispatched(0, **labels)
            self._takeovers(0, job_id=job.id)

    def page(self) -> bytes:
        return self._metrics.page() if self._configured else b""

    def has(self, feed: str) -> bool:
        """Whether the feed is that of a job."""
        return feed in self._by_feed

    def count_ticks(self, feed: str, status: str, seconds: float | None = None, count: int = 1) -> None:
        """Count ticks of a job, made or skipped; `seconds` if the source was called."""
        job = self._by_feed.get(feed)
        if job is None:
            return
        self._ticks(count, **_labels(job), status=status)
        if seconds is not None:
            self._latency(seconds * 1_000, **_labels(job))

    def count_items(self, feed: str, count: int) -> None:
        job = self._by_feed.get(feed)
        if job is not None:
            self._seen(count, **_labels(job))

    def count_run(self, what: str, claimed: Claimed) -> None:
        """Count a delivery when a run of a job is done; a job's trigger has the name of the job."""
        job = self._jobs.get(claimed.trigger) if what == "done" else None
        if job is not None:
            self._dispatched(**_labels(job))

    def count_takeovers(self, shard: int) -> None:
        for job, live in self._lives():
            if live.feed.shard == shard:
                self._takeovers(job_id=job.id)

    def _errors(self) -> Mapping[str, float]:
        return {job.id: live.health.failures for job, live in self._lives()}

    def _breakers(self) -> Mapping[str, float]:
        now = self._clock.time()
        return {job.id: _breaker(live, now) for job, live in self._lives()}

    def _lives(self) -> list[tuple[Job, LiveFeed]]:
        return [(job, self._feeds[job.feed]) for job in self._jobs.values() if job.feed in self._feeds]


def _labels(job: Job) -> dict[str, str]:
    return {"kind": job.kind, "agent": job.agent, "job_id": job.id}


def _breaker(live: LiveFeed, now: float) -> int:
    """An open breaker whose wait is over counts as half-open: the next read is its probe."""
    return {"closed": CLOSED, "half_open": HALF_OPEN}.get(before_try(live.health, now).state, OPEN)


class Health:
    """Remembers since when each subsystem has been in its state."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._started = clock.now()
        self._since: dict[str, tuple[str, datetime]] = {}

    def report(self, subsystems: list[Subsystem], began: Mapping[str, float] | None = None) -> Mapping[str, Any]:
        """`began`: when the trouble of a subsystem began, where that is known; else it counts from the first look."""
        rows = [self._row(*subsystem, (began or {}).get(subsystem[0])) for subsystem in subsystems]
        states = {row["state"] for row in rows}
        status = "down" if "down" in states else "degraded" if "degraded" in states else "up"
        return {"status": status, "subsystems": rows}

    def _row(self, name: str, state: str, reason: str, began: float | None) -> dict[str, Any]:
        before = self._since.get(name)
        if before is None or before[0] != state:
            before = self._since[name] = (state, self._first_seen(state, began, first=before is None))
        return {"name": name, "state": state, "reason": reason, "since": before[1]}

    def _first_seen(self, state: str, began: float | None, *, first: bool) -> datetime:
        if state in ("degraded", "down"):
            return self._clock.now() if began is None else from_unix(began)
        return self._started if first else self._clock.now()
