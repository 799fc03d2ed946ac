"""`harken start`: a controller process that runs until a signal stops it."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import click
import structlog

from harken.app.application import App, Role
from harken.app.stored_triggers import without_collection
from harken.operate.load_and_check_configuration import load_directory
from harken.operate.output_rows import Plain
from harken.operate.wording import count
from harken.task_cancellation import cancel_and_wait
from harken.timings import Timings

__all__ = ["run", "settle_memory"]

log = structlog.get_logger("harken.app")

GC_THRESHOLDS = (5_000, 20, 20)
"""Nearly everything is freed by reference counting; collecting cycles less often costs a few megabytes."""


def run(
    directory: Path,
    *,
    host: str | None = None,
    port: int | None = None,
    role: Role = "all",
    timings: Timings = Timings(),
    new_store: bool = False,
    on_run: Callable[[Plain], None] | None = None,
) -> int:
    """`harken start`: run until a signal comes. Returns the exit code. `on_run` is called in a thread, see RunLines."""
    if sys.platform == "win32":
        return asyncio.run(_serve(directory, host, port, role, timings, new_store, on_run))
    import uvloop

    return uvloop.run(_serve(directory, host, port, role, timings, new_store, on_run))


async def _serve(
    directory: Path,
    host: str | None,
    port: int | None,
    role: Role,
    timings: Timings,
    new_store: bool,
    on_run: Callable[[Plain], None] | None,
) -> int:
    from harken.app.file_watch import file_stamps, watch
    from harken.app.logs import set_up_logs

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    reload_wanted = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    # from the beginning: an early SIGHUP must not end the process
    loop.add_signal_handler(signal.SIGHUP, reload_wanted.set)
    holder: dict[str, App] = {}
    # before the files are read, so that a change during the start is not missed
    known = file_stamps(directory)
    with without_collection():
        loaded = load_directory(directory, keep=True)
    settings = loaded.settings.log
    set_up_logs(settings.level, settings.format, lambda: holder["app"].factory.secrets() if holder else loaded.secrets)
    ready = asyncio.Event()

    async def control() -> int:
        async with App.start(
            directory, host=host, port=port, role=role, say=_say, loaded=loaded, timings=timings, new_store=new_store
        ) as app:
            ready.set()
            holder["app"] = app
            app.spawn(watch(directory, app.controller, reload_wanted, known), "watch")
            for finding in app.loaded.findings:
                click.echo(str(finding), err=True)
            click.echo(_ready_line(app))
            lines = app.show_runs(on_run) if on_run is not None else None
            settle_memory()
            await _wait_for_first(stop, app.ended)
            log.info("controller.stopping")
        if lines is not None:
            lines.close()
        return 1 if app.ended.is_set() else 0

    return await _run_until_stopped(asyncio.create_task(control(), name="controller"), ready, stop)


async def _run_until_stopped(controller: asyncio.Task[int], ready: asyncio.Event, stop: asyncio.Event) -> int:
    """The controller's exit code. One that is not ready may wait for its store without end, so a stop cancels it."""
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait([controller, stopping], return_when=asyncio.FIRST_COMPLETED)
    await cancel_and_wait([stopping])
    if not ready.is_set() and not controller.done():
        log.info("controller.stopping")
        await cancel_and_wait([controller])
    return 0 if controller.cancelled() else await controller


async def _wait_for_first(*events: asyncio.Event) -> None:
    """Wait until one of the events is set."""
    waiting = [asyncio.create_task(event.wait()) for event in events]
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    await cancel_and_wait(waiting)


def _say(line: str) -> None:
    click.echo(line, err=True)


def settle_memory() -> None:
    """Exclude what was made by the start from garbage collection, as it stays until the end; give back all else."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    # only glibc has it, which keeps what is freed for later: 6 MB after a start with 1,000 files
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _ready_line(app: App) -> str:
    counts = f"{count(len(app.intake.registry.defined), 'feed')}, {count(len(app.loaded.triggers), 'trigger')}"
    wrong = {finding.file for finding in app.loaded.findings if finding.severity == "error"}
    # not "2 files are refused": of a file with ten jobs only the wrong one is
    errors = f", but there are errors in {count(len(wrong), 'file')}: harken config check shows them"
    more = errors if wrong else "; harken status shows more"
    return f"harken is ready at {app.url} ({counts}){more}, Ctrl-C stops it"
