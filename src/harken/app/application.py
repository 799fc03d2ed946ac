"""A running Harken: the only place where the parts are joined, started and stopped in order."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import structlog

from harken.app.controller import Controller
from harken.app.factory import Factory
from harken.app.fleet import notify_replicas
from harken.app.store import KEY, OpenedStore, open_store, wait_for_store
from harken.clock import Clock, SystemClock
from harken.config import Loaded
from harken.config.settings import local_base
from harken.config.sources import shards_of
from harken.errors import HarkenError, Misconfigured, Refused
from harken.operate import Operator
from harken.operate.configuration import credentials_of, load_directory
from harken.operate.fleet import READERS
from harken.operate.run_file import drop_run_file, run_file, write_run_file
from harken.runs import Claimed
from harken.services import registry
from harken.store.transfer import refuse_marked
from harken.tasks import end
from harken.timings import Timings

if TYPE_CHECKING:
    from harken.app.fleet import HousekeepingLease, Membership
    from harken.app.server import Listener
    from harken.app.telemetry import Telemetry
    from harken.ingest.intake import Intake
    from harken.run.worker import Worker

__all__ = ["App", "NoExecutor", "Role", "executes", "not_reading", "reads", "refuse_blocking", "takes_webhooks"]

log = structlog.get_logger("harken.app")


Role = Literal["all", "ingest", "run", "api"]


def reads(role: Role) -> bool:
    """Polls and follows streams."""
    return role in READERS


def executes(role: Role) -> bool:
    """Claims runs and executes their steps."""
    return role in ("all", "run")


def takes_webhooks(role: Role) -> bool:
    return role != "run"


def not_reading(role: Role, shared: bool, behind: str) -> tuple[str, str]:
    """State and reason of a replica that holds no lease; `behind` is the generation of the others, if it is another."""
    if not reads(role):
        return "disabled", f"as --role {role} it reads nothing"
    if shared and not behind:
        return "up", "the other replicas read all feeds"
    return "degraded", "it holds no lease, so it reads nothing"


class NoExecutor:
    """Executes nothing here: the runs are left to those replicas that do."""

    def __init__(self, holder: str) -> None:
        self.holder = holder

    def reserve(self, wanted: int) -> int:
        return 0

    def unreserve(self, count: int) -> None:
        """Nothing was reserved."""

    def accept(self, claimed: Sequence[Claimed]) -> None:
        """Nothing was reserved, so nothing is handed over."""

    def nudge(self) -> None:
        """Others look for themselves."""


PLANS = 10_000

"""Compiled workflows that are kept: more than anybody configures, as each job has one or two."""


class App:
    """A running Harken: `store`, `operator`, `url`."""

    def __init__(
        self,
        loaded: Loaded,
        home: OpenedStore,
        clock: Clock,
        role: Role = "all",
        timings: Timings = Timings(),
    ) -> None:
        self.home = home
        self.store = home.store
        self.role = role
        self._timings = timings
        self.loaded = loaded
        self._clock = clock
        self._random = Random()
        self.holder = f"{os.getpid()}-{self._random.randbytes(4).hex()}"
        self.factory = Factory(loaded, registry(), clock, self._random)
        self.worker, self.intake = self._engine()
        self.controller = Controller(self.store, self.factory, self.intake, self.worker, clock)
        self.operator = Operator(self.store, self.controller, loaded, clock, timings)
        self.controller.on_loaded = self._adopt
        self.intake.committer.on_commit = self._committed
        self._telemetry = self._measure()
        self._tasks: list[asyncio.Task[Any]] = []
        self._listeners: list[Listener] = []
        self._membership: Membership | None = None
        self._housekeeping_lease: HousekeepingLease | None = None
        self.url = ""
        self.say: Callable[[str], None] = lambda line: None
        # it ended by itself: whoever started it stops it
        self.over = asyncio.Event()

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
    ) -> AsyncIterator[App]:
        """Start everything; stop it in order at the end. Raise Misconfigured when it cannot start.

        A server that does not answer yet is waited for; `say` hears of it, and what to know about the store.
        """
        clock, loaded = clock or SystemClock(), loaded or load_directory(directory)
        refuse_blocking(loaded)
        home = open_store(loaded.store, clock, key=os.environ.get(KEY, ""))
        with suppress(Misconfigured):
            # one that cannot be read was told of where an account needs it
            credentials_of(directory).finish_key_change()
        async with AsyncExitStack() as stack:
            stack.push_async_callback(home.store.close)
            for line in await wait_for_store(home, clock, say, home.connect):
                say(line)
            await wait_for_store(home, clock, say, lambda: refuse_marked(home.store))
            app = cls(loaded, home, clock, role, timings)
            app.say = say
            stack.push_async_callback(app.stop)
            await app._start(host or loaded.settings.server.host, port)
            yield app

    def _engine(self) -> tuple[Worker, Intake]:
        from harken.feed import INTERNAL
        from harken.ingest.commit import RuleCache
        from harken.ingest.intake import Intake
        from harken.ingest.internal_events import internal_matching, listening
        from harken.run.worker import Worker
        from harken.run.workflows import WorkflowCache

        rule_cache = RuleCache(self.store)
        self._workflows = WorkflowCache(self.store, size=PLANS, reveal=self._reveal)
        worker = Worker(
            self.store,
            self._clock,
            self._random,
            workflows=self._workflows,
            environment=self.factory.environment(),
            holder=self.holder,
            internal=internal_matching(rule_cache, self._clock),
            learn=lambda: rule_cache.learn(INTERNAL),
            listens=listening(rule_cache),
            parallel=self.loaded.settings.agent.queue.max_parallel_jobs,
            timings=self._timings,
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
        )
        return worker, intake

    def _measure(self) -> Telemetry:
        from harken.app.telemetry import Telemetry

        telemetry = Telemetry(self.store, self.intake, self.worker, self._clock, self.loaded)
        telemetry.behind = lambda: self.controller.behind
        telemetry.not_reading = lambda: not_reading(self.role, self.home.shared, self.controller.behind)
        telemetry.idle = "" if executes(self.role) else f"as --role {self.role} it executes nothing"
        return telemetry

    def _adopt(self, loaded: Loaded) -> None:
        if loaded.references != self.loaded.references:
            self._workflows.forget()
        self.loaded = self.operator.loaded = self._telemetry.loaded = loaded
        self.intake.leases.shards = shards_of(loaded)
        self._compile()

    def _reveal(self, definition: Any) -> Any:
        return self.loaded.reveal(definition)

    def _compile(self) -> None:
        """Have every workflow ready, with the secrets of now."""
        for workflow in self.loaded.workflows.values():
            if self._workflows.peek(workflow.rev) is None:
                revealed = self.loaded.reveal(workflow.definition)
                self._workflows.put(msgspec.structs.replace(workflow, definition=revealed))

    def _committed(self, feed: str, commit: Any, committed: Any) -> None:
        self._telemetry.committed(feed, commit, committed)
        self.controller.tell()

    async def _start(self, host: str, port: int | None) -> None:
        from harken.app.server import bind_all

        server = self.loaded.settings.server
        sockets = bind_all(server, host, server.port if port is None else port)
        await self.begin()
        await self._listen(host, sockets)
        if self.home.shared:
            self._join()
        write_run_file(self._run_file, self.url, shared=self.home.shared)

    async def begin(self) -> None:
        """Read, match and run; `stop` ends it. Nobody can ask it anything yet."""
        from harken.app.alerts import Alerts
        from harken.app.fleet import HousekeepingLease
        from harken.app.freshness import Freshness
        from harken.app.housekeeping import do_housekeeping

        self._compile()
        await self._patiently(lambda: self.factory.recall_budgets(self.store))
        await self.controller.open(self._patiently)
        # also who executes nothing: whoever listens is who tells the others
        self.home.listen(self.worker.nudge)
        if executes(self.role):
            self._spawn(self.worker.run(), "worker")
        self._housekeeping_lease = housekeeping_lease = HousekeepingLease(
            self.store, self._clock, self.holder, shared=self.home.shared, seconds=self._timings.lease_seconds
        )
        alerts = Alerts(self.store, self.intake, self._clock, lambda: self.loaded, self.worker.nudge)
        freshness = Freshness(self.store, self.intake, self._clock, self._timings.freshness_round)
        self._telemetry.stale = lambda: freshness.stale
        self._spawn(freshness.watch(self.factory, housekeeping_lease), "freshness")
        self._spawn(
            do_housekeeping(
                self.home,
                self.factory,
                alerts,
                self.intake.scheduler,
                self.worker,
                self._clock,
                housekeeping_lease,
                self._timings.housekeeping_round,
            ),
            "upkeep",
        )

    def _moved(self, error: Refused) -> None:
        """The store was copied to another home while this replica was frozen or away: it ends."""
        self.say(str(error))
        self.over.set()

    async def _patiently(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        return await wait_for_store(self.home, self._clock, self.say, ask)

    def _join(self) -> None:
        """Be one of the replicas that share the store."""
        from harken.app.fleet import Membership

        controller = self.controller
        self._membership = Membership(
            self.store,
            self._clock,
            describe=lambda: controller.member(self.holder, self.role),
            heard=controller.heard,
            news=controller.look_again,
            moved=self._moved,
            timings=self._timings,
        )
        controller.on_change = self._tell_all
        self._spawn(self._membership.keep(), "fleet")

    def _tell_all(self) -> None:
        self._spawn(self._told_all(), "news")

    async def _told_all(self) -> None:
        await self._patiently(lambda: notify_replicas(self.store))

    async def _listen(self, host: str, sockets: list[Any]) -> None:
        from harken.api.app import build
        from harken.api.origin_guard import hosts_of
        from harken.app.server import listeners, not_found
        from harken.mcp.http import McpEndpoint

        port = int(sockets[0].getsockname()[1])
        shown = f"[{host}]" if ":" in host else host
        self.url = self.controller.url = f"http://{shown}:{port}"
        metrics = self._telemetry.page if self.loaded.settings.metrics.enabled else None
        health = self._telemetry.health
        hosts, mcp = hosts_of(host, port), McpEndpoint(self.operator)
        api = build(self.operator, hosts=hosts, metrics=metrics, health=health, mcp=mcp)
        webhooks = self.intake.webhooks if takes_webhooks(self.role) else not_found
        self._listeners = listeners(api, webhooks, sockets)
        for listener in self._listeners:
            await listener.start()

    @property
    def _run_file(self) -> Path:
        return run_file(local_base(self.loaded.store, self.loaded.directory))

    def _spawn(self, work: Any, name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.append(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        if task in self._tasks:
            self._tasks.remove(task)
        self._telemetry.task_ended(task)

    async def stop(self) -> None:
        drop_run_file(self._run_file)
        self.controller.stop()
        for listener in self._listeners:
            await listener.stop()
        await self.intake.stop()
        if self._membership is not None:
            # the others take what we gave up while our runs come to their end
            with suppress(HarkenError):
                await self._membership.beat()
        await self.worker.stop(self.loaded.settings.agent.queue.shutdown_grace_seconds)
        await end(list(self._tasks))
        for leaving in (self._housekeeping_lease, self._membership):
            with suppress(HarkenError):
                if leaving is not None:
                    await leaving.leave()
        with suppress(HarkenError):
            await self.factory.save_budgets(self.store)
        await self.factory.close()


def refuse_blocking(loaded: Loaded) -> None:
    """Defaults in place of settings that are wrong would not be what was meant."""
    if loaded.blocking:
        rest = [finding for finding in loaded.findings if finding not in loaded.blocking]
        raise Misconfigured("\n".join(str(finding) for finding in [*loaded.blocking, *rest]))
