"""The whole way of a ticket: found by polls, looked at by its run, shown by labels, withdrawn and asked for again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from harken.testing import VirtualClock, virtual
from harken.testing.fakes.github import Issue
from harken.tickets import Routes, Trust
from tests.tickets.run_control_world import OURS, World, settings, tickets_world

DO = {"id": "work", "action": "work.do", "timeout": "2h"}


@asynccontextmanager
async def polled(clock: VirtualClock, path: Path, *steps: Any, **more: Any) -> AsyncIterator[World]:
    async with tickets_world(clock, path, *steps, **more) as world:
        world.project()
        world.poll()
        yield world


async def shows(world: World, issue: Issue, *labels: str, seconds: float = 180.0) -> None:
    ends = world.clock.time() + seconds
    while sorted(issue.labels) != sorted(labels):
        assert world.clock.time() < ends, (issue.labels, await world.runs())
        await world.clock.sleep(0.5)


async def ended(world: World) -> list[str]:
    return [run.status for run in await world.runs()]


@virtual
async def test_a_ticket_is_withdrawn_at_work_asked_for_again_and_run_once_more_by_a_person(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with polled(clock, tmp_path, DO) as world:
        world.seconds = 600.0
        issue = world.ticket()
        await shows(world, issue, "fix", "harken:in-progress")
        world.hub.unlabel(issue, "fix")
        await shows(world, issue)
        await clock.sleep(60)
        assert await ended(world) == ["cancelled"]
        world.seconds = 30.0
        world.hub.label(issue, "fix")
        await shows(world, issue, "fix", "harken:done")
        await clock.sleep(600)
        assert await ended(world) == ["cancelled", "done"]
        world.hub.unlabel(issue, "harken:done")
        await clock.sleep(300)
        assert await ended(world) == ["cancelled", "done", "done"]
        assert issue.labels == ["fix", "harken:done"]


@virtual
async def test_a_label_that_is_taken_off_at_work_ends_its_run_and_the_other_one_starts_its_own(
    clock: VirtualClock, tmp_path: Path
) -> None:
    both = settings(routes=Routes(by_label={"fix": "fix-bug", "scan": "fix-bug"}))
    async with polled(clock, tmp_path, DO, tracker=both) as world:
        world.seconds = 600.0
        issue = world.ticket("fix", "scan")
        await shows(world, issue, "fix", "scan", "harken:in-progress")
        world.seconds = 30.0
        world.hub.unlabel(issue, "fix")
        await shows(world, issue, "scan", "harken:done", seconds=900)
        assert await ended(world) == ["cancelled", "done"]


@virtual
async def test_a_label_that_was_not_trusted_starts_the_run_once_somebody_else_puts_it_on(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with polled(clock, tmp_path, DO) as world:
        issue = world.ticket(by="leo")
        await clock.sleep(300)
        assert (await ended(world), issue.labels) == (["cancelled"], ["fix"])
        for _ in range(5):
            world.hub.comment(issue, "please?", by="leo")
            await clock.sleep(300)
        assert await ended(world) == ["cancelled"], "it is not tried again and again"
        world.hub.unlabel(issue, "fix", by="mia")
        await clock.sleep(60)
        world.hub.label(issue, "fix", by="mia")
        await shows(world, issue, "fix", "harken:done")
        assert (await ended(world), len(world.did)) == (["cancelled", "done"], 1)


@virtual
async def test_a_held_run_is_cancelled_with_its_label_and_shows_nothing(clock: VirtualClock, tmp_path: Path) -> None:
    async with polled(clock, tmp_path, DO, tracker=settings(Trust(untrusted="hold"))) as world:
        issue = world.ticket(by="leo")
        await shows(world, issue, "fix", "harken:waiting")
        world.hub.unlabel(issue, "fix")
        await shows(world, issue)
        assert (await ended(world), world.did) == (["cancelled"], [])


@virtual
async def test_a_ticket_that_its_own_run_closes_ends_as_done(clock: VirtualClock, tmp_path: Path) -> None:
    close = {"id": "move", "action": "ticket.transition", "status": "closed"}
    async with polled(clock, tmp_path, close, DO) as world:
        world.seconds = 300.0
        issue = world.ticket()
        await clock.sleep(900)
        assert (await ended(world), issue.state) == (["done"], "closed")
        assert "harken:done" in issue.labels


@virtual
async def test_a_label_taken_off_and_put_on_within_one_poll_is_one_run(clock: VirtualClock, tmp_path: Path) -> None:
    async with polled(clock, tmp_path, DO, working=True) as world:
        world.seconds = 3.0
        await clock.sleep(21)
        issue = world.ticket()
        world.hub.unlabel(issue, "fix")
        world.hub.label(issue, "fix")
        await shows(world, issue, "fix", "harken:done")
        await clock.sleep(300)
        assert (await ended(world), len(world.did)) == (["done"], 1)


@pytest.mark.parametrize("at", ["at work", "queued"])
def test_a_label_put_on_again_before_the_next_poll_is_a_new_wish(at: str, tmp_path: Path) -> None:
    """The run saw it off and is cancelled; the feed never saw that."""

    @virtual
    async def test(clock: VirtualClock) -> None:
        async with polled(clock, tmp_path, DO, working=at == "at work") as world:
            world.seconds = 300.0
            issue = world.ticket()
            await shows(world, issue, "fix", "harken:in-progress" if at == "at work" else "harken:enqueued")
            world.hub.unlabel(issue, "fix")
            {"queued": world.work}.get(at, lambda: None)()
            (run,) = await world.runs()
            # what has not begun may have its label back within a minute
            await world.until(run.id, "cancelled", seconds=30 if at == "at work" else 90)
            world.hub.label(issue, "fix")
            world.seconds = 5.0
            await shows(world, issue, "fix", "harken:done", seconds=300)
            await clock.sleep(300)
            assert await ended(world) == ["cancelled", "done"]

    test()


@pytest.mark.parametrize("who", ["robot[bot]", OURS, "tia"])
def test_our_label_taken_off_by_somebody_who_may_not_start_runs_is_no_wish(who: str, tmp_path: Path) -> None:
    @virtual
    async def test(clock: VirtualClock) -> None:
        async with polled(clock, tmp_path, DO) as world:
            world.hub.repos["acme/shop"].roles["tia"] = "triage"
            issue = world.ticket()
            await shows(world, issue, "fix", "harken:done")
            await clock.sleep(120)
            world.hub.unlabel(issue, "harken:done", by=who)
            await clock.sleep(600)
            assert (await ended(world), issue.labels) == (["done", "cancelled"], ["fix"])
            assert "harken:done was taken off by" in "".join(world.comments(issue))
            world.hub.unlabel(issue, "fix")
            await clock.sleep(60)
            world.hub.label(issue, "fix")
            await shows(world, issue, "fix", "harken:done")
            assert await ended(world) == ["done", "cancelled", "done"]

    test()


@virtual
async def test_whoever_took_our_label_off_is_waited_for_while_the_history_is_behind(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with polled(clock, tmp_path, DO) as world:
        issue = world.ticket()
        await shows(world, issue, "fix", "harken:done")
        await clock.sleep(120)
        world.hub.unlabel(issue, "harken:done", by="robot[bot]")
        removal = issue.events.pop()
        await clock.sleep(60)
        assert (await ended(world))[1:] in (["ready"], ["running"])
        issue.events.append(removal)
        await clock.sleep(120)
        assert await ended(world) == ["done", "cancelled"]
