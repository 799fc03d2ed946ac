"""Who reads a tracker when its reader is gone, and what a sleep does to runs that are alive."""

from __future__ import annotations

from pathlib import Path

import pytest

from harken.testing import VirtualClock, virtual
from tests.system.tickets.lagging_github import LaggingGitHub, lifecycle_of
from tests.system.tickets.replicas import MIXED, replicas

OFTEN = MIXED.replace("interval_seconds: 30", "interval_seconds: 5").replace(
    "    webhook_secret: ${{GITHUB_WEBHOOK_SECRET}}\n", ""
)
RARELY = MIXED.replace("    polling: {{enabled: true, interval_seconds: 30}}\n", "")


def lists(hub: LaggingGitHub, since: float) -> list[float]:
    """When the tracker was read."""
    return [seen.at for seen in hub.seen if seen.path.endswith("/issues") and seen.at > since]


@pytest.mark.parametrize("text", [OFTEN, MIXED, RARELY], ids=["often", "mixed", "webhooks alone"])
@pytest.mark.parametrize(("how", "most"), [("killed", 35.0), ("stopped", 2.0)])
@virtual
async def test_another_replica_reads_on_when_the_reader_is_gone(
    clock: VirtualClock, tmp_path: Path, text: str, how: str, most: float
) -> None:
    """Also if the next read would be due later: people wait for what it finds."""
    async with replicas(clock, tmp_path, text=text) as fleet:
        for _ in range(5):
            await clock.sleep(47)
            leader = await fleet.leader()
            await (fleet.kill if how == "killed" else fleet.stop)(leader)
            gone = clock.time()
            issue = fleet.hub.open("fix", by="leo")
            if how == "stopped":
                await clock.sleep(2)
                assert (await fleet.leader()) is not leader
            await clock.sleep(most)
            assert lists(fleet.hub, gone)[0] - gone <= most
            await clock.sleep(60)
            assert (await fleet.outcomes())[str(issue.number)] == ["done"]
            await fleet.start()


@pytest.mark.parametrize("size", [2, 3])
@virtual
async def test_a_replica_that_reads_its_share_already_reads_on_within_two_seconds_too(
    clock: VirtualClock, tmp_path: Path, size: int
) -> None:
    """It hears that a lease was released, and sees who is left."""
    async with replicas(clock, tmp_path, text=f"shards: 16\n{MIXED}", size=size) as fleet:
        for _ in range(6):
            await clock.sleep(61)
            await fleet.stop(await fleet.leader())
            gone = clock.time()
            await clock.sleep(2.0)
            assert lists(fleet.hub, gone), "nobody has read it"
            await fleet.start()


@virtual
async def test_idle_replicas_ask_the_store_as_often_as_their_timings_say(clock: VirtualClock, tmp_path: Path) -> None:
    async with replicas(clock, tmp_path, text=f"shards: 16\n{MIXED}") as fleet:
        await clock.sleep(300)
        fleet.verbs.clear()
        await clock.sleep(600)
        # three replicas beat every five seconds; two of them may hold a shard less than the third and look for one
        assert fleet.verbs["generation"] == 3 * 120
        assert fleet.verbs["leases"] <= 2 * 400 + 3 * 20


@virtual
async def test_a_laptop_that_sleeps_for_an_hour_finds_its_runs_alive(clock: VirtualClock, tmp_path: Path) -> None:
    busy = "name: fix-bug\nsteps:\n" + "".join(f"  - {{id: s{n}, action: wait, for: 5s}}\n" for n in range(24))
    async with replicas(clock, tmp_path, pipeline=busy) as fleet:
        await clock.sleep(40)
        issues = [fleet.hub.open("fix", by="leo") for _ in range(3)]
        for issue in issues:
            await fleet.deliver(issue)
        await clock.sleep(30)
        assert list((await fleet.outcomes()).values()) == [["running"]] * 3
        clock.sleep_laptop(3_600)
        for _ in range(20):
            await clock.sleep(2)
            assert list((await fleet.outcomes()).values()) == [["running"]] * 3
            assert [lifecycle_of(issue) for issue in issues] == [["harken:in-progress"]] * 3
        await clock.sleep(600)
        assert list((await fleet.outcomes()).values()) == [["done"]] * 3
        assert {run.attempt for run in await fleet.runs()} == {1}
        assert [lifecycle_of(issue) for issue in issues] == [["harken:done"]] * 3


@virtual
async def test_a_tracker_with_webhooks_alone_is_swept_at_the_start_of_a_process(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with replicas(clock, tmp_path, size=1, text=RARELY) as fleet:
        await clock.sleep(60)
        await fleet.stop(fleet.living[0])
        # nobody was there when its webhook came
        missed = fleet.hub.open("fix", by="leo")
        await clock.sleep(10)
        await fleet.start()
        await clock.sleep(60)
        assert (await fleet.outcomes()) == {str(missed.number): ["done"]}
