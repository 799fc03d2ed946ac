"""Reload when a file changes or a SIGHUP comes; a typo keeps the old version of what it broke."""

from __future__ import annotations

import asyncio
from pathlib import Path

import structlog

from harken.app.controller import Controller
from harken.errors import HarkenError

__all__ = ["watch"]

log = structlog.get_logger("harken.app")

SUFFIXES = (".yaml", ".yml")


async def watch(directory: Path, controller: Controller, asked: asyncio.Event) -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_on_files(directory, asked))
        tasks.create_task(_on_asked(controller, asked))


async def _on_files(directory: Path, asked: asyncio.Event) -> None:
    from watchfiles import Change, awatch

    def configuration(change: Change, path: str) -> bool:
        return path.endswith(SUFFIXES)

    async for _ in awatch(directory, watch_filter=configuration, debounce=1_000, step=250, rust_timeout=60_000):
        asked.set()


async def _on_asked(controller: Controller, asked: asyncio.Event) -> None:
    while True:
        await asked.wait()
        asked.clear()
        try:
            await controller.reload()
        except HarkenError as error:
            log.error("config.reload_failed", reason=str(error))
