"""Puts a demo on: the make-believe company, a real Harken beside it, and the comparison of the two at the end."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from importlib.resources import as_file, files
from pathlib import Path
from random import Random

import aiohttp
import msgspec
import structlog

from harken.app import App
from harken.clock import Clock, SystemClock
from harken.demo.incidents import IncidentService, announce
from harken.demo.ledger import Summary, compare, read_books
from harken.demo.view import View, view_for
from harken.demo.world import World
from harken.store import Records

__all__ = ["perform"]

MOMENT = 0.4
REFRESH = 0.25
DRAIN = 5.0
# a busy machine may need longer than the drain; what is late is not lost
GRACE = 20.0


async def perform(*, seconds: float | None, as_json: bool, port: int, keep: bool, stop: asyncio.Event) -> Summary:
    """Run the demo for so many seconds, or until `stop` is set, and sum it up. What went wrong keeps its files."""
    directory = _prepared()
    summary = await _perform_in(directory, seconds, as_json, port, stop)
    if keep or (seconds is not None and not summary.good):
        return msgspec.structs.replace(summary, files=str(directory))
    shutil.rmtree(directory, ignore_errors=True)
    return summary


async def _perform_in(directory: Path, seconds: float | None, as_json: bool, port: int, stop: asyncio.Event) -> Summary:
    clock = SystemClock()
    world = World(clock, Random())
    service = IncidentService(world)
    async with AsyncExitStack() as stack:
        stack.enter_context(_logs(directory / "demo.log"))
        company = await stack.enter_async_context(service.serve())
        secret = secrets.token_hex(16)
        stack.enter_context(_environment({"DEMO_URL": company, "DEMO_SECRET": secret}))
        app = await stack.enter_async_context(App.start(directory, host="127.0.0.1", port=_free(port)))
        title = f"harken demo · API {app.url} · incident service {company}"
        view = await stack.enter_async_context(view_for(as_json, title, _hint(directory)))
        world.open()
        stage = Stage(world, service, app.store, view, clock)
        return await stage.play(f"{app.url}/webhooks/generic/deploys", secret, seconds, stop)


class Stage:
    def __init__(self, world: World, service: IncidentService, store: Records, view: View, clock: Clock) -> None:
        self._world = world
        self._service = service
        self._store = store
        self._view = view
        self._clock = clock
        self._began = clock.monotonic()

    async def play(self, webhook: str, secret: str, seconds: float | None, stop: asyncio.Event) -> Summary:
        """Let things happen, then let everything drain, then compare."""
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(self._watch())
            quiet = None if seconds is None else seconds - min(DRAIN, seconds / 2)
            asleep = asyncio.Event()
            living = tasks.create_task(self._live(webhook, secret, asleep))
            await self._until(quiet, stop)
            asleep.set()
            await living
            await self._until(seconds, stop)
            summary = await self._drained(DRAIN if seconds is None else GRACE)
            watching.cancel()
        return summary

    async def _live(self, webhook: str, secret: str, asleep: asyncio.Event) -> None:
        async with aiohttp.ClientSession() as session:
            while not asleep.is_set():
                for deploy in self._world.advance():
                    # twice, as providers do when an answer gets lost
                    answers = [await announce(session, webhook, secret, deploy) for _ in range(2)]
                    if any(answers):
                        self._world.deployed(deploy)
                await self._clock.sleep(MOMENT)

    async def _watch(self) -> None:
        while True:
            await self._view.refresh(self._store, await self._counters())
            await self._clock.sleep(REFRESH)

    async def _counters(self) -> Mapping[str, int]:
        counts = await self._store.counts()
        return {**counts, "rate limited": self._service.rate_limited, "late": self._world.late}

    async def _until(self, seconds: float | None, stop: asyncio.Event) -> None:
        left = None if seconds is None else self._began + seconds - self._clock.monotonic()
        try:
            async with asyncio.timeout(left):
                await stop.wait()
        except TimeoutError:
            return

    async def _drained(self, patience: float) -> Summary:
        deadline = self._clock.monotonic() + patience
        summary = await self._sum_up()
        while summary.lost and self._clock.monotonic() < deadline:
            await self._clock.sleep(REFRESH)
            summary = await self._sum_up()
        return summary

    async def _sum_up(self) -> Summary:
        return compare(
            await read_books(self._store),
            self._world.expected,
            self._service.pages,
            seconds=round(self._clock.monotonic() - self._began, 1),
            rate_limited=self._service.rate_limited,
            late=self._world.late,
        )


def _hint(directory: Path) -> str:
    name = "harken" if shutil.which("harken") else os.path.relpath(sys.argv[0])
    commands = " · ".join(f"{name} {rest}" for rest in ("explain triage", "runs list", "triggers list"))
    return f"in another terminal: export HARKEN_CONFIG={directory}, then {commands}. Ctrl-C stops."


def _prepared() -> Path:
    directory = Path(tempfile.mkdtemp(prefix="harken-demo-"))
    with as_file(files("harken.demo") / "config") as config:
        shutil.copytree(config, directory, dirs_exist_ok=True)
    return directory


@contextmanager
def _logs(path: Path) -> Iterator[None]:
    """Logs go to a file: the terminal is the view's, and stdout may have to be JSON alone."""
    with path.open("w", buffering=1) as file:
        structlog.configure(
            processors=[
                structlog.processors.add_log_level,
                structlog.processors.TimeStamper(fmt="iso", utc=True),
                structlog.processors.format_exc_info,
                structlog.processors.JSONRenderer(),
            ],
            wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
            logger_factory=structlog.PrintLoggerFactory(file=file),
        )
        try:
            yield
        finally:
            structlog.reset_defaults()


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _free(port: int) -> int:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            # somebody is there already, perhaps a real controller: a demo must not stand in its way
            return 0
    return port
