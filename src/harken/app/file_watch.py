"""Reloads the configuration when one of its files changes or a SIGHUP comes.

The top directory is listed once a second instead of being watched: the database is in it, and every write to it would
wake the watcher (that took a third of the CPU time of a webhook).
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

__all__ = ["FileStamps", "file_stamps", "watch"]

SUFFIXES = (".yaml", ".yml")
NAMED_SUFFIXES = (".json",)
"""Of files below workflows/ that a workflow may name; at the top there are other such files, which change often."""
LOOK_SECONDS = 1.0
SETTLE_SECONDS = 0.25
"""A file that changed is loaded once it stayed the same for so long: an editor may empty it before it writes it."""
RETRY_SECONDS = 5.0

FileStamps = dict[str, tuple[int, int]]

log = structlog.get_logger("harken.app")


async def watch(directory: Path, controller: Controller, reload_wanted: asyncio.Event, known: FileStamps) -> None:
    """Watch until cancelled; `known` are the stamps of the top directory from before it was loaded."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_watch_directory(directory, reload_wanted, known))
        tasks.create_task(_watch_workflows(directory / "workflows", reload_wanted))
        tasks.create_task(_reload_when_wanted(controller, reload_wanted))


def file_stamps(directory: Path) -> FileStamps:
    """Modification time and size of each file in this directory; they differ when a file has changed."""
    found: FileStamps = {}
    try:
        files = [path for path in directory.iterdir() if path.suffix in SUFFIXES]
    except OSError:
        return found  # it is being replaced: the next call sees the new one
    for path in files:
        # an editor's lock file is a dangling link; it must not hide the others
        with suppress(OSError):
            stat = path.stat()
            found[path.name] = (stat.st_mtime_ns, stat.st_size)
    return found


async def _watch_directory(directory: Path, reload_wanted: asyncio.Event, known: FileStamps) -> None:
    before = known
    while True:
        found = file_stamps(directory)
        if found == before != known:
            known = found
            reload_wanted.set()
        before = found
        await asyncio.sleep(LOOK_SECONDS if found == known else SETTLE_SECONDS)


async def _watch_workflows(directory: Path, reload_wanted: asyncio.Event) -> None:
    from watchfiles import Change, awatch

    def is_configuration(change: Change, path: str) -> bool:
        return path.endswith((*SUFFIXES, *NAMED_SUFFIXES))

    poll: bool | None = None
    while True:
        if not directory.is_dir():
            await _wait_for_directory(directory)
            reload_wanted.set()
        try:
            async for _ in awatch(
                directory,
                watch_filter=is_configuration,
                debounce=1_000,
                step=250,
                rust_timeout=60_000,
                force_polling=poll,
            ):
                reload_wanted.set()
                if not directory.is_dir():
                    break
        except (OSError, RuntimeError) as error:
            # the limit of watches is reached, or the directory was removed meanwhile
            log.warning("config.unwatched", reason=str(error), instead="the files are listed periodically")
            poll = True
            await asyncio.sleep(LOOK_SECONDS)
            reload_wanted.set()


async def _wait_for_directory(directory: Path) -> None:
    while not directory.is_dir():  # noqa: ASYNC110 (nothing notifies us when a directory appears)
        await asyncio.sleep(LOOK_SECONDS)


async def _reload_when_wanted(controller: Controller, reload_wanted: asyncio.Event) -> None:
    while True:
        await reload_wanted.wait()
        reload_wanted.clear()
        try:
            await controller.reload()
        except RetryLater as error:
            log.warning("config.reload_later", reason=str(error))
            await asyncio.sleep(error.after or RETRY_SECONDS)
            reload_wanted.set()
        except HarkenError as error:
            log.error("config.reload_failed", reason=str(error))
        except Exception:
            log.exception("config.reload_failed")
