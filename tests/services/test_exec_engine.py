"""A poller in a child process under the whole engine: allowed or not, replaced, removed, stopped, tried out."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from harken.app import App
from harken.clock import SystemClock
from tests.services.processes import running, zombies
from tests.services.programs import POLLERS
from tests.services.whole import running as engine

WORKFLOW = """\
name: orders
trigger:
  poll:
    integration: exec
    interval: 1h
    query:
      command: [{python}, {poller}, {mark}]
      config: {{file: {file}, shop: {shop}}}
steps:
  - {{id: note, action: transform, set: {{text: "{{{{.trigger.event.id}}}}"}}}}
"""


class Site:
    """A configuration directory with one poller, and the file that it shows."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.items = folder / "items.jsonl"
        self.items.write_text('{"id": "old"}\n')
        (folder / "workflows").mkdir()
        self.workflow = folder / "workflows" / "orders.yaml"
        self.write()

    def write(self, *, allowed: bool = True, shop: str = "north") -> None:
        (self.folder / "harken.yaml").write_text(f"services: {{allow_programs: {str(allowed).lower()}}}\n")
        names = {
            "python": sys.executable,
            "poller": POLLERS / "lines_poller.py",
            "mark": self.folder,
            "file": self.items,
        }
        self.workflow.write_text(WORKFLOW.format(shop=shop, **names))

    def add(self, name: str) -> None:
        with self.items.open("a") as file:
            file.write(f'{{"id": "{name}"}}\n')

    def processes(self) -> list[str]:
        return running(f"lines_poller.py {self.folder}")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@asynccontextmanager
async def started(site: Site) -> AsyncIterator[App]:
    clock: Any = SystemClock()
    async with engine(site.folder, clock) as app:
        yield app


async def ticked(app: App) -> dict[str, Any]:
    """Read the only polled feed now."""
    (feed,) = [name for name, live in app.intake.feeds.items() if live.poll is not None]
    return dict(await app.controller.tick(feed))


async def fired(app: App) -> list[str]:
    runs: list[Any] = (await app.operator.call("runs.list", trigger="orders", limit=50))["items"]
    return sorted(key for run in runs for key in run["event_keys"])


async def test_what_a_program_shows_after_the_first_read_starts_runs(site: Site):
    async with started(site) as app:
        await ticked(app)
        site.add("new")
        await ticked(app)
        assert await fired(app) == ["new"]
        assert len(site.processes()) == 1

    assert (site.processes(), zombies()) == ([], [])


async def test_nothing_is_run_until_the_operator_allows_it_and_then_it_goes_on_by_itself(site: Site):
    site.write(allowed=False)
    async with started(site) as app:
        report = await ticked(app)
        assert "services.allow_programs: true" in report["error"]
        assert site.processes() == []

        site.write(allowed=True)
        assert (await app.controller.reload())["freed"] == ["orders"]
        assert (await ticked(app))["result"] in ("events", "nothing_new")


async def test_taking_the_permission_away_ends_what_runs(site: Site):
    async with started(site) as app:
        await ticked(app)
        site.write(allowed=False)
        await app.controller.reload()
        await app.intake.registry.closer.finish([])
        assert site.processes() == []


async def test_an_edited_poller_is_replaced_and_a_removed_one_is_ended(site: Site):
    async with started(site) as app:
        await ticked(app)
        site.write(shop="south")
        await app.controller.reload()
        await ticked(app)
        await app.intake.registry.closer.finish([])
        assert len(site.processes()) == 1

        site.workflow.unlink()
        await app.controller.reload()
        await app.intake.registry.closer.finish([])
        assert site.processes() == []


async def test_a_dry_run_leaves_no_process_behind(site: Site):
    site.write()
    async with started(site) as app:
        await ticked(app)
        await app.controller.preview("orders", 3600)
        assert len(site.processes()) == 1
