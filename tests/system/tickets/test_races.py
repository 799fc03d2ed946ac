"""What people and webhooks do at the same moment, to the whole application."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from harken.testing import VirtualClock, virtual
from harken.testing.fakes.github import Issue
from harken.timings import Timings
from tests.soak import SOAK
from tests.system.tickets.lagging_github import lifecycle_of
from tests.system.tickets.replicas import Replicas, replicas

WITHDRAWN = [("unlabeled", True), ("closed", False), *([("unlabeled", False), ("closed", True)] if SOAK else [])]
"""How a ticket is withdrawn, and whether a webhook tells of it."""
SECONDS = [10.0, 60.0, *([45.0, 58.0, 59.0, 59.5, 60.5, 61.0, 61.5, 62.0] if SOAK else [])]
BUSY = """
name: fix-bug
steps:
""" + "".join(f"  - {{id: s{number}, action: wait, for: 5s}}\n" for number in range(12))
"""A minute of work."""
SELDOM = Timings(
    lease_seconds=300.0, lease_looks=10, beat=30.0, alive=100.0, scheduler_nap=30.0, idle_flush=30.0,
    freshness_round=60.0, housekeeping_round=30.0,
)  # fmt: skip
"""No replica dies here: what they look at every second only to see that all are alive, they look at seldom."""


def withdraw(fleet: Replicas, issue: Issue, how: str) -> None:
    if how == "closed":
        fleet.hub.close(issue)
    else:
        fleet.hub.unlabel(issue, "fix", by="leo")


async def settle(fleet: Replicas) -> None:
    """Wait until copies are not behind any more, a sweep was made, and everything was written."""
    await fleet.clock.sleep(1_500)


@pytest.mark.parametrize(("how", "told"), WITHDRAWN)
@virtual
async def test_what_is_withdrawn_while_it_is_queued_never_begins(
    clock: VirtualClock, tmp_path: Path, how: str, told: bool
) -> None:
    async with replicas(clock, tmp_path, pipeline=BUSY, timings=SELDOM) as fleet:
        await clock.sleep(40)
        # twelve runs fill all three workers
        busy = [fleet.hub.open("fix", by="leo") for _ in range(12)]
        for issue in busy:
            await fleet.deliver(issue)
        await clock.sleep(5)
        queued = fleet.hub.open("fix", by="leo")
        await fleet.deliver(queued)
        await clock.sleep(12)
        withdraw(fleet, queued, how)
        if told:
            await fleet.deliver(queued, how)
        await settle(fleet)
        outcomes = dict(await fleet.outcomes())
        assert outcomes.pop(str(queued.number)) == ["cancelled"]
        assert lifecycle_of(queued) == []
        assert set(map(tuple, outcomes.values())) == {("done",)}


@pytest.mark.parametrize("seconds", SECONDS)
@pytest.mark.parametrize(("how", "told"), WITHDRAWN)
@virtual
async def test_what_is_withdrawn_at_work_is_cancelled_and_never_shown_as_done(
    clock: VirtualClock, tmp_path: Path, how: str, seconds: float, told: bool
) -> None:
    async with replicas(clock, tmp_path, pipeline=BUSY, timings=SELDOM) as fleet:
        await clock.sleep(40)
        issue = fleet.hub.open("fix", by="leo")
        await fleet.deliver(issue)
        while (await fleet.outcomes()).get(str(issue.number)) != ["running"]:
            await clock.sleep(0.1)
        await clock.sleep(seconds)
        over = (await fleet.outcomes())[str(issue.number)] == ["done"]
        withdraw(fleet, issue, how)
        if told:
            await fleet.deliver(issue, how)
        if seconds < 30:
            await clock.sleep(30)
            assert (await fleet.outcomes())[str(issue.number)] == ["cancelled"]
        await settle(fleet)
        assert len((await fleet.outcomes())[str(issue.number)]) == 1
        if not over:
            assert (await fleet.outcomes())[str(issue.number)] == ["cancelled"]
            assert lifecycle_of(issue) == []


@virtual
async def test_opened_and_labeled_and_a_poll_at_once_are_one_run(clock: VirtualClock, tmp_path: Path) -> None:
    async with replicas(clock, tmp_path, timings=SELDOM) as fleet:
        await clock.sleep(40)
        issue = fleet.hub.open("fix", by="leo")
        leader = await fleet.leader()
        async with asyncio.TaskGroup() as group:
            for action in ("opened", "labeled", "opened", "labeled"):
                group.create_task(fleet.deliver(issue, action))
            group.create_task(leader.app.intake.tick("tracker/acme"))
        await settle(fleet)
        assert await fleet.outcomes() == {str(issue.number): ["done"]}


@virtual
async def test_three_labels_in_one_second_are_one_run(clock: VirtualClock, tmp_path: Path) -> None:
    async with replicas(clock, tmp_path, timings=SELDOM) as fleet:
        await clock.sleep(40)
        issue = fleet.hub.open(by="leo")
        async with asyncio.TaskGroup() as group:
            for label in ("bug", "scan", "fix"):
                fleet.hub.label(issue, label, by="leo")
                group.create_task(fleet.deliver(issue))
                await clock.sleep(0.3)
        await settle(fleet)
        assert await fleet.outcomes() == {str(issue.number): ["done"]}
        assert sorted(issue.labels) == ["bug", "fix", "harken:done", "scan"]


async def off_and_on(fleet: Replicas, issue: Issue, *, gap: float, told: bool) -> None:
    """Take the label off and put it on again; with webhooks if `told`."""
    fleet.hub.unlabel(issue, "fix", by="leo")
    if told:
        await fleet.deliver(issue, "unlabeled")
    await fleet.clock.sleep(gap)
    fleet.hub.label(issue, "fix", by="leo")
    if told:
        await fleet.deliver(issue)


@pytest.mark.parametrize("told", [False, True])
@pytest.mark.parametrize(("before", "gap"), [(5.0, 1.0), (26.0, 3.0), *([(20.0, 1.0), (63.0, 2.0)] if SOAK else [])])
@virtual
async def test_a_label_taken_off_and_put_on_at_work_is_one_run(
    clock: VirtualClock, tmp_path: Path, before: float, gap: float, told: bool
) -> None:
    """No copy is behind here: so whoever looks in between sees it off."""
    async with replicas(clock, tmp_path, pipeline=BUSY, lags=(0.0,)) as fleet:
        await clock.sleep(40)
        issue = fleet.hub.open("fix", by="leo")
        await fleet.deliver(issue)
        await clock.sleep(before)
        await off_and_on(fleet, issue, gap=gap, told=told)
        await settle(fleet)
        assert await fleet.outcomes() == {str(issue.number): ["done"]}
        assert lifecycle_of(issue) == ["harken:done"]


@pytest.mark.parametrize("told", [False, True])
@pytest.mark.parametrize("gap", [1.0, 20.0])
@virtual
async def test_a_label_taken_off_and_put_on_in_the_queue_is_one_run(
    clock: VirtualClock, tmp_path: Path, gap: float, told: bool
) -> None:
    async with replicas(clock, tmp_path, pipeline=BUSY, timings=SELDOM) as fleet:
        await clock.sleep(40)
        for _ in range(12):
            await fleet.deliver(fleet.hub.open("fix", by="leo"))
        await clock.sleep(5)
        queued = fleet.hub.open("fix", by="leo")
        await fleet.deliver(queued)
        await clock.sleep(12)
        await off_and_on(fleet, queued, gap=gap, told=told)
        await settle(fleet)
        assert (await fleet.outcomes())[str(queued.number)] == ["done"]
        assert lifecycle_of(queued) == ["harken:done"]


@pytest.mark.parametrize("gap", [1.0, 20.0])
@virtual
async def test_a_label_taken_off_and_put_on_before_anybody_has_seen_it_is_one_run(
    clock: VirtualClock, tmp_path: Path, gap: float
) -> None:
    async with replicas(clock, tmp_path, pipeline=BUSY, timings=SELDOM) as fleet:
        await clock.sleep(40)
        issue = fleet.hub.open("fix", by="leo")
        await off_and_on(fleet, issue, gap=gap, told=False)
        await settle(fleet)
        assert await fleet.outcomes() == {str(issue.number): ["done"]}
        assert lifecycle_of(issue) == ["harken:done"]


@virtual
async def test_whoever_takes_our_label_off_again_and_again_meets_five_repairs_then_silence_and_one_alert(
    clock: VirtualClock, tmp_path: Path
) -> None:
    long = "name: fix-bug\nsteps:\n" + "".join(f"  - {{id: s{n}, action: wait, for: 5s}}\n" for n in range(300))
    async with replicas(clock, tmp_path, pipeline=long) as fleet:
        await clock.sleep(40)
        issue = fleet.hub.open("fix", by="leo")
        await fleet.deliver(issue)
        removed = 0
        for _ in range(120):
            await clock.sleep(10)
            if "harken:in-progress" in issue.labels:
                fleet.hub.unlabel(issue, "harken:in-progress", by="robot[bot]")
                removed += 1
        # the first one was no repair
        assert removed == 6
        told = [comment for comment in issue.comments if "robot" in comment["body"]]
        assert len(told) == 1
        page = await fleet.living[0].app.operator.call("events.list", limit=1000)
        assert len([event for event in page["items"] if event["type"] == "ticket.label_fight"]) == 1
        await settle(fleet)
        assert await fleet.outcomes() == {str(issue.number): ["done"]}
        assert lifecycle_of(issue) == ["harken:done"]


@virtual
async def test_a_robot_that_takes_our_done_label_off_starts_nothing(clock: VirtualClock, tmp_path: Path) -> None:
    async with replicas(clock, tmp_path, timings=SELDOM) as fleet:
        await clock.sleep(40)
        issue = fleet.hub.open("fix", by="leo")
        await fleet.deliver(issue)
        for _ in range(10):
            await clock.sleep(300)
            if "harken:done" in issue.labels:
                fleet.hub.unlabel(issue, "harken:done", by="robot[bot]")
                await fleet.deliver(issue, "unlabeled")
        assert await fleet.outcomes() == {str(issue.number): ["done", "cancelled"]}
        assert lifecycle_of(issue) == []
        [said] = [comment["body"] for comment in issue.comments if "robot" in comment["body"]]
        assert "may not ask for another run" in said


@virtual
async def test_a_reader_whose_copies_are_behind_what_another_replica_was_told_withdraws_nothing(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with replicas(clock, tmp_path, pipeline=BUSY, lags=(0.0,)) as fleet:
        await clock.sleep(40)
        issue = fleet.hub.open(by="leo")
        await clock.sleep(45)
        leader, behind = await fleet.leader(), issue.to_json()
        fleet.hub.lag(issue, 40)
        fleet.hub.label(issue, "fix", by="leo")
        assert await fleet.deliver(issue, to=next(one for one in fleet.living if one is not leader)) == 202
        # lists show the old version too
        issue.broken = {name: behind[name] for name in ("labels", "updated_at")}
        await clock.sleep(40)
        issue.broken = {}
        await settle(fleet)
        assert await fleet.outcomes() == {str(issue.number): ["done"]}
        assert lifecycle_of(issue) == ["harken:done"]
