"""Runs that are held for a person or keep dying are told of once, and once that they succeed again."""

from __future__ import annotations

from pathlib import Path

import structlog.testing

from harken.app.run_alerts import RunAlerts
from harken.config.loaded import Loaded
from harken.config.on_failure import ON_FAILURE
from harken.runs import Dead, Finished, RunOutcome
from harken.store import Settlement
from harken.testing import VirtualClock
from harken.testing.clock import virtual
from tests.ingest.process import HOUR, Process, trigger

TELLING = trigger("tell", feed="harken", types=("runs.held", "runs.dead", "runs.recovered"))


def watching(process: Process) -> RunAlerts:
    loaded = Loaded(directory=Path(), triggers=process.triggers)
    return RunAlerts(process.store, process.intake, process.clock, lambda: loaded)


async def told(process: Process) -> list[str]:
    events = (await process.store.events(feed="harken")).items
    return [event.type for event in reversed(events)]


async def ends(process: Process, outcome: RunOutcome, times: int = 1) -> None:
    """So many new items appear, and their runs end like this."""
    for _ in range(times):
        await process.push(f"n{process.clock.time()}")
        [claimed] = [run for run in await process.store.claim("w", 10, 60) if run.trigger != "tell"]
        ended = Settlement(id=claimed.id, token=claimed.token, outcome=outcome, trigger=claimed.trigger)
        await process.store.settle([ended])
        await process.clock.sleep(60)


async def flooded(process: Process, number: int = 5) -> None:
    for item in range(number):
        process.world.put(f"n{item}", late=-HOUR)
    await process.start(trigger(flood_limit=3), TELLING)


@virtual
async def test_runs_held_by_the_flood_guard_are_told_and_logged_once_with_the_command(
    clock: VirtualClock, tmp_path: Path
) -> None:
    process = Process(clock, tmp_path)
    await flooded(process)
    alerts = watching(process)
    with structlog.testing.capture_logs() as logs:
        for _ in range(3):
            await alerts.check()
    assert [(line["event"], line["runs"], line["fix"]) for line in logs] == [
        ("runs.held", 5, "harken triggers release t")
    ]
    [event] = (await process.store.events(feed="harken")).items
    assert (event.type, event.data["trigger"], event.data["runs"], event.data["alert"]) == ("runs.held", "t", 5, True)
    assert event.data["text"].startswith("5 runs of t held by the flood guard")
    assert "harken triggers release t" in event.data["text"]
    assert [run.status for run in await process.runs("tell")] == ["ready"]
    await process.stop()


@virtual
async def test_a_restart_does_not_repeat_what_was_told_of_held_runs(clock: VirtualClock, tmp_path: Path) -> None:
    process = Process(clock, tmp_path)
    await flooded(process)
    await watching(process).check()
    await process.stop_for(60)
    await process.start()
    await watching(process).check()
    assert await told(process) == ["runs.held"]
    await process.store.release("t")
    await watching(process).check()
    assert await process.store.documents("run_alert") == []
    await process.stop()


@virtual
async def test_a_flood_within_the_limit_is_not_told(clock: VirtualClock, tmp_path: Path) -> None:
    process = Process(clock, tmp_path)
    await flooded(process, 2)
    await watching(process).check()
    assert await told(process) == []
    await process.stop()


@virtual
async def test_three_deaths_in_a_row_are_told_once_and_so_is_the_next_success(
    clock: VirtualClock, tmp_path: Path
) -> None:
    process = Process(clock, tmp_path)
    await process.start(trigger(feed="hooks"), TELLING)
    alerts = watching(process)
    await ends(process, Dead(error="chat not found"), 2)
    await alerts.check()
    assert await told(process) == []
    await ends(process, Dead(error="chat not found"), 2)
    await alerts.check()
    await watching(process).check()
    [event] = (await process.store.events(feed="harken")).items
    assert (event.type, event.data["runs"], event.data["reason"]) == ("runs.dead", 4, "chat not found")
    assert event.data["text"].endswith("When it is mended: harken dead retry --trigger t")
    await ends(process, Finished())
    await alerts.check()
    await alerts.check()
    assert await told(process) == ["runs.dead", "runs.recovered"]
    await process.stop()


@virtual
async def test_deaths_with_a_success_between_them_are_not_in_a_row(clock: VirtualClock, tmp_path: Path) -> None:
    process = Process(clock, tmp_path)
    await process.start(trigger(feed="hooks"))
    for outcome in (Dead(error="no"), Dead(error="no"), Finished(), Dead(error="no"), Dead(error="no")):
        await ends(process, outcome)
    await watching(process).check()
    assert await told(process) == []
    await process.stop()


@virtual
async def test_dropped_dead_letters_are_no_recovery(clock: VirtualClock, tmp_path: Path) -> None:
    process = Process(clock, tmp_path)
    await process.start(trigger(feed="hooks"))
    await ends(process, Finished())
    await ends(process, Dead(error="no"), 3)
    alerts = watching(process)
    await alerts.check()
    for letter in (await process.store.dead()).items:
        await process.store.drop_dead_letter(letter.id)
    await alerts.check()
    assert await told(process) == ["runs.dead"]
    assert await process.store.documents("run_alert") == []
    await process.stop()


@virtual
async def test_an_alert_that_dies_is_not_alerted_about(clock: VirtualClock, tmp_path: Path) -> None:
    process = Process(clock, tmp_path)
    await process.start(trigger(ON_FAILURE, feed="hooks"))
    await ends(process, Dead(error="no"), 5)
    await watching(process).check()
    assert await told(process) == []
    await process.stop()
