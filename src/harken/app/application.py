"""A running Harken: builds its parts, and starts and stops them in order. What each role does is decided here."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from harken.app.controller import Controller
from harken.app.fleet import notify_replicas
from harken.app.source_and_action_factory import Factory
from harken.app.store import KEY, OpenedStore, open_store, wait_for_store, without_password
from harken.app.stored_triggers import without_collection
from harken.clock import Clock, SystemClock
from harken.config.feed_sources import credential_of, shards_of
from harken.config.files_and_rows import is_row_feed
from harken.config.loaded import Loaded
from harken.config.settings import Queue, local_base
from harken.errors import HarkenError, Misconfigured, Refused
from harken.event import Event
from harken.http.known_secret_redaction import prepare_search
from harken.operate.controller_file import drop_run_file, run_file, write_run_file
from harken.operate.fleet import READERS
from harken.operate.load_and_check_configuration import credentials_of, load_directory
from harken.operate.operator import Operator
from harken.operate.tokens import HOW_TO_MAKE, has_tokens
from harken.runs import Claimed
from harken.services import registry
from harken.store import Definitions, EarlyEnd, Intent, Store
from harken.store.transfer_protocol_and_exclusive_access import refuse_marked
from harken.task_cancellation import cancel_and_wait
from harken.tickets.settings import feed_name, tracker_of
from harken.timings import Timings

if TYPE_CHECKING:
    from harken.app.fleet import HousekeepingLease, Membership
    from harken.app.line_per_ended_run import RunLines
    from harken.app.metrics_and_health import Telemetry
    from harken.app.otlp import SpanExporter
    from harken.app.server import Listener
    from harken.app.startup_listener import StoreWait
    from harken.app.ticket_and_run_sync import TicketWork
    from harken.ingest.intake import Intake
    from harken.operate.oidc import Provider
    from harken.operate.output_rows import Plain
    from harken.run.worker import Worker

__all__ = ["App", "Role", "not_reading", "refuse_blocking"]

Role = Literal["all", "ingest", "run", "api"]

MAX_PLANS = 10_000
"""Compiled workflows that are cached: more than anybody configures, as each job has one or two."""
COMPILED_AT_START = 1_000
"""Workflows: where there are more, a start would take seconds for plans of which few are soon needed."""


class App:
    """A running Harken. `say` prints a line for whoever started it; `ended` is set when it must stop by itself."""

    def __init__(
        self,
        loaded: Loaded,
        opened: OpenedStore,
        clock: Clock,
        role: Role = "all",
        timings: Timings = Timings(),
    ) -> None:
        self.opened = opened
        self.store = opened.store
        self.role = role
        self._timings = timings
        self.loaded = loaded
        self._clock = clock
        self._random = Random()
        self.holder = f"{os.getpid()}-{self._random.randbytes(4).hex()}"
        self.factory = Factory(loaded, registry(), clock, self._random, self.store)
        self.worker, self.intake = self._build_engine()
        self.controller = Controller(self.store, self.factory, self.intake, self.worker, clock)
        self.operator = Operator(self.store, self.controller, loaded, clock, timings)
        self.controller.on_loaded = self._on_loaded
        self.factory.tickets.on_wake = self.controller.nudge
        self.tickets = self.controller.tickets = self._build_tickets()
        self.intake.committer.on_commit = self._on_commit
        self.worker.on_settled = self.intake.run_answers.note_end
        self._telemetry = self._build_telemetry()
        self._exporter = self._build_tracing()
        self._tasks: list[asyncio.Task[Any]] = []
        self._listeners: list[Listener] = []
        self._membership: Membership | None = None
        self._housekeeping_lease: HousekeepingLease | None = None
        self.url = ""
        self.say: Callable[[str], None] = lambda line: None
        self._on_wait: Callable[[str], None] = lambda line: None
        self._local_token = ""
        self.ended = asyncio.Event()

    @classmethod
    @asynccontextmanager
    async def start(
        cls,
        directory: Path,
        *,
        host: str | None = None,
        port: int | None = None,
        clock: Clock | None = None,
        role: Role = "all",
        say: Callable[[str], None] = lambda line: None,
        loaded: Loaded | None = None,
        timings: Timings = Timings(),
        new_store: bool = False,
        notice: Mapping[str, Any] | None = None,
    ) -> AsyncIterator[App]:
        """Start everything, and stop it in order at the end. Raises Misconfigured when it cannot start.

        A store on a server that does not answer yet is waited for; `say` gets the reason. `new_store`: begin with an
        empty file where an earlier store is gone. `notice` is told by the first page: title, text and commands.
        """
        clock, loaded = clock or SystemClock(), loaded or load_directory(directory)
        refuse_blocking(loaded)
        prepare_search(loaded.secrets)
        opened = open_store(loaded.store, clock, key=os.environ.get(KEY, ""), new=new_store)
        with suppress(Misconfigured):
            # credentials that cannot be read are reported where an account needs them
            credentials_of(directory).finish_key_change()
        async with AsyncExitStack() as stack:
            stack.push_async_callback(opened.store.close)
            waiting = _bind(loaded, host, port, clock, say)
            stack.push_async_callback(waiting.close)
            with waiting.expecting(without_password(loaded.store)):
                lines = await wait_for_store(opened, clock, waiting.note, opened.connect)
            for line in lines:
                say(line)
            await wait_for_store(opened, clock, waiting.note, lambda: refuse_marked(opened.store))
            local_token = secrets.token_urlsafe(32) if needs_tokens(loaded, waiting.host) else ""
            if local_token:
                await wait_for_store(
                    opened,
                    clock,
                    waiting.note,
                    lambda: refuse_without_tokens(opened.store, clock, waiting.host, loaded),
                )
            with without_collection():
                app = cls(loaded, opened, clock, role, timings)
                app.say, app._local_token = say, local_token
                app.controller.notice = notice or {}
                stack.push_async_callback(app.stop)
                await app._start(waiting)
            yield app

    def _build_engine(self) -> tuple[Worker, Intake]:
        from harken.feed import INTERNAL
        from harken.ingest.commit import RuleCache
        from harken.ingest.intake import Intake
        from harken.ingest.internal_event_matcher import has_listeners, internal_matcher
        from harken.run.compiled_workflows import WorkflowCache
        from harken.run.worker import Worker

        rule_cache = RuleCache(self.store)
        self._workflows = WorkflowCache(self.store, size=MAX_PLANS, reveal=self._reveal)
        worker = Worker(
            self.store,
            self._clock,
            self._random,
            workflows=self._workflows,
            environment=self.factory.environment(),
            holder=self.holder,
            internal=internal_matcher(rule_cache, self._clock),
            learn=lambda: rule_cache.learn(INTERNAL),
            listens=has_listeners(rule_cache),
            parallel=self.loaded.settings.agent.queue.max_parallel_jobs,
            timings=with_queue(self._timings, self.loaded.settings.agent.queue),
        )
        intake = Intake(
            self.store,
            self._clock,
            self._random,
            worker if executes(self.role) else NoExecutor(self.holder),
            self.factory.source,
            holder=self.holder,
            rule_cache=rule_cache,
            shards=shards_of(self.loaded),
            reads=reads(self.role),
            timings=self._timings,
            connectivity=self.factory.http.connectivity,
            slot_key=lambda feed: credential_of(feed, self.loaded),
            is_prompt=lambda feed: bool(tracker_of(feed.name)),
            is_row=lambda feed: is_row_feed(self.loaded, feed.name),
        )
        intake.leases.shared = self.opened.shared
        return worker, intake

    def show_runs(self, write: Callable[[Plain], None]) -> RunLines:
        """Call `write`, in a thread, with a row for each run that ends from now on."""
        from harken.app.line_per_ended_run import RunLines

        lines = RunLines(write, self._clock, self.operator.discreet, self.worker.workflow_name)
        self.worker.on_end = lines.add
        return lines

    def _build_tickets(self) -> TicketWork:
        from harken.app.ticket_and_run_sync import TicketWork

        return TicketWork(
            self.store, self.factory, self.intake.committer, self.worker, self._clock, timings=self._timings
        )

    def _build_telemetry(self) -> Telemetry:
        from harken.app.metrics_and_health import Telemetry

        telemetry = Telemetry(self.store, self.intake, self.worker, self.factory, self._clock)
        telemetry.behind = lambda: self.controller.behind
        telemetry.not_reading = lambda: not_reading(self.role, self.opened.shared, self.controller.behind)
        telemetry.unshown = lambda: self.tickets.trouble
        telemetry.idle = "" if executes(self.role) else f"as --role {self.role} it executes nothing"
        return telemetry

    def _build_tracing(self) -> SpanExporter | None:
        """Give intake and worker a tracer, if the configuration says where spans go."""
        settings = self.loaded.settings.tracing
        if settings.endpoint is None:
            return None
        from harken.app.otlp import SpanExporter
        from harken.tracing import Tracer

        headers = {name: value.get_secret_value() for name, value in settings.headers.items()}
        exporter = SpanExporter(settings.endpoint, self._clock, headers=headers, service=settings.service_name)
        self._telemetry.count_spans(exporter)
        tracer = Tracer(self._clock, self._random, exporter.add, sample=settings.sample)
        self.intake.committer.tracer = self.worker.tracer = tracer
        return exporter

    def _on_loaded(self, loaded: Loaded, part: Definitions | None) -> None:
        if loaded.references is not self.loaded.references and loaded.references != self.loaded.references:
            self._workflows.forget()
        self.loaded = loaded
        if part is not None:
            # one of 100,000 rows: look at nothing else
            self.operator.use_part(loaded, part)
            self._telemetry.use_part(loaded, part)
            return
        self.operator.loaded = self._telemetry.loaded = loaded
        self.intake.leases.shards = shards_of(loaded)
        queue = loaded.settings.agent.queue
        self.worker.resize(queue.max_parallel_jobs, with_queue(self._timings, queue).worker_sleep)
        self._compile_workflows()

    def _reveal(self, definition: Any) -> Any:
        return self.loaded.reveal(definition)

    def _compile_workflows(self) -> None:
        """Compile the workflows with the current secrets; of very many each when it first runs."""
        own = [flow for name, flow in self.loaded.workflows.items() if name not in self.loaded.rows]
        for workflow in own if len(own) <= COMPILED_AT_START else ():
            if self._workflows.peek(workflow.rev) is None:
                revealed = self.loaded.reveal(workflow.definition)
                self._workflows.put(msgspec.structs.replace(workflow, definition=revealed))

    def _on_commit(self, feed: str, commit: Any, committed: Any) -> None:
        self._telemetry.count_commit(feed, commit, committed)
        self.controller.count_commit(feed, commit, committed)
        self.tickets.note_commit(feed)
        self.controller.notify_watchers()

    async def _start(self, waiting: StoreWait) -> None:
        self._on_wait = waiting.note
        await self.begin()
        await self._listen(waiting)
        self._on_wait = self.say
        if self.opened.shared:
            self._join_fleet()
        write_run_file(self._run_file, self.url, shared=self.opened.shared, token=self._local_token)

    async def begin(self) -> None:
        """Start to read, match and run, without listening for requests; `stop` ends it."""
        from harken.app.feed_alerts import Alerts
        from harken.app.fleet import HousekeepingLease
        from harken.app.housekeeping import do_housekeeping
        from harken.app.lost_event_alerts import LedgerAlerts
        from harken.app.run_alerts import RunAlerts
        from harken.app.stale_triggers import Freshness

        if self._exporter is not None:
            self.spawn(self._exporter.run(), "tracing")
        self._compile_workflows()
        await self._wait_for_store(lambda: self.factory.load_rate_limits(self.store))
        await self.controller.open(self._wait_for_store)
        await self._wait_for_store(self._sweep_trackers)
        # also without a role that executes: a store sends notifications only if it listens to them
        self.opened.listen(self.worker.nudge, self._on_released)
        if executes(self.role):
            self.spawn(self.worker.run(), "worker")
        self._housekeeping_lease = housekeeping_lease = HousekeepingLease(
            self.store, self._clock, self.holder, shared=self.opened.shared, seconds=self._timings.lease_seconds
        )
        alerts = Alerts(self.store, self.intake, self._clock, lambda: self.loaded, self.worker.nudge)
        run_alerts = RunAlerts(self.store, self.intake, self._clock, lambda: self.loaded)
        ledger_alerts = LedgerAlerts(self.store, self.intake, self._clock)
        freshness = Freshness(self.store, self.intake, self._clock, self._timings.freshness_round)
        self._telemetry.stale = lambda: freshness.stale
        self.spawn(freshness.watch(self.factory, housekeeping_lease), "freshness")
        self.spawn(self.tickets.keep(housekeeping_lease), "tickets")
        self.spawn(
            do_housekeeping(
                self.opened,
                self.factory,
                alerts,
                run_alerts,
                ledger_alerts,
                self.intake.scheduler,
                self.worker,
                self._clock,
                housekeeping_lease,
                self.intake.webhooks.refusals,
                self.controller.activity,
                self.controller.trigger_activity,
                self._timings.housekeeping_round,
            ),
            "upkeep",
        )

    async def _sweep_trackers(self) -> None:
        """Read trackers that are not polled: a webhook that came while nobody was here is not sent again."""
        for name, tracker in self.loaded.trackers.items():
            live = self.intake.feeds.get(feed_name(name))
            if not tracker.polled and live is not None and self.intake.registry.reads(live):
                await self.store.wake(live.feed.name)
                await self.intake.refresh(live.feed.name)

    def _on_released(self) -> None:
        """Another replica gave up a lease, perhaps because it stops: see who is left to share the feeds."""
        if self._membership is not None:
            self._membership.nudge()

    def _on_moved(self, error: Refused) -> None:
        """End, because the store was moved elsewhere while this replica was suspended or cut off."""
        self.say(str(error))
        self.ended.set()

    async def _wait_for_store(self, call: Callable[[], Awaitable[Any]]) -> Any:
        return await wait_for_store(self.opened, self._clock, self._on_wait, call)

    def _join_fleet(self) -> None:
        """Become one of the replicas that share the store."""
        from harken.app.fleet import Membership

        controller = self.controller
        self._membership = Membership(
            self.store,
            self._clock,
            describe=lambda: controller.member(self.holder, self.role),
            on_members=controller.on_members,
            on_change=controller.refresh,
            on_moved=self._on_moved,
            timings=self._timings,
        )
        controller.on_change = self._notify_replicas
        self.spawn(self._membership.keep(), "fleet")

    def _notify_replicas(self) -> None:
        self.spawn(self._wait_for_store(lambda: notify_replicas(self.store)), "news")

    async def _listen(self, waiting: StoreWait) -> None:
        from harken.api.app import build
        from harken.api.origin_guard import DATA
        from harken.app.server import not_found
        from harken.mcp.http import McpEndpoint
        from harken.ui import Pages

        self.url = self.controller.url = waiting.url
        self.controller.connections = waiting.connections
        self._telemetry.count_connections(waiting.connections)
        metrics = self._telemetry.scrape if self.loaded.settings.metrics.enabled else None
        health = self._telemetry.health
        mcp = McpEndpoint(self.operator)
        api = build(
            self.operator,
            hosts=waiting.hosts,
            metrics=metrics,
            health=health,
            mcp=mcp,
            pages=lambda app: Pages(app, (*DATA, "/auth")),
            requests_per_minute=self.loaded.settings.server.requests_per_minute,
            local_token=self._local_token,
            provider=self._identity_provider(),
        )
        webhooks = self.intake.webhooks if takes_webhooks(self.role) else not_found
        self._listeners = await waiting.hand_over(api, webhooks)

    def _identity_provider(self) -> Provider | None:
        from harken.operate.oidc import Provider

        settings = self.loaded.settings.oidc
        return Provider(settings, self.factory.http, self._clock) if settings is not None else None

    @property
    def _run_file(self) -> Path:
        return run_file(local_base(self.loaded.store, self.loaded.directory))

    def spawn(self, work: Any, name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.append(task)
        task.add_done_callback(self._on_task_done)

    def _on_task_done(self, task: asyncio.Task[Any]) -> None:
        if task in self._tasks:
            self._tasks.remove(task)
        self._telemetry.note_task_end(task)

    async def stop(self) -> None:
        from harken.app.housekeeping import audit_unverified

        drop_run_file(self._run_file)
        self.controller.stop()
        self.intake.run_answers.close()
        for listener in self._listeners:
            await listener.stop()
        if self._membership is not None:
            # before our leases are released: others take them over at once, while our runs come to their end
            with suppress(HarkenError):
                await self._membership.beat()
        await self.intake.stop()
        await self.worker.stop(self.loaded.settings.agent.queue.shutdown_grace_seconds)
        await cancel_and_wait(list(self._tasks))
        for part in (self._housekeeping_lease, self._membership):
            with suppress(HarkenError):
                if part is not None:
                    await part.leave()
        with suppress(HarkenError):
            await self.factory.save_rate_limits(self.store)
            await self.factory.tickets.save_deliveries()
            await audit_unverified(self.intake.webhooks.refusals, self.store, ending=True)
            await self.controller.activity.save(ending=True)
            await self.controller.trigger_activity.save(ending=True)
        await self.factory.close()
        if self._exporter is not None:
            await self._exporter.close()


def _bind(loaded: Loaded, host: str | None, port: int | None, clock: Clock, say: Callable[[str], None]) -> StoreWait:
    from harken.app.http_protocol import Connections
    from harken.app.server import bind_all, limits_of
    from harken.app.startup_listener import StoreWait

    server = loaded.settings.server
    host = host or server.host
    sockets = bind_all(server, host, server.port if port is None else port)
    return StoreWait(host, sockets, clock, say, Connections(limits_of(server)), server.hosts)


def needs_tokens(loaded: Loaded, host: str) -> bool:
    """Whether whoever reaches the API has to have a token."""
    from harken.app.server import is_loopback

    return loaded.settings.server.require_tokens or not is_loopback(host)


async def refuse_without_tokens(store: Store, clock: Clock, host: str, loaded: Loaded) -> None:
    """Raise Misconfigured when the API would need tokens, there are none, and nobody can log in."""
    if loaded.settings.oidc is None and not await has_tokens(store, clock):
        raise Misconfigured(f"the API does not listen on {host} without tokens", fix=HOW_TO_MAKE)


def refuse_blocking(loaded: Loaded) -> None:
    """Raise Misconfigured for invalid settings: using the defaults instead would not be what was meant."""
    if loaded.blocking:
        rest = [finding for finding in loaded.findings if finding not in loaded.blocking]
        raise Misconfigured("\n".join(str(finding) for finding in [*loaded.blocking, *rest]))


def with_queue(timings: Timings, queue: Queue) -> Timings:
    """The timings with the wait for new runs that is configured, unless the timings say something of their own."""
    own = timings.worker_sleep != Timings().worker_sleep
    return timings if own else msgspec.structs.replace(timings, worker_sleep=queue.consume_block_seconds)


def reads(role: Role) -> bool:
    """Whether this role polls and follows streams."""
    return role in READERS


def executes(role: Role) -> bool:
    """Whether this role claims and executes runs."""
    return role in ("all", "run")


def takes_webhooks(role: Role) -> bool:
    return role != "run"


def not_reading(role: Role, shared: bool, behind: str) -> tuple[str, str]:
    """Health and reason of a replica that holds no lease; `behind` is the others' generation, if it is not ours."""
    if not reads(role):
        return "disabled", f"as --role {role} it reads nothing"
    if shared and not behind:
        return "up", "the other replicas read all feeds"
    return "degraded", "it holds no lease, so it reads nothing"


class NoExecutor:
    """Stands in for the worker where this replica executes no runs: others claim them."""

    def __init__(self, holder: str) -> None:
        self.holder = holder

    def reserve(self, wanted: int) -> int:
        return 0

    def unreserve(self, count: int) -> None:
        """Nothing was reserved."""

    def accept(self, claimed: Sequence[Claimed]) -> None:
        """Nothing was reserved, so nothing is claimed."""

    def nudge(self) -> None:
        """Other replicas look for runs themselves."""

    def find_end(self, feed: str, trigger: str, event: Event, intent: Intent) -> EarlyEnd | None:
        """Runs are executed elsewhere."""
        return None

    def note_over(self, claimed: Claimed, end: EarlyEnd) -> None:
        raise AssertionError("no end was found")
