"""The pollers that the how-to shows, run as their reader would run them."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest

from harken.clock import SystemClock
from harken.errors import NeedsAttention, RetryLater
from harken.services.exec import Query, StdioPoller
from harken.source import Batch, Host
from harken.testing import START

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "exec"
PAGE = ROOT / "docs" / "how-to" / "exec.md"


@dataclass
class Bench:
    """Polls an example once, and ends it."""

    host: Host

    async def poll(self, *command: str, **config: Any) -> Batch:
        source = StdioPoller(Query(command=list(command), config=config, timeout=20), self.host)
        try:
            return await source.poll(None, START)
        finally:
            await source.aclose()


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    host = Host(http=cast(Any, None), clock=SystemClock(), random=Random(1), directory=str(FOLDER), allow_programs=True)
    yield Bench(host)


async def test_the_poller_in_python_shows_the_files_of_a_directory(bench: Bench, tmp_path: Path):
    (tmp_path / "letter.txt").write_text("hello")
    os.utime(tmp_path / "letter.txt", (1_767_600_000, 1_767_600_000))
    batch = await bench.poll("python3", "inbox.py", directory=str(tmp_path))
    (event,) = batch.events

    assert event.data == {"id": "letter.txt", "name": "letter.txt", "bytes": 5}
    assert (event.type, event.state) == ("file.written", "2026-01-05T08:00:00+00:00")
    assert batch.more is False


async def test_the_poller_in_python_says_what_is_wrong(bench: Bench, tmp_path: Path):
    with pytest.raises(NeedsAttention, match=r"config\.directory is missing"):
        await bench.poll("python3", "inbox.py")
    with pytest.raises(RetryLater, match="cannot be read") as caught:
        await bench.poll("python3", "inbox.py", directory=str(tmp_path / "nowhere"))
    assert caught.value.after == 60


async def test_the_poller_in_shell_shows_the_disks(bench: Bench):
    batch = await bench.poll("sh", "disks.sh")

    assert batch.events
    assert {event.state for event in batch.events} <= {"ok", "filling", "full"}
    assert all(0 <= event.data["used"] <= 100 for event in batch.events)


@pytest.mark.parametrize("name", ["inbox.py", "disks.sh"])
def test_the_page_shows_the_file_as_it_is(name: str):
    assert (FOLDER / name).read_text("utf-8") in PAGE.read_text("utf-8")
