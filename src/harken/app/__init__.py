"""The only place where parts are joined and a store is named; start and stop in order."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import click
import msgspec
import structlog

from harken.app.controller import Controller, Offline
from harken.app.parts import Parts
from harken.clock import Clock, SystemClock
from harken.config import Loaded
from harken.errors import HarkenError, Misconfigured, NotFound, Refused
from harken.operate import Operator
from harken.operate.check import credentials_of, load_directory
from harken.operate.site import run_file
from harken.services import registry
from harken.stores.sqlite import SqliteStore

if TYPE_CHECKING:
    from harken.app.gauges import Gauges
    from harken.app.serve import Listener
    from harken.ingest.intake import Intake
    from harken.run.worker import Worker

__all__ = ["App", "lending", "open_offline", "rekey", "run", "settle_memory"]

log = structlog.get_logger("harken.app")

KEY = "HARKEN_ENCRYPTION_KEY"
COLLECT = (5_000, 20, 20)
"""Nearly everything here is freed by counting references; looking for cycles more seldom costs a few megabytes."""
PLANS = 10_000
"""Compiled workflows that are kept: more than anybody configures, as each job has one or two."""


class App:
    """A running Harken: `store`, `operator`, `url`."""

    def __init__(self, loaded: Loaded, store: SqliteStore, clock: Clock) -> None:
        self.store = store
        self.loaded = loaded
        self._clock = clock
        self._random = Random()
        self.parts = Parts(loaded, registry(), clock, self._random)
        self.worker, self.intake = self._engine()
        self.controller = Controller(store, self.parts, self.intake, self.worker, clock)
        self.operator = Operator(store, self.controller, loaded, clock)
        self.controller.on_loaded = self._adopt
        self.intake.gate.on_commit = self._committed
        self._gauges = self._measure()
        self._tasks: list[asyncio.Task[Any]] = []
        self._listeners: list[Listener] = []
        self.url = ""

    @classmethod
    @asynccontextmanager
    async def start(
        cls, directory: Path, *, host: str | None = None, port: int | None = None, clock: Clock | None = None
    ) -> AsyncIterator[App]:
        """Start everything; stop it in order at the end. Raise Misconfigured when it cannot start."""
        clock = clock or SystemClock()
        loaded = load_directory(directory)
        _refuse_blocking(loaded)
        store = SqliteStore.at(loaded.store, clock, key=os.environ.get(KEY, ""))
        with suppress(Misconfigured):
            # one that cannot be read was told of where an account needs it
            credentials_of(directory).settle()
        async with AsyncExitStack() as stack:
            stack.push_async_callback(store.close)
            app = cls(loaded, store, clock)
            stack.push_async_callback(app.stop)
            await app._start(host or loaded.settings.server.host, port)
            yield app

    def _engine(self) -> tuple[Worker, Intake]:
        from harken.feed import INTERNAL
        from harken.ingest.intake import Intake
        from harken.ingest.internal import internal_matching, listening
        from harken.ingest.rulebook import Rulebook
        from harken.run.worker import Worker
        from harken.run.workflow import Library

        holder = f"{os.getpid()}-{self._random.randbytes(4).hex()}"
        rulebook = Rulebook(self.store)
        self._library = Library(self.store, size=PLANS, reveal=self._reveal)
        worker = Worker(
            self.store,
            self._clock,
            self._random,
            library=self._library,
            reach=self.parts.reach(),
            holder=holder,
            internal=internal_matching(rulebook, self._clock),
            learn=lambda: rulebook.learn(INTERNAL),
            listens=listening(rulebook),
            parallel=self.loaded.settings.agent.queue.max_parallel_jobs,
        )
        intake = Intake(
            self.store, self._clock, self._random, worker, self.parts.source, holder=holder, rulebook=rulebook
        )
        return worker, intake

    def _measure(self) -> Gauges:
        from harken.app.gauges import Gauges

        return Gauges(self.store, self.intake, self.worker, self._clock, self.loaded)

    def _adopt(self, loaded: Loaded) -> None:
        if loaded.references != self.loaded.references:
            self._library.forget()
        self.loaded = self.operator.loaded = self._gauges.loaded = loaded
        self._compile()

    def _reveal(self, definition: Any) -> Any:
        return self.loaded.reveal(definition)

    def _compile(self) -> None:
        """Have every workflow ready, with the secrets of now."""
        for workflow in self.loaded.workflows.values():
            if self._library.peek(workflow.rev) is None:
                revealed = self.loaded.reveal(workflow.definition)
                self._library.put(msgspec.structs.replace(workflow, definition=revealed))

    def _committed(self, feed: str, commit: Any, committed: Any) -> None:
        self._gauges.committed(feed, commit, committed)
        self.controller.tell()

    async def _start(self, host: str, port: int | None) -> None:
        sockets = self._bind(host, self.loaded.settings.server.port if port is None else port)
        await self.begin()
        await self._listen(host, sockets)
        self._write_run_file()

    async def begin(self) -> None:
        """Read, match and run; `stop` ends it. Nobody can ask it anything yet."""
        from harken.app.alerts import Alerts
        from harken.app.freshness import Freshness
        from harken.app.upkeep import keep_house

        self._compile()
        await self.parts.recall_budgets(self.store)
        await self.controller.open()
        self._spawn(self.worker.run(), "worker")
        alerts = Alerts(self.store, self.intake, self._clock, lambda: self.loaded, self.worker.nudge)
        freshness = Freshness(self.store, self.intake, self._clock)
        self._gauges.stale = lambda: freshness.stale
        self._spawn(freshness.watch(self.parts), "freshness")
        self._spawn(keep_house(self.store, self.parts, alerts, self.intake.timer, self.worker, self._clock), "upkeep")

    def _bind(self, host: str, port: int) -> list[Any]:
        from harken.app.serve import bind, is_loopback

        if not is_loopback(host):
            fix = "Leave server.host at 127.0.0.1; server.webhook_host may be any address"
            raise Misconfigured(f"the API has no tokens yet, so it does not listen on {host}", fix=fix)
        server = self.loaded.settings.server
        sockets = [bind(host, port)]
        if server.webhook_port is not None:
            sockets.append(bind(server.webhook_host or host, server.webhook_port))
        return sockets

    async def _listen(self, host: str, sockets: list[Any]) -> None:
        from harken.api.app import build
        from harken.api.guard import hosts_of
        from harken.app.serve import Listener, root
        from harken.mcp.http import Door

        port = int(sockets[0].getsockname()[1])
        shown = f"[{host}]" if ":" in host else host
        self.url = self.controller.url = f"http://{shown}:{port}"
        metrics = self._gauges.page if self.loaded.settings.metrics.enabled else None
        health = self._gauges.health
        hosts, mcp = hosts_of(host, port), Door(self.operator)
        api = build(self.operator, hosts=hosts, metrics=metrics, health=health, mcp=mcp)
        webhooks = self.intake.webhooks
        self._listeners = [Listener(root(api, webhooks), sockets[0])]
        self._listeners += [Listener(root(_nothing, webhooks), sock) for sock in sockets[1:]]
        for listener in self._listeners:
            await listener.start()

    def _write_run_file(self) -> None:
        path = run_file(self.store.path)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(msgspec.json.encode({"pid": os.getpid(), "url": self.url}))

    def _spawn(self, work: Any, name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.append(task)
        task.add_done_callback(self._gauges.task_ended)

    async def stop(self) -> None:
        run_file(self.store.path).unlink(missing_ok=True)
        self.controller.stop()
        for listener in self._listeners:
            await listener.stop()
        await self.intake.stop()
        await self.worker.stop(self.loaded.settings.agent.queue.shutdown_grace_seconds)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with suppress(HarkenError):
            await self.parts.save_budgets(self.store)
        await self.parts.close()


def _refuse_blocking(loaded: Loaded) -> None:
    """Defaults in place of settings that are wrong would not be what was meant."""
    if loaded.blocking:
        rest = [finding for finding in loaded.findings if finding not in loaded.blocking]
        raise Misconfigured("\n".join(str(finding) for finding in [*loaded.blocking, *rest]))


async def _nothing(scope: Any, receive: Any, send: Any) -> None:
    """The webhook listener serves nothing else."""
    await send({"type": "http.response.start", "status": 404, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


@asynccontextmanager
async def open_offline(directory: Path, *, write: bool = False) -> AsyncIterator[Operator]:
    """An operator on the store without a running controller; one that is not there yet is made up for the moment."""
    clock = SystemClock()
    loaded = load_directory(directory)
    if write:
        _refuse_blocking(loaded)
    key = os.environ.get(KEY, "")
    async with AsyncExitStack() as stack:
        made_up = not write and not Path(loaded.store).exists()
        if not made_up:
            store = SqliteStore.at(loaded.store, clock, readonly=not write, key=key)
        else:
            scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="harken-"))
            store = SqliteStore.at(Path(scratch) / "new.db", clock)
            await store.open(loaded.definitions())
        stack.push_async_callback(store.close)
        parts = Parts(loaded, registry(), clock, Random())
        await parts.recall_budgets(store, keep=False)
        stack.push_async_callback(parts.close)
        yield Operator(store, Offline(store, parts, clock, made_up=made_up), loaded, clock)


def rekey(directory: Path, new_key: str) -> Path:
    """Make the store open with another key than HARKEN_ENCRYPTION_KEY. Returns its path."""
    old = os.environ.get(KEY, "")
    if not new_key:
        raise Refused("the new key is empty", fix="Make one, for example with: openssl rand -base64 32")
    if new_key == old:
        raise Refused("the new key is the old one", fix="Make another, for example with: openssl rand -base64 32")
    path = Path(load_directory(directory).store)
    credentials = credentials_of(directory)
    if not path.exists() and not credentials.path.exists():
        raise NotFound(f"there is no store at {path}", fix="Nothing has to be done: the first start takes any key")
    credentials.check()
    credentials.share(new_key)
    if path.exists():
        try:
            SqliteStore.rekey(path, old, new_key)
        except HarkenError:
            credentials.settle()
            raise
    credentials.reseal(new_key)
    return path


@asynccontextmanager
async def lending(loaded: Loaded) -> AsyncIterator[Parts]:
    """What a configuration describes, for as long as it is asked something; no store is touched."""
    parts = Parts(loaded, registry(), SystemClock(), Random())
    try:
        yield parts
    finally:
        await parts.close()


def run(directory: Path, *, host: str | None = None, port: int | None = None, role: str = "all") -> int:
    """`harken start`: run until a signal comes. Returns the exit code."""
    if sys.platform == "win32":
        return asyncio.run(_serve(directory, host, port))
    import uvloop

    return uvloop.run(_serve(directory, host, port))


async def _serve(directory: Path, host: str | None, port: int | None) -> int:
    from harken.app.logs import set_up_logs
    from harken.app.watch import marks, watch

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    reloading = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    # from the start: a wish to reload that comes too early must not end the process
    loop.add_signal_handler(signal.SIGHUP, reloading.set)
    holder: dict[str, App] = {}
    # before the files are read: what is changed while we start is not missed
    known = marks(directory)
    loaded = load_directory(directory)
    settings = loaded.settings.log
    set_up_logs(settings.level, settings.format, lambda: holder["app"].parts.secrets() if holder else loaded.secrets)
    async with App.start(directory, host=host, port=port) as app:
        holder["app"] = app
        app._spawn(watch(directory, app.controller, reloading, known), "watch")
        for finding in app.loaded.findings:
            click.echo(str(finding), err=True)
        click.echo(_ready(app))
        settle_memory()
        await stop.wait()
        log.info("stopping")
    return 0


def settle_memory() -> None:
    """What was made to start stays: the collector need not look through it again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT)


def _ready(app: App) -> str:
    counts: Mapping[str, int] = {"feed": len(app.intake.feeds), "trigger": len(app.loaded.triggers)}
    said = ", ".join(f"{count} {name if count == 1 else name + 's'}" for name, count in counts.items())
    return f"harken is ready at {app.url} ({said}); harken status shows more, Ctrl-C stops it"
