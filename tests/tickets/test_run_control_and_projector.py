"""What people see on a ticket: run control and projector write with one account, and neither repeats the other."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from harken.testing import VirtualClock, virtual
from harken.testing.fakes.github import Issue
from harken.tickets import Trust
from tests.tickets.run_control_world import World, settings, tickets_world

DO = {"id": "work", "action": "work.do", "timeout": "2h"}
PULL = {"id": "pull", "action": "ticket.pull_request", "head": "harken/1"}

WHY = {"close": "the ticket was closed", "unlabel": "the label fix was taken off by leo"}


async def shows(world: World, issue: Issue, *labels: str, seconds: float = 60.0) -> None:
    """Wait until the ticket has exactly these labels."""
    ends = world.clock.time() + seconds
    while sorted(issue.labels) != sorted(labels):
        assert world.clock.time() < ends, issue.labels
        await world.clock.sleep(0.5)


@virtual
async def test_a_label_that_is_not_trusted_leaves_no_lifecycle_label_and_one_comment_that_says_why(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with tickets_world(clock, tmp_path, DO) as world:
        world.project()
        issue = world.ticket(by="leo")
        run = await world.result(issue)
        await clock.sleep(120)
        assert (run.status, issue.labels) == ("cancelled", ["fix"])
        (comment,) = world.comments(issue)
        assert "leo has no write access" in comment
        assert "somebody with write access can take the label fix off and put it on again" in comment


def label_writes(world: World) -> list[str]:
    return [seen.method for seen in world.hub.seen if "/labels" in seen.path and seen.method != "GET"]


@virtual
async def test_before_its_first_look_is_over_nothing_of_a_run_is_shown(clock: VirtualClock, tmp_path: Path) -> None:
    async with tickets_world(clock, tmp_path, DO) as world:
        world.project()
        issue = world.ticket(by="leo")
        # the look waits for the history, which is behind
        issue.history_visible_at = clock.time() + 45
        run = await world.until(await world.tell(issue), seconds=200)
        await clock.sleep(60)
        assert (run.status, "leo has no write access" in run.error) == ("cancelled", True)
        assert (label_writes(world), len(world.comments(issue))) == ([], 1)


@virtual
async def test_a_run_that_waits_for_a_worker_is_shown_if_somebody_who_may_has_asked_for_it(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with tickets_world(clock, tmp_path, DO, working=False) as world:
        world.project()
        ours, strange = world.ticket(by="mia"), world.ticket(by="leo")
        for issue in (ours, strange):
            await world.tell(issue)
        await clock.sleep(300)
        assert (ours.labels, strange.labels) == (["fix", "harken:enqueued"], ["fix"])
        assert (world.comments(ours), world.comments(strange)) == ([], [])


@pytest.mark.parametrize("how", ["unlabel", "close"])
def test_a_run_that_is_withdrawn_at_work_leaves_no_lifecycle_label(how: str, tmp_path: Path) -> None:
    @virtual
    async def test(clock: VirtualClock) -> None:
        async with tickets_world(clock, tmp_path, DO, PULL) as world:
            world.project()
            issue = world.ticket()
            world.seconds = 3600.0
            run_id = await world.tell(issue)
            await shows(world, issue, "fix", "harken:in-progress")
            world.hub.close(issue) if how == "close" else world.hub.unlabel(issue, "fix", by="leo")
            assert (await world.until(run_id, seconds=30)).status == "cancelled"
            await shows(world, issue, *(["fix"] if how == "close" else []))
            await clock.sleep(60)
            assert world.pulls() == []
            assert "Cancelled" in world.comments(issue)[-1]
            assert f"Reason: `{WHY[how]}`" in world.comments(issue)[-1]
            assert (await world.run(run_id)).error == WHY[how]

    test()


@pytest.mark.parametrize("seconds", [19.0, 19.99, 20.01, 20.5])
def test_a_label_taken_off_about_when_the_work_ends_leaves_no_done_label(seconds: float, tmp_path: Path) -> None:
    @virtual
    async def test(clock: VirtualClock) -> None:
        async with tickets_world(clock, tmp_path, DO) as world:
            world.project()
            issue = world.ticket()
            world.seconds = 20.0
            run_id = await world.tell(issue)
            await clock.sleep(seconds)
            world.hub.unlabel(issue, "fix")
            await world.until(run_id)
            await clock.sleep(60)
            assert "harken:in-progress" not in issue.labels
            assert ("harken:done" in issue.labels) == (seconds > 20.0 and _was_done_before(issue))

    test()


def _was_done_before(issue: Issue) -> bool:
    """Whether the done label was written before the person took the trigger label off."""
    kinds = [(entry["event"], entry.get("label", {}).get("name")) for entry in issue.events]
    done, off = ("labeled", "harken:done"), ("unlabeled", "fix")
    return done in kinds and kinds.index(done) < kinds.index(off)


@virtual
async def test_a_held_run_shows_waiting_with_one_comment_and_begins_after_approval(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with tickets_world(clock, tmp_path, DO, tracker=settings(Trust(untrusted="hold"))) as world:
        world.project()
        issue = world.ticket(by="leo")
        world.seconds = 30.0
        run_id = await world.tell(issue)
        await shows(world, issue, "fix", "harken:waiting")
        await clock.sleep(300)
        assert [("approve" in text) for text in world.comments(issue)] == [True]
        world.hub.comment(issue, "approve", by="mia")
        await shows(world, issue, "fix", "harken:in-progress", seconds=120)
        assert (await world.until(run_id)).status == "done"
        await shows(world, issue, "fix", "harken:done")


@pytest.mark.parametrize(
    ("step", "reply"),
    [
        ({"id": "ask", "action": "ticket.ask", "question": "Which one, left or right?"}, "left"),
        ({"id": "ask", "action": "approve", "prompt": "Which one, left or right?"}, "approved: left"),
    ],
    ids=["ask", "approve"],
)
def test_a_question_is_on_the_ticket_once_and_its_answer_brings_the_label_back(
    step: Mapping[str, Any], reply: str, tmp_path: Path
) -> None:
    @virtual
    async def test(clock: VirtualClock) -> None:
        async with tickets_world(clock, tmp_path, step, DO) as world:
            world.project()
            issue = world.ticket()
            world.seconds = 30.0
            run_id = await world.tell(issue)
            await shows(world, issue, "fix", "harken:waiting")
            await clock.sleep(120)
            asked = [text for text in world.comments(issue) if "left or right?" in text]
            assert len(asked) == 1
            world.hub.comment(issue, reply, by="mia")
            await shows(world, issue, "fix", "harken:in-progress", seconds=90)
            assert (await world.until(run_id)).status == "done"
            await shows(world, issue, "fix", "harken:done")

    test()


@virtual
async def test_a_run_that_an_operator_cancels_says_so_on_the_ticket(clock: VirtualClock, tmp_path: Path) -> None:
    async with tickets_world(clock, tmp_path, DO) as world:
        world.project()
        issue = world.ticket()
        world.seconds = 3600.0
        run_id = await world.tell(issue)
        await shows(world, issue, "fix", "harken:in-progress")
        await world.store.cancel(run_id)
        assert (await world.until(run_id, seconds=60)).error == "cancelled by hand"
        await shows(world, issue, "fix")
        await clock.sleep(10)
        assert "Reason: `cancelled by hand`" in world.comments(issue)[-1]
