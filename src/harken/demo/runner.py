"""Run a scenario: its fake services, a real Harken beside them, and the audit at the end."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from random import Random

import msgspec
import structlog

from harken.app import App
from harken.clock import Clock, SystemClock
from harken.demo import program
from harken.demo.display import Display, Heading, display_for
from harken.demo.lost_and_duplicate_count import Summary, compare, read_outcome
from harken.demo.newest_events_and_runs import Recent
from harken.demo.scenario import Scenario, scenario_of
from harken.store import Records
from harken.timings import Timings

__all__ = ["perform"]

MOMENT = 0.4
REFRESH = 0.25
DRAIN = 5.0
# a busy machine may need longer to finish its runs; late is not lost
GRACE = 60.0
# who looks on should not have to wait for a stream that broke, as a broken service deserves
TIMINGS = Timings(reconnect=2.0)


async def perform(
    name: str, *, seconds: float | None, as_json: bool, port: int, keep: bool, stop: asyncio.Event
) -> Summary:
    """Run the demo for so many seconds, or until `stop` is set, and return the audit. Files are kept when it failed."""
    clock = SystemClock()
    scenario = scenario_of(name, clock, Random())
    directory = Path(tempfile.mkdtemp(prefix="harken-demo-"))
    scenario.prepare(directory)
    async with AsyncExitStack() as stack:
        stack.enter_context(_logs(directory / "demo.log"))
        environment = await stack.enter_async_context(scenario.serve())
        stack.enter_context(_environment(environment))
        commands = _commands(scenario, directory)
        started = App.start(
            directory, host="127.0.0.1", port=_free(port), timings=TIMINGS, notice=_notice(scenario, commands)
        )
        app = await stack.enter_async_context(started)
        title = f"harken demo · {app.url} in your browser · {scenario.place}"
        heading = Heading(title=title, hints=_hints(commands), noted=scenario.noted)
        labels = {feed.name: feed.display_name for feed in app.loaded.feeds}
        display = display_for(as_json, heading, lambda feed: labels.get(feed, feed))
        shown = await stack.enter_async_context(display)
        scenario.open(app.url)
        summary = await Runner(scenario, app.store, [shown], clock).scenario(seconds, stop)
    if keep or (seconds is not None and not summary.good):
        return msgspec.structs.replace(summary, files=str(directory))
    shutil.rmtree(directory, ignore_errors=True)
    return summary


class Runner:
    def __init__(self, scenario: Scenario, store: Records, displays: Sequence[Display], clock: Clock) -> None:
        self._scenario = scenario
        self._store = store
        self._recent = Recent(store)
        self._displays = displays
        self._clock = clock
        self._began = clock.monotonic()

    async def scenario(self, seconds: float | None, stop: asyncio.Event) -> Summary:
        """Let the scenario happen, wait until all runs are over, then audit."""
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(self._watch())
            quiet = None if seconds is None else seconds - min(DRAIN, seconds / 2)
            asleep = asyncio.Event()
            living = tasks.create_task(self._live(asleep))
            await self._until(quiet, stop)
            asleep.set()
            await living
            await self._until(seconds, stop)
            summary = await self._drained(DRAIN if seconds is None else GRACE)
            watching.cancel()
        await self._show()
        return summary

    async def _live(self, asleep: asyncio.Event) -> None:
        while not asleep.is_set():
            await self._scenario.advance()
            await self._clock.sleep(MOMENT)

    async def _watch(self) -> None:
        while True:
            await self._show()
            await self._clock.sleep(REFRESH)

    async def _show(self) -> None:
        counted = {"rate limited": self._scenario.rate_limited, "late": self._scenario.late}
        snapshot = await self._recent.read(counted, self._scenario.notes())
        for display in self._displays:
            display.show(snapshot)

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
        while (summary.lost or not self._scenario.settled) and self._clock.monotonic() < deadline:
            await self._clock.sleep(REFRESH)
            summary = await self._sum_up()
        return summary

    async def _sum_up(self) -> Summary:
        return compare(
            await read_outcome(self._store),
            self._scenario.expected,
            self._scenario.deliveries(),
            self._scenario.occurrence,
            refused=self._scenario.refused,
            seconds=round(self._clock.monotonic() - self._began, 1),
            rate_limited=self._scenario.rate_limited,
            late=self._scenario.late,
        )


def _commands(scenario: Scenario, directory: Path) -> tuple[str, ...]:
    """What to enter in another terminal while the demo runs."""
    name = program()
    asked = (scenario.looked_at, "triggers list", f"explain {next(iter(scenario.expected))}")
    return (f"export HARKEN_CONFIG={directory}", *(f"{name} {rest}" for rest in asked))


def _notice(scenario: Scenario, commands: Sequence[str]) -> dict[str, object]:
    """What the overview tells whoever opens the demo in a browser."""
    name = program()
    own = (f"{name} init my-automations", f"{name} --config my-automations start")
    return {
        "title": "Harken at work",
        "text": f"The {scenario.place} runs on this machine, and a real Harken watches it. "
        "Nothing leaves this machine, and no account is needed.",
        "commands": {"Look around in another terminal": list(commands), "Make your own": list(own)},
    }


def _hints(commands: Sequence[str]) -> tuple[str, ...]:
    export, first, *_, last = commands
    return (
        f"In another terminal: {export}",
        f"  then {first}, or {last}",
        "Ctrl-C stops it, counts everything, and shows the next step.",
    )


@contextmanager
def _logs(path: Path) -> Iterator[None]:
    """Write logs to a file: the terminal belongs to the display, and stdout may have to be pure JSON."""
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
            # the port is taken, perhaps by a real controller: use another one
            return 0
    return port
