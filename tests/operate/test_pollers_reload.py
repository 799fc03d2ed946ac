"""Hundreds of jobs are reloaded while they are at work: whoever is right goes on as if nothing had happened."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from harken.errors import NotFound
from harken.testing import VirtualClock, virtual
from tests.operate.counting_service import readings
from tests.operate.poller_jobs import Agency, at_work, job, metered
from tests.soak import larger

JOBS = larger(__file__, 500)
MIDDLE, LAST_BUT_ONE, LAST = f"job{JOBS // 2}", f"job{JOBS - 2}", f"job{JOBS - 1}"
WRONG = {
    "job7": job("job7", kind="metre"),
    MIDDLE: job(MIDDLE, schedule="{every_secs: often}"),
    LAST: job(LAST, more=", failure_too: {channel: meter, to: me}"),
}


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with metered(tmp_path, monkeypatch) as made:
        yield made


def all_jobs(**others: str) -> list[str]:
    """As many jobs as there are, of which some are written otherwise; each tenth read of one finds something."""
    return [others.get(f"job{n}", job(f"job{n}", every=10)) for n in range(JOBS)]


def with_three_wrong(**others: str) -> list[str]:
    return all_jobs(**WRONG, **others)


def refused(plan: dict[str, object]) -> dict[str, bool]:
    return {one["id"]: one["runs"] for one in plan["refused"]}  # type: ignore[attr-defined]


def is_steady(id: str) -> bool:
    """Whether every read came a minute after the one before, with the cursor that this one had left."""
    reads = readings.reads[id]
    gaps = [after[0] - before[0] for before, after in pairwise(reads)]
    return [count for _, count in reads] == list(range(len(reads))) and all(60 <= gap < 61 for gap in gaps)


async def reload_in_the_middle(agency: Agency) -> dict[str, object]:
    """Reload while reads are under way: they take half a second, 64 at a time, so a round takes some seconds."""
    while not any(live.busy for live in agency.app.intake.feeds.values()):
        await agency.clock.sleep(0.3)
    plan: dict[str, object] = await agency.ask("pollers.reload")
    return plan


@virtual
async def test_three_wrong_of_hundreds_disturb_nobody(directory: Path, clock: VirtualClock) -> None:
    async with at_work(directory, clock, *with_three_wrong()) as agency:
        await clock.sleep(62)
        plan = await reload_in_the_middle(agency)
        assert (plan["ok"], len(plan["keep"])) == (False, JOBS - 3)  # type: ignore[arg-type]
        assert (plan["add"], plan["replace"], plan["remove"]) == ([], [], [])
        assert refused(plan) == {"job7": False, MIDDLE: False, LAST: False}
        await clock.sleep(600)
    assert len(readings.reads) == JOBS - 3
    assert [id for id in readings.reads if not is_steady(id)] == []
    assert {len(reads) for reads in readings.reads.values()} <= {11, 12}
    assert set(readings.delivered.values()) == {1}
    assert len(readings.delivered) == sum((len(reads) + 9) // 10 for reads in readings.reads.values())


@virtual
async def test_three_that_are_edited_into_errors_go_on_as_they_were(directory: Path, clock: VirtualClock) -> None:
    async with at_work(directory, clock, *all_jobs()) as agency:
        await clock.sleep(62)
        agency.writes(*with_three_wrong(job8=job("job8", every=20))[:-2], WRONG[LAST], job("fresh", every=10))
        plan = await reload_in_the_middle(agency)
        assert (plan["add"], plan["replace"], plan["remove"]) == (["fresh"], ["job8"], [LAST_BUT_ONE])
        assert refused(plan) == {"job7": True, MIDDLE: True, LAST: True}
        assert "pollers.yaml:11:" in str(plan["refused"])
        await clock.sleep(180)
        agency.writes(*all_jobs())
        plan = await reload_in_the_middle(agency)
        assert (plan["ok"], plan["add"], plan["remove"]) == (True, [LAST_BUT_ONE], ["fresh"])
        await clock.sleep(120)
    gone = {"fresh", LAST_BUT_ONE}
    assert [id for id in readings.reads if id not in gone and not is_steady(id)] == []
    # it was away for three minutes, and goes on where it stopped
    assert [count for _, count in readings.reads[LAST_BUT_ONE]] == list(range(len(readings.reads[LAST_BUT_ONE])))
    assert set(readings.delivered.values()) == {1}


@virtual
async def test_a_pause_after_a_reload_disturbs_nobody_else(directory: Path, clock: VirtualClock) -> None:
    async with at_work(directory, clock, job("one", every=10), job("two", every=10)) as agency:
        await clock.sleep(63)
        await agency.ask("pollers.reload")
        await agency.pollers.pause("one")
        await clock.sleep(120)
        assert (len(readings.reads["one"]), len(readings.reads["two"]), is_steady("two")) == (2, 4, True)


@virtual
async def test_a_typo_stays_harmless_over_a_restart_of_the_others(directory: Path, clock: VirtualClock) -> None:
    async with at_work(directory, clock, job("one"), job("two")) as agency:
        await clock.sleep(10)
        agency.writes(job("one", kind="metre"), job("two"))
        plan = await agency.ask("pollers.reload")
        assert (plan["keep"], refused(plan)) == (["two"], {"one": True})
        await clock.sleep(60)
        assert len(readings.reads["one"]) == 2
        await agency.down()
        await agency.up()
        await clock.sleep(60)
        assert (len(readings.reads["one"]), is_steady("two")) == (2, True)
        assert (await agency.rows())["one"]["paused"]
        agency.writes(job("one"), job("two"))
        assert (await agency.ask("pollers.reload"))["add"] == ["one"]
        await clock.sleep(60)
    assert [count for _, count in readings.reads["one"]] == [0, 1, 2]


@virtual
async def test_a_file_that_is_no_yaml_changes_nothing(directory: Path, clock: VirtualClock) -> None:
    async with at_work(directory, clock, job("one")) as agency:
        await clock.sleep(10)
        (directory / "pollers.yaml").write_text("pollers: {jobs: [")
        plan = await agency.ask("pollers.reload")
        assert (plan["ok"], plan["remove"], refused(plan)) == (False, [], {"pollers.yaml": False})
        await clock.sleep(60)
        assert len(readings.reads["one"]) == 2


@virtual
async def test_without_the_section_its_jobs_are_removed_and_there_is_nothing_left(
    directory: Path, clock: VirtualClock
) -> None:
    async with at_work(directory, clock, job("one")) as agency:
        await clock.sleep(10)
        (directory / "pollers.yaml").unlink()
        assert (await agency.ask("pollers.reload"))["remove"] == ["one"]
        with pytest.raises(NotFound, match="there is no pollers section"):
            await agency.ask("pollers.reload")
        agency.writes(job("one"))
        assert (await agency.ask("pollers.reload"))["add"] == ["one"]


@virtual
async def test_a_run_that_waits_for_a_read_is_of_the_job_as_it_was_reloaded(
    directory: Path, clock: VirtualClock
) -> None:
    async with at_work(directory, clock, job("one"), job("two")) as agency:
        readings.latency = 5.0
        await clock.sleep(61)
        runs = [asyncio.ensure_future(agency.pollers.run(id)) for id in ("one", "two")]
        await clock.sleep(1)
        agency.writes(job("one").replace("name: one", "name: uno"))
        await agency.ask("pollers.reload")
        done, gone = await asyncio.gather(*runs, return_exceptions=True)
        assert isinstance(done, dict)
        assert (done["result"], isinstance(gone, NotFound)) == ("events", True)
    # by its schedule it was due once, when it was reloaded or after the run
    assert ([len(readings.reads[name]) for name in ("one", "two")], "uno" in readings.reads) == ([2, 2], True)
