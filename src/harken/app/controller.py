"""The running engine as operations use it: reload, tick, preview, status, and following the fleet's configuration."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec
import structlog

from harken import __version__
from harken.app.config_audit import FILES, changed_at_start, changed_files
from harken.app.draft_read import DraftReads
from harken.app.event_and_run_counts_over_time import ActivityLog
from harken.app.file_watch import file_stamps
from harken.app.fleet import OtherGeneration, host, notify_replicas
from harken.app.source_and_action_factory import Factory
from harken.app.store import scratch_store
from harken.app.stored_triggers import TriggerRows, without_collection
from harken.app.trigger_dry_run import preview
from harken.app.trigger_outcome_counts_over_time import TriggerActivityLog
from harken.clock import Clock, from_unix
from harken.config.files_and_rows import query_mark
from harken.config.loaded import Account, Loaded
from harken.config.reload_plan import carry_over, inherit_cursors, plan
from harken.errors import HarkenError, NotFound, Refused
from harken.event import Event
from harken.feed import Feed, Trigger
from harken.http.known_secret_redaction import prepare_search
from harken.ingest.feed_runtime_state import Late, TickReport
from harken.ingest.intake import Intake
from harken.ingest.refused_webhooks import Refusal
from harken.match import Read
from harken.operate.activity_counts import Buckets
from harken.operate.engine_protocol import DraftEvents, DraftFeed, Preview
from harken.operate.fleet import Member
from harken.operate.integrations import check_query, resume_stopped_feeds
from harken.operate.load_and_check_configuration import load_directory
from harken.operate.trigger_activity_counts import Counts
from harken.outgoing_rate_limit import Level
from harken.run.worker import Worker
from harken.source import Announced, Closable, Cursor, Host, Lag, Located, Place, PositionedSource, SeekableSource
from harken.store import Commit, Committed, Definitions, Generation, Store
from harken.store.document_kinds import APPLIED, CONFIG

if TYPE_CHECKING:
    from harken.app.http_protocol import Connections
    from harken.app.ticket_and_run_sync import TicketWork
    from harken.ticket import TicketTracker
    from harken.tickets.recovery_after_store_loss import AdoptionResult
    from harken.tickets.write_pace import WritePace

__all__ = [
    "Controller",
    "finding_lines",
    "last_applied",
    "load_start_lines",
    "locate_in",
    "preview_trigger",
    "save_applied",
]

log = structlog.get_logger("harken.app")


REFRESH_PAUSE = 5.0
MANY_ROWS = 1_000
"""From so many rows on, what a start makes of them is excluded from garbage collection at once."""


class Controller:
    """Applies the configuration to intake and worker, again after each change of the files or of the fleet."""

    def __init__(self, store: Store, factory: Factory, intake: Intake, worker: Worker, clock: Clock) -> None:
        self._store = store
        self._factory = factory
        self._intake = intake
        self._worker = worker
        self._clock = clock
        self._started = clock.time()
        self._waiting: list[asyncio.Future[bool]] = []
        self._refreshing: asyncio.Task[None] | None = None
        self._refresh_again = False
        self._reloading = asyncio.Lock()
        self._stopping = False
        self._other = OtherGeneration()
        self._compared: Any = None
        self._files = factory.loaded
        self._draft_reads = DraftReads(clock)
        self.rows = TriggerRows(store)
        self.activity = ActivityLog(store, clock, self._activity_totals)
        self.trigger_activity = TriggerActivityLog(store, clock)
        self.url = ""
        self.connections: Connections | None = None
        # what a page tells whoever opens it: {title, text, commands}
        self.notice: Mapping[str, Any] = {}
        self.tickets: TicketWork | None = None
        self.on_change: Callable[[], None] = lambda: None
        self.on_loaded: Callable[[Loaded, Definitions | None], None] = lambda loaded, part: None

    async def open(self, wait: Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]] | None = None) -> None:
        """Apply the configuration for the first time in this process; `wait` repeats a call until the store answers."""
        wait = wait or _call_once
        with without_collection(keep=lambda: len(self._factory.loaded.rows) >= MANY_ROWS):
            loaded = await wait(lambda: self.rows.load(self._files))
            before = await wait(lambda: last_applied(self._store, loaded))
            current = await wait(self._store.generation)
            if loaded is not self._files:
                self._use(loaded)
            feeds = inherit_cursors(loaded.feeds, loaded.triggers, before.feeds, before.triggers)
            definitions = msgspec.structs.replace(loaded.definitions(starting=True), feeds=feeds)
            await wait(lambda: self._intake.start(definitions))
        await wait(lambda: save_applied(self._store, self._files))
        if current.name not in ("", self._files.generation):
            await wait(lambda: self._audit(changed_at_start(before, self._files)))
        # those that somebody made while we opened were not among ours
        await wait(self.sync_rows)

    @property
    def behind(self) -> str:
        """The generation that the other replicas run, if it is not ours; else empty."""
        return self._other.name

    def member(self, holder: str, role: str) -> Member:
        """This replica's row in the fleet."""
        return Member(
            holder=holder,
            host=host(),
            pid=os.getpid(),
            url=self.url,
            role=role,
            leaving=self._stopping or not self._intake.scheduler.works(),
            generation=self._factory.loaded.generation,
            shards=sorted(self._intake.leases.held),
            shards_of=self._intake.leases.shards,
            lag_seconds=round(self._intake.lag, 3),
            runs_in_flight=self._worker.in_flight,
            started_at=from_unix(self._started),
        )

    async def on_members(self, living: Sequence[Member], current: Generation) -> None:
        """Share the feeds with the live replicas, and follow the configuration that the store is at."""
        if self._stopping:
            return
        ours = self._factory.loaded.generation
        readers = [one for one in living if one.reads and one.generation == ours]
        if self._intake.leases.share_with([one.holder for one in readers]):
            # take the shards of a replica that left now, and not only at the next round
            await self._intake.leases.balance()
        if current.name == ours:
            self._other.clear()
            await self.sync_rows()
        elif not current.name:
            # the store has lost its data, or was replaced by an empty one
            await self.reload()
        else:
            await self._follow(current.name, any(one.generation == current.name for one in living))

    async def _follow(self, wanted: str, is_run: bool) -> None:
        """Reload when our files give the wanted generation. `is_run`: a live replica runs it.

        If no replica has run it for a while, apply our own again.
        """
        known = self._other.name
        if await asyncio.to_thread(self._files_give, wanted):
            # compare the files again if the reload fails
            self._compared = None
            await self.reload()
            self._other.clear()
        elif self._other.is_abandoned(wanted, is_run, self._clock.monotonic()):
            log.warning("config.reapplied", runs=self._factory.loaded.generation, abandoned=wanted)
            self._other.clear()
            await self.reload()
        elif known != wanted:
            log.warning("config.behind", runs=self._factory.loaded.generation, fleet=wanted)

    def _files_give(self, wanted: str) -> bool:
        """Whether our files give this generation now. They are loaded only if their stamps have changed."""
        old = self._files
        compared = (old.generation, wanted, file_stamps(old.directory), file_stamps(old.directory / "workflows"))
        if compared == self._compared:
            return False
        self._compared = compared
        return carry_over(old, load_directory(old.directory)).generation == wanted

    async def reload(self) -> Mapping[str, Any]:
        async with self._reloading:
            old, running = self._files, self._factory.loaded
            # in a thread, because a thousand jobs take their time and reads must go on
            merged, answer = await asyncio.to_thread(_prepare_reload, old)
            if self.behind not in ("", merged.generation) and merged.generation == old.generation:
                message = f"the other replicas run generation {self.behind}, and the files here have not changed"
                raise Refused(message, fix="Copy the same files here; they are loaded automatically")
            with self.rows.kept_if_applied():
                whole = await self.rows.load(merged)
                renewed = _reopened_feeds(running, whole)
                current = await self._store.generation()
                # before the feeds: runs of new triggers may begin at once
                self._files = merged
                self._use(whole)
                try:
                    await self._intake.apply(whole.definitions(), renew=renewed)
                    await save_applied(self._store, merged)
                except BaseException:
                    # the next reload finds the same differences
                    self._files = old
                    self._use(running)
                    raise
            if current.name != merged.generation:
                # else another replica was first, and has told it
                await self._audit(changed_files(old, merged, answer))
            if merged.generation == self.behind:
                self._other.clear()
            answer["freed"] = (await resume_stopped_feeds(self._store, whole.triggers, renewed)).freed
            # feeds whose pause was lifted must be read from the store again
            (self.nudge if answer["freed"] else self._worker.nudge)()
            log.info("config.reloaded", **{name: len(answer[name]) for name in ("add", "replace", "remove", "refused")})
            log_refused(merged)
            return answer

    async def _audit(self, changes: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
        for what, detail in changes:
            await self._store.audit(f"{FILES} on {host()}", "config.changed", what, detail)

    async def sync_rows(self) -> None:
        """Apply the rows that were changed in the store since we last looked, here or by another replica."""
        if self.behind:
            # the configuration that they belong to is not ours; a reload reads all of them
            return
        async with self._reloading:
            running = self._factory.loaded
            found = await self.rows.changed(self._files)
            if found is None:
                return
            self._use(found.loaded, found.part)
            try:
                await self._intake.apply_part(found.part, renew=found.renewed)
            except BaseException:
                self.rows.forget()
                self._use(running)
                raise
            log.info("rows.applied", triggers=len(found.part.only.triggers) if found.part.only else 0)
        self._worker.nudge()
        self.notify_watchers()

    def _use(self, loaded: Loaded, part: Definitions | None = None) -> None:
        """Have this configuration; with `part` nothing else of it has changed."""
        self._factory.loaded = loaded
        self._worker.use(self._factory.environment())
        self.on_loaded(loaded, part)

    async def diff(self) -> Mapping[str, Any]:
        old = self._files
        found = await asyncio.to_thread(load_directory, old.directory)
        return _differences(old, carry_over(old, found), found)

    async def tick(self, feed: str, by_hand: str = "") -> Mapping[str, Any]:
        live, found = self._intake.feeds.get(feed), self._intake.registry.defined.get(feed)
        elsewhere = live is None and found is not None and found.way == "poll"
        if not elsewhere and (live is None or live.poll is None or self._intake.registry.reads(live)):
            return dict(msgspec.to_builtins(await self._intake.tick(feed, by_hand)))
        # another replica holds the feed's shard, and reads it when it is notified
        await self._store.wake(feed)
        await notify_replicas(self._store)
        return dict(msgspec.to_builtins(TickReport(feed=feed, result="asked", error="another replica reads it now")))

    async def read_draft(self, draft: DraftFeed, lookback_seconds: float) -> DraftEvents:
        return await self._draft_reads.read(self._factory, draft, lookback_seconds)

    async def preview(self, trigger: str, lookback_seconds: float, *, since_start: bool = False) -> Preview:
        lines = {} if since_start else await load_start_lines(self._store)
        return await preview_trigger(self._store, self._factory, self._clock, trigger, lookback_seconds, lines)

    def status(self) -> Mapping[str, Any]:
        worker, intake = self._worker, self._intake
        return {
            "version": __version__,
            "pid": os.getpid(),
            "url": self.url,
            "uptime_seconds": round(self._clock.time() - self._started, 1),
            "generation": self._factory.loaded.generation,
            "leading": bool(intake.leases.held),
            "shards": sorted(intake.leases.held),
            "schedule_lag_seconds": round(intake.lag, 3),
            "stream_lags": {
                intake.feeds[name].feed.display_name: {"messages": lag.messages, "seconds": lag.seconds}
                for name, lag in sorted(intake.stream_lags().items())
                if name in intake.feeds
            },
            "events_committed": intake.committer.committed,
            "webhooks_received": intake.webhooks.received,
            "connections": len(self.connections.table) if self.connections else 0,
            "connections_refused": self.connections.refused.counts() if self.connections else {},
            "runs_started": worker.started,
            "runs_done": worker.done,
            "runs_failed": worker.failed,
            "runs_dead": worker.dead,
            "runs_in_flight": worker.in_flight,
            **({"notice": dict(self.notice)} if self.notice else {}),
        }

    def _activity_totals(self) -> tuple[int, ...]:
        worker = self._worker
        return self._intake.committer.committed, worker.done + worker.filtered, worker.failed + worker.dead

    def lend(self, account: Account) -> Host:
        return self._factory.lend(account)

    def trackers(self, name: str) -> Mapping[str, TicketTracker]:
        return self._factory.trackers(name)

    def write_pace(self, tracker: str) -> WritePace:
        return self._ticket_work().write_pace(tracker)

    def scratch(self, clock: Clock) -> AbstractAsyncContextManager[Store]:
        return scratch_store(clock)

    async def tell(self, feed: str, events: Sequence[Event]) -> None:
        await self._intake.committer.push(feed, events, Read(now=self._clock.now()))

    async def adopt_tickets(self, tracker: str) -> AdoptionResult:
        return await self._ticket_work().adopt(tracker)

    def _ticket_work(self) -> TicketWork:
        if self.tickets is None:
            raise Refused("this replica does nothing with tickets", fix="Run it where harken start runs")
        return self.tickets

    def refused_webhooks(self, path: str) -> Sequence[Refusal]:
        return self._intake.webhooks.refusals.last(path)

    def refused_count(self, path: str) -> int:
        return self._intake.webhooks.refusals.count(path)

    def unsaved_activity(self) -> Buckets:
        return self.activity.unsaved()

    def unsaved_trigger_activity(self) -> Counts:
        return self.trigger_activity.unsaved()

    def count_commit(self, feed: str, commit: Commit, committed: Committed) -> None:
        """Count what was decided for each trigger."""
        rules = self._intake.committer.rule_cache.get(feed)
        if rules is not None:
            self.trigger_activity.count(commit, committed, rules.names)

    def budgets(self) -> Mapping[str, Level]:
        return self._factory.budgets()

    def clock_skews(self) -> Mapping[str, float]:
        return {name: skew for name, live in self._intake.feeds.items() if (skew := live.service_clock.skew)}

    def service_clocks(self) -> Mapping[str, float]:
        clocks = {name: live.service_clock for name, live in self._intake.feeds.items()}
        return {name: clock.skew for name, clock in clocks.items() if clock.is_known}

    def late_reads(self) -> Mapping[str, Late]:
        return self._intake.late_reads()

    def stream_lags(self) -> Mapping[str, Lag]:
        return self._intake.stream_lags()

    def announced(self) -> Mapping[str, Announced]:
        return self._intake.announced()

    def in_hand_since(self, feed: str, key: str) -> datetime | None:
        return self._intake.in_hand_since(feed, key)

    async def place_of(self, feed: str, key: str, cursor: Cursor) -> Place | None:
        live = self._intake.feeds.get(feed)
        return live.source.place_of(key, cursor) if live and isinstance(live.source, PositionedSource) else None

    async def locate(self, feed: str, at: datetime, cursor: Cursor) -> Located | None:
        return await locate_in(self._factory, feed, at, cursor)

    def nudge(self) -> None:
        """An operation changed the store: refresh the feeds, claim runs, and notify the other replicas."""
        self.refresh()
        self.on_change()

    def refresh(self) -> None:
        """Something was changed in the store, here or by another replica: read it again."""
        self._worker.nudge()
        self._refresh_again = True
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._refresh_feeds(), name="refresh")

    async def _refresh_feeds(self) -> None:
        while self._refresh_again:
            self._refresh_again = False
            try:
                for state in await self._store.feeds():
                    known = self._intake.rule_cache.revision(state.name)
                    if known is None and self._intake.is_elsewhere(state.name):
                        continue
                    if known != state.revision or self._intake.is_woken(state):
                        await self._intake.refresh(state.name)
            except HarkenError as error:
                log.warning("feed.refresh_failed", reason=str(error))
                self._refresh_again = True
                await self._clock.sleep(REFRESH_PAUSE)
        self.notify_watchers()

    def notify_watchers(self) -> None:
        """Something was committed: let `changed` return True."""
        if self._waiting:
            self._resolve_watchers(True)

    async def changed(self, seconds: float) -> bool:
        if self._stopping:
            return False
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        try:
            async with asyncio.timeout(seconds):
                return await future
        except TimeoutError:
            return True

    def stop(self) -> None:
        """Let `changed` return False: nothing more will be committed."""
        self._stopping = True
        self._resolve_watchers(False)

    def _resolve_watchers(self, more: bool) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(more)


async def last_applied(store: Store, loaded: Loaded) -> Loaded:
    """The feeds and triggers that were applied last, by any replica; empty for a new store."""
    document = await store.get(CONFIG, APPLIED)
    if document is None:
        return Loaded(directory=loaded.directory)
    feeds = msgspec.convert(document.value["feeds"], tuple[Feed, ...])
    triggers = msgspec.convert(document.value["triggers"], tuple[Trigger, ...])
    return Loaded(directory=loaded.directory, feeds=feeds, triggers=triggers)


async def save_applied(store: Store, files: Loaded) -> None:
    """Store what `last_applied` returns: what the files gave, as rows are in the store anyway."""
    value = {"feeds": list(files.feeds), "triggers": list(files.triggers)}
    await store.put(CONFIG, APPLIED, value)


async def load_start_lines(store: Store) -> Mapping[str, datetime]:
    return {state.name: state.start_line for state in await store.triggers()}


async def preview_trigger(
    store: Store, factory: Factory, clock: Clock, trigger: str, lookback: float, start_lines: Mapping[str, datetime]
) -> Preview:
    loaded = factory.loaded
    wanted = loaded.trigger(trigger)
    feed = loaded.feed(wanted.feed) if wanted is not None else None
    if wanted is None or feed is None:
        raise NotFound(f"there is no trigger {trigger}", fix="See: harken triggers list")
    names = await check_query(feed, loaded, factory.plugins, factory.lend)
    start_line = start_lines.get(trigger)
    source = factory.source(feed)
    try:
        return await preview(store, feed, wanted, source, clock, lookback, names, start_line)
    finally:
        if isinstance(source, Closable):
            await source.aclose()


async def locate_in(factory: Factory, feed: str, at: datetime, cursor: Cursor) -> Located | None:
    """The place of that time in a stream, found on a connection of its own: the feed may be followed elsewhere."""
    found = factory.loaded.feed(feed)
    source = factory.source(found) if found is not None and found.way == "stream" else None
    return await source.locate(at, cursor) if isinstance(source, SeekableSource) else None


def log_refused(loaded: Loaded) -> None:
    """Log each error that keeps an item from being used, with its place."""
    for name, findings in loaded.refused.items():
        for finding in findings:
            if finding.severity == "error":
                at = f"{finding.file}:{finding.line}:{finding.column}"
                log.error("config.refused", item=name, at=at, reason=finding.message, fix=finding.fix)


def finding_lines(loaded: Loaded) -> list[str]:
    """Each finding as the line that people see."""
    return [str(finding) for finding in loaded.findings]


async def _call_once(call: Callable[[], Awaitable[Any]]) -> Any:
    return await call()


def _prepare_reload(old: Loaded) -> tuple[Loaded, dict[str, Any]]:
    """Load the files again: the merged configuration, and its differences."""
    found = load_directory(old.directory, keep=True)
    merged = carry_over(old, found)
    prepare_search(merged.secrets)
    return merged, _differences(old, merged, found)


def _reopened_feeds(old: Loaded, new: Loaded) -> frozenset[str]:
    """Feeds whose source must be opened again: their account, query or the services' settings have changed."""
    return frozenset(
        feed.name
        for feed in new.feeds
        if old.settings.services != new.settings.services
        or old.integrations.get(feed.integration) != new.integrations.get(feed.integration)
        or query_mark(old, feed.name) != query_mark(new, feed.name)
    )


def _differences(old: Loaded, merged: Loaded, found: Loaded) -> dict[str, Any]:
    answer: dict[str, Any] = msgspec.to_builtins(plan(old, merged))
    answer["refused"] = sorted(found.refused)
    answer["findings"] = finding_lines(found)
    return answer
