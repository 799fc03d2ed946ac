"""Reload when a file changes or a SIGHUP comes; a typo keeps the old version of what it broke.

The top directory is looked at once a second instead of being watched: the database lives there, and every write to it
would wake the watcher (a third of the CPU of a webhook was spent on that).
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from harken.errors import HarkenError, RetryLater

if TYPE_CHECKING:
    from harken.app.controller import Controller

__all__ = ["SUFFIXES", "FileStamps", "file_stamps", "watch"]

log = structlog.get_logger("harken.app")


SUFFIXES = (".yaml", ".yml")

FileStamps = dict[str, tuple[int, int]]


def file_stamps(directory: Path) -> FileStamps:
    """How the files in this directory look: another answer means that one of them changed."""
    found: FileStamps = {}
    try:
        files = [path for path in directory.iterdir() if path.suffix in SUFFIXES]
    except OSError:
        return found  # being replaced; the next look sees what became of it
    for path in files:
        # an editor's lock is a link that leads nowhere; it must not hide the others
        with suppress(OSError):
            stat = path.stat()
            found[path.name] = (stat.st_mtime_ns, stat.st_size)
    return found


LOOK_SECONDS = 1.0

RETRY_SECONDS = 5.0


async def watch(directory: Path, controller: Controller, asked: asyncio.Event, known: FileStamps) -> None:
    """Watch until cancelled; `known` is how the top directory looked before it was loaded."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_on_top(directory, asked, known))
        tasks.create_task(_on_tree(directory / "workflows", asked))
        tasks.create_task(_on_asked(controller, asked))


async def _on_top(directory: Path, asked: asyncio.Event, known: FileStamps) -> None:
    while True:
        if (found := file_stamps(directory)) != known:
            known = found
            asked.set()
        await asyncio.sleep(LOOK_SECONDS)


async def _on_tree(directory: Path, asked: asyncio.Event) -> None:
    from watchfiles import Change, awatch

    def configuration(change: Change, path: str) -> bool:
        return path.endswith(SUFFIXES)

    polls: bool | None = None
    while True:
        if not directory.is_dir():
            await _appears(directory)
            asked.set()
        try:
            async for _ in awatch(
                directory,
                watch_filter=configuration,
                debounce=1_000,
                step=250,
                rust_timeout=60_000,
                force_polling=polls,
            ):
                asked.set()
                if not directory.is_dir():
                    break
        except (OSError, RuntimeError) as error:
            # the machine has no watch left, or the folder went as we came
            log.warning("config.unwatched", reason=str(error), instead="the files are looked at again and again")
            polls = True
            await asyncio.sleep(LOOK_SECONDS)
            asked.set()


async def _appears(directory: Path) -> None:
    while not directory.is_dir():  # noqa: ASYNC110 (nobody tells us when a directory appears)
        await asyncio.sleep(LOOK_SECONDS)


async def _on_asked(controller: Controller, asked: asyncio.Event) -> None:
    while True:
        await asked.wait()
        asked.clear()
        try:
            await controller.reload()
        except RetryLater as error:
            log.warning("config.reload_later", reason=str(error))
            await asyncio.sleep(error.after or RETRY_SECONDS)
            asked.set()
        except HarkenError as error:
            log.error("config.reload_failed", reason=str(error))
        except Exception:
            log.exception("config.reload_failed")
