"""A machine that has no file watches left, and a reload that breaks: files are still taken up afterwards."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest
import watchfiles

from harken.app import file_watch as watching
from harken.app.controller import Controller
from harken.app.file_watch import file_stamps
from harken.task_cancellation import cancel_and_wait


class Reloads:
    """Counts reloads; the first one breaks."""

    def __init__(self) -> None:
        self.count = 0
        self.again = asyncio.Event()

    async def reload(self) -> None:
        self.count += 1
        if self.count == 1:
            raise ZeroDivisionError("a fault of ours")
        self.again.set()


async def test_files_are_taken_up_without_watches_and_after_a_reload_that_broke(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "LOOK_SECONDS", 0.01)
    asked: list[Any] = []
    real = watchfiles.awatch

    def none_left(*paths: Any, force_polling: bool | None, **options: Any) -> Any:
        asked.append(force_polling)
        if not force_polling:
            raise OSError("OS file watch limit reached")
        return real(*paths, force_polling=force_polling, poll_delay_ms=10, **{**options, "debounce": 20, "step": 10})

    monkeypatch.setattr(watchfiles, "awatch", none_left)
    (tmp_path / "workflows").mkdir()
    reloads = Reloads()
    wish = asyncio.Event()
    task = asyncio.create_task(watching.watch(tmp_path, cast(Controller, reloads), wish, file_stamps(tmp_path)))
    try:
        async with asyncio.timeout(120):
            while not reloads.again.is_set():
                (tmp_path / "workflows" / "new.yaml").write_text(f"name: new{reloads.count}")
                await asyncio.sleep(0.05)
    finally:
        await cancel_and_wait([task])
    assert asked == [None, True]
