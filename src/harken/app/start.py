"""`harken start`: a process that runs until it is told to stop."""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

import click
import structlog

from harken.app.application import App, Role
from harken.operate.configuration import load_directory
from harken.tasks import end
from harken.timings import Timings

__all__ = ["run", "settle_memory"]

log = structlog.get_logger("harken.app")

COLLECT = (5_000, 20, 20)
"""Nearly everything here is freed by counting references; looking for cycles more seldom costs a few megabytes."""


def run(
    directory: Path,
    *,
    host: str | None = None,
    port: int | None = None,
    role: Role = "all",
    timings: Timings = Timings(),
) -> int:
    """`harken start`: run until a signal comes. Returns the exit code."""
    if sys.platform == "win32":
        return asyncio.run(_serve(directory, host, port, role, timings))
    import uvloop

    return uvloop.run(_serve(directory, host, port, role, timings))


async def _serve(directory: Path, host: str | None, port: int | None, role: Role, timings: Timings) -> int:
    from harken.app.file_watch import file_stamps, watch
    from harken.app.logs import set_up_logs

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    reloading = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    # from the start: a wish to reload that comes too early must not end the process
    loop.add_signal_handler(signal.SIGHUP, reloading.set)
    holder: dict[str, App] = {}
    # before the files are read: what is changed while we start is not missed
    known = file_stamps(directory)
    loaded = load_directory(directory)
    settings = loaded.settings.log
    set_up_logs(settings.level, settings.format, lambda: holder["app"].factory.secrets() if holder else loaded.secrets)
    async with App.start(directory, host=host, port=port, role=role, say=_say, loaded=loaded, timings=timings) as app:
        holder["app"] = app
        app._spawn(watch(directory, app.controller, reloading, known), "watch")
        for finding in app.loaded.findings:
            click.echo(str(finding), err=True)
        click.echo(_ready(app))
        settle_memory()
        await _first(stop, app.over)
        log.info("stopping")
    return 1 if app.over.is_set() else 0


async def _first(*events: asyncio.Event) -> None:
    """Wait for one of them."""
    waiting = [asyncio.create_task(event.wait()) for event in events]
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    await end(waiting)


def _say(line: str) -> None:
    click.echo(line, err=True)


def settle_memory() -> None:
    """What was made to start stays: the collector need not look through it again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT)


def _ready(app: App) -> str:
    counts: Mapping[str, int] = {"feed": len(app.intake.feeds), "trigger": len(app.loaded.triggers)}
    said = ", ".join(f"{count} {name if count == 1 else name + 's'}" for name, count in counts.items())
    return f"harken is ready at {app.url} ({said}); harken status shows more, Ctrl-C stops it"
