"""Each play of a real service on virtual time, with the whole engine: nothing is lost, doubled or made up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from harken.app import App
from harken.app.store import opened_store
from harken.backends.sqlite import SqliteStore
from harken.demo import SCENARIOS
from harken.demo.display import Silent
from harken.demo.lost_and_duplicate_count import Summary
from harken.demo.runner import Runner
from harken.demo.scenario import Scenario, scenario_of
from harken.operate.load_and_check_configuration import load_directory
from harken.testing import HandClock, VirtualClock, virtual

ROOT = Path(__file__).parents[2]
# agents and dropped connections take real time: see test_tickets.py and test_streams.py
NAMES = sorted(SCENARIOS.keys() - {"", "tickets", "streams"})
SECONDS = 30.0


@asynccontextmanager
async def staged(scenario: Scenario, directory: Path, clock: VirtualClock) -> AsyncIterator[App]:
    scenario.prepare(directory)
    # what the play begins with happened before
    await clock.sleep(1)
    async with scenario.serve() as environment:
        loaded = load_directory(directory, environment)
        assert [str(finding) for finding in loaded.findings] == []
        app = App(loaded, opened_store(SqliteStore.at(directory / "harken.db", clock, inline=True)), clock)
        await app.begin()
        scenario.open("")
        yield app
        await app.stop()
        await app.store.close()


async def performed(scenario: Scenario, directory: Path, clock: VirtualClock) -> Summary:
    async with staged(scenario, directory, clock) as app:
        return await Runner(scenario, app.store, [Silent()], clock).scenario(SECONDS, asyncio.Event())


@pytest.mark.parametrize("name", NAMES)
@virtual
async def test_nothing_is_lost_doubled_or_made_up_and_it_was_not_made_easy(
    clock: VirtualClock, tmp_path: Path, name: str
):
    scenario = scenario_of(name, clock, Random(11))

    summary = await performed(scenario, tmp_path, clock)

    assert (summary.lost, summary.duplicate, summary.unexpected) == (0, 0, 0), summary
    assert summary.recorded == summary.events_at_source > 20
    assert min(summary.rate_limited, summary.late, summary.deliveries) >= 2
    assert all(scenario.expected.values()), "every workflow had something to do"


@virtual
async def test_what_the_truth_does_not_expect_is_noticed(clock: VirtualClock, tmp_path: Path):
    scenario = scenario_of("pagerduty", clock, Random(11))
    async with staged(scenario, tmp_path, clock) as app:
        runner = Runner(scenario, app.store, [Silent()], clock)
        whole = await runner.scenario(20, asyncio.Event())
        for names in scenario.expected.values():
            assert isinstance(names, list)
            names[0] = "PINC-never"
        changed = await runner.scenario(0, asyncio.Event())

    assert whole.good
    assert (changed.lost, changed.unexpected) == (2, 2)


@pytest.mark.parametrize("name", NAMES)
def test_the_example_of_a_service_is_what_its_demo_runs(name: str):
    example = ROOT / "examples" / name

    assert example.resolve() == ROOT / "src" / "harken" / "demo" / "examples" / name
    assert (example / "harken.yaml").is_file()


@pytest.mark.parametrize("name", NAMES)
def test_a_demo_changes_nothing_in_the_workflows_but_their_pace(name: str, tmp_path: Path):
    scenario_of(name, HandClock(), Random(1)).prepare(tmp_path)
    for shipped in (ROOT / "examples" / name / "workflows").glob("*.yaml"):
        before = shipped.read_text("utf-8").splitlines()
        after = (tmp_path / "workflows" / shipped.name).read_text("utf-8").splitlines()
        changed = [old for old, new in zip(before, after, strict=True) if old != new]
        assert changed
        assert all("interval:" in line or "window:" in line for line in changed)
