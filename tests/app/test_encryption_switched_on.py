"""A store that is filled gets its key: runs have other ids from then on, and whoever waits for one still finds it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from harken.app import App
from harken.app.store import opened_store
from harken.backends.sqlite import SqliteStore
from harken.backends.sqlite.transfer import SqliteTransfer
from harken.operate.load_and_check_configuration import load_directory
from harken.testing import VirtualClock, virtual
from harken.timings import Timings
from tests.app.test_ticket_and_run_sync import ENVIRON, PUSHED, github
from tests.services.whole import write

KEY = "a-key-of-ours-0123456789-0123456789-0123456789"
PARENT = """
name: fix-bug
steps:
  - {id: first, action: wait, for: 1h}
  - {id: sub, action: workflow, workflow: child}
"""
CHILD = "name: child\nsteps:\n  - {id: work, action: wait, for: 1h}\n"


@asynccontextmanager
async def running(
    directory: Path, clock: VirtualClock, *, file: str = "harken.db", key: str = ""
) -> AsyncIterator[App]:
    store = SqliteStore.at(directory / file, clock, inline=True, key=key)
    app = App(load_directory(directory, ENVIRON), opened_store(store), clock, timings=Timings())
    await app.begin()
    yield app
    await app.stop()
    await app.store.close()


async def copy_encrypted(source: Path, target: Path, clock: VirtualClock) -> None:
    plain, encrypted = SqliteTransfer.at(source, clock), SqliteTransfer.at(target, clock, key=KEY)
    await encrypted.take(plain.rows(), plain.place)
    await plain.close()
    await encrypted.close()


async def nothing(source: Path, target: Path, clock: VirtualClock) -> None:
    """The start itself encrypts the file."""


async def runs(app: App) -> dict[str, tuple[str, str]]:
    """The id and the status of the run of each workflow."""
    found: list[Any] = (await app.operator.call("runs.list"))["items"]
    return {run["workflow"]: (run["id"], run["status"]) for run in found}


@pytest.mark.parametrize(("file", "prepare"), [("harken.db", nothing), ("copy.db", copy_encrypted)])
@pytest.mark.parametrize(("waited", "of_child"), [(2_400, False), (6_000, True)], ids=["time", "sub-run"])
@virtual
async def test_a_ticket_and_its_runs_go_on_where_they_were(
    clock: VirtualClock, tmp_path: Path, file: str, prepare: Any, waited: float, of_child: bool
) -> None:
    async with github(clock) as hub:
        write(tmp_path, PUSHED.format(url=hub.url), **{"fix-bug": PARENT, "child": CHILD})
        async with running(tmp_path, clock) as app:
            issue = hub.open("fix", by="leo")
            await clock.sleep(waited)
            before = await runs(app)
            assert (before["fix-bug"][1], "child" in before) == ("waiting", of_child)
            assert "harken:waiting" in issue.labels
        await prepare(tmp_path / "harken.db", tmp_path / file, clock)
        async with running(tmp_path, clock, file=file, key=KEY) as app:
            await clock.sleep(1_000)
            after = await runs(app)
            assert after["fix-bug"][0] != before["fix-bug"][0]
            assert "harken:waiting" in issue.labels
            await clock.sleep(7_000)
            assert {status for _, status in (await runs(app)).values()} == {"done"}
            shown = await app.operator.call("tickets.show", ticket=f"acme/shop#{issue.number}")
            assert (shown["memory"]["run"], shown["memory"]["status"]) == (after["fix-bug"][0], "done")
            assert issue.labels == ["fix", "harken:done"]
