"""What is withdrawn is cancelled, at whatever moment, and a crash in between loses nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from harken.task_cancellation import cancel_and_wait
from harken.testing import VirtualClock, virtual
from harken.tickets import ProjectScope, Routes
from harken.tickets.run_control import RunControl
from tests.services.github import SHOP
from tests.tickets.run_control_world import Ours, World, settings, tickets_world

DO = {"id": "work", "action": "work.do", "timeout": "2h"}
PULL = {"id": "pull", "action": "ticket.pull_request", "head": "harken/1"}
ASK = {"id": "ask", "action": "ticket.ask", "question": "Which one?"}
WITHDRAWN = {
    "label removed": lambda world, issue: world.hub.unlabel(issue, "fix"),
    "closed": lambda world, issue: world.hub.close(issue),
}
WHY = {"label removed": "the label fix was taken off by mia", "closed": "the ticket was closed"}


@pytest.mark.parametrize("seconds", [0.5, 3.0, 17.0, 25.0, 39.9])
@pytest.mark.parametrize("how", WITHDRAWN)
def test_a_run_at_work_is_cancelled_within_30_seconds_although_nobody_tells(
    how: str, seconds: float, tmp_path: Path
) -> None:
    @virtual
    async def test(clock: VirtualClock) -> None:
        async with tickets_world(clock, tmp_path, DO, PULL) as world:
            issue = world.ticket()
            run_id = await world.tell(issue)
            world.seconds = 40.0
            await clock.sleep(seconds)
            WITHDRAWN[how](world, issue)
            run = await world.until(run_id, seconds=30)
            assert (run.status, world.pulls()) == ("cancelled", [])

    test()


@pytest.mark.parametrize("how", WITHDRAWN)
def test_a_run_at_work_is_cancelled_when_the_feed_tells(how: str, tmp_path: Path) -> None:
    @virtual
    async def test(clock: VirtualClock) -> None:
        tracker = settings(webhook=True)
        async with tickets_world(clock, tmp_path, DO, PULL, tracker=tracker) as world:
            issue = world.ticket()
            run_id = await world.tell(issue)
            world.seconds = 4000.0
            await clock.sleep(100)
            WITHDRAWN[how](world, issue)
            await world.tell(issue)
            world.run_control.nudge()
            # a label may be back within five seconds
            run = await world.until(run_id, seconds={"closed": 2, "label removed": 11}[how])
            assert (run.status, run.error, world.pulls()) == ("cancelled", WHY[how], [])

    test()


@pytest.mark.parametrize("how", WITHDRAWN)
def test_a_run_that_is_queued_or_waits_is_cancelled_without_being_started(how: str, tmp_path: Path) -> None:
    @virtual
    async def test(clock: VirtualClock) -> None:
        async with tickets_world(clock, tmp_path, ASK, DO, working=False) as world:
            queued, asked = world.ticket(), world.ticket()
            asking = await world.tell(asked)
            world.work()
            await world.until(asking, "waiting")
            await world.worker.stop(0)
            waiting_for_worker = await world.tell(queued)
            for issue in (queued, asked):
                WITHDRAWN[how](world, issue)
                await world.tell(issue)
            world.attend()
            for run_id in (waiting_for_worker, asking):
                # what has not begun may have its label back within a minute
                run = await world.until(run_id, seconds=20 if how == "closed" else 80)
                assert (run.status, run.error) == ("cancelled", WHY[how])
            assert world.did == []

    test()


@pytest.mark.parametrize("other", ["answer", "approval"])
def test_a_run_that_waits_for_an_answer_ends_with_its_own_label_although_another_one_stays(
    other: str, tmp_path: Path
) -> None:
    @virtual
    async def test(clock: VirtualClock) -> None:
        routes = Routes(by_label={"fix": "fix-bug", "scan": "fix-bug"})
        asks = {"answer": ASK, "approval": {"id": "ok", "action": "approve", "prompt": "Is it fine?"}}[other]
        async with tickets_world(clock, tmp_path, asks, DO, tracker=settings(routes=routes)) as world:
            world.project()
            world.poll()
            issue = world.ticket("fix", "scan")
            await clock.sleep(60)
            (run,) = await world.runs()
            assert run.status == "waiting"
            world.hub.unlabel(issue, "fix", by="leo")
            run = await world.until(run.id, seconds=80)
            assert (run.status, run.error) == ("cancelled", "the label fix was taken off by leo")
            # the other label is a wish of its own
            await clock.sleep(120)
            _, second = await world.runs()
            assert second.status == "waiting"
            event = await world.store.event(second.event_ids[0])
            assert event is not None
            assert event.data["label"] == "scan"

    test()


@virtual
async def test_a_ticket_that_is_moved_out_of_the_project_is_withdrawn(clock: VirtualClock, tmp_path: Path) -> None:
    tracker = settings()
    scope = ProjectScope(name="shop", repo=SHOP, tag="till")
    tracker = replace(tracker, projects=(replace(tracker.projects[0], scope=scope),))
    async with tickets_world(clock, tmp_path, DO, PULL, tracker=tracker) as world:
        issue = world.ticket("till", "fix")
        run_id = await world.tell(issue)
        world.seconds = 60.0
        await clock.sleep(5)
        world.hub.unlabel(issue, "till")
        run = await world.until(run_id, seconds=30)
        assert (run.status, world.pulls()) == ("cancelled", [])


@virtual
async def test_a_crash_between_learning_and_cancelling_loses_nothing(clock: VirtualClock, tmp_path: Path) -> None:
    async with tickets_world(clock, tmp_path, DO, PULL, tracker=settings(webhook=True)) as world:
        issue = world.ticket()
        run_id = await world.tell(issue)
        world.seconds = 4000.0
        await clock.sleep(10)
        world.hub.unlabel(issue, "fix")
        await world.tell(issue)
        await world.crash()
        await clock.sleep(61)
        await world.store.requeue_expired()
        world.attend()
        world.work()
        run = await world.until(run_id, seconds=10)
        assert (run.status, world.pulls()) == ("cancelled", [])


@virtual
async def test_a_status_that_the_run_itself_has_set_withdraws_nothing(clock: VirtualClock, tmp_path: Path) -> None:
    move = {"id": "move", "action": "ticket.transition", "status": "closed"}
    async with tickets_world(clock, tmp_path, move, DO) as world:
        issue = world.ticket()
        run_id = await world.tell(issue)
        world.seconds = 100.0
        await clock.sleep(5)
        assert issue.state == "closed"
        await world.tell(issue)
        assert (await world.until(run_id)).status == "done"


@virtual
async def test_a_copy_that_is_behind_the_event_cancels_nothing(clock: VirtualClock, tmp_path: Path) -> None:
    async with tickets_world(clock, tmp_path, DO, working=False) as world:
        issue = world.hub.open(age=3600)
        before = issue.to_json()
        world.hub.label(issue, "fix")
        run_id = await world.tell(issue)
        world.seconds = 60.0
        world.work()
        await clock.sleep(2)
        issue.older, issue.older_until = before, clock.time() + 40
        world.attend()
        assert (await world.until(run_id)).status == "done"


@virtual
async def test_a_tracker_that_hangs_or_fails_stops_only_itself(clock: VirtualClock, tmp_path: Path) -> None:
    async with tickets_world(clock, tmp_path, DO, working=False) as world:
        issue = world.ticket()
        run_id = await world.tell(issue)
        world.hub.close(issue)
        await world.tell(issue)
        world.settings |= {name: replace(settings(), name=name) for name in ("hangs", "fails")}
        runs = world.store.runs

        async def nothing() -> None: ...

        async def hang() -> None:
            await clock.sleep(1e9)

        async def fail() -> None:
            raise ValueError("odd")

        async def odd(**given: Any) -> Any:
            await {"hangs/shop": hang, "fails/shop": fail}.get(given["trigger"], nothing)()
            return await runs(**given)

        world.store.runs = odd  # type: ignore[method-assign]
        world.attend()
        assert (await world.until(run_id, seconds=10)).status == "cancelled"
        assert set(world.run_control.trouble) == {"fails"}


@virtual
async def test_a_revoked_token_does_not_keep_withdrawn_runs_alive(clock: VirtualClock, tmp_path: Path) -> None:
    async with tickets_world(clock, tmp_path, DO) as world:
        issue, other = world.ticket(), world.ticket()
        run_id, other_id = await world.tell(issue), await world.tell(other)
        world.seconds = 1000.0
        await clock.sleep(5)
        del world.hub.tokens["app"]
        await clock.sleep(30)
        assert "hub" in world.run_control.trouble
        world.hub.unlabel(issue, "fix")
        await world.tell(issue)
        run = await world.until(run_id, seconds=20)
        # who did it cannot be read
        assert (run.status, run.error) == ("cancelled", "the label fix was taken off")
        assert (await world.run(other_id)).status == "running"
        world.hub.tokens["app"] = None
        await clock.sleep(30)
        assert world.run_control.trouble == {}


@pytest.mark.parametrize("how", WITHDRAWN)
def test_what_is_withdrawn_again_and_again_never_ends_as_done(how: str, tmp_path: Path) -> None:
    """At each tenth of a second of a run of two seconds, with crashes: no pull request, no done."""

    async def at(clock: VirtualClock, world: World, moment: float, withdraw: Callable[..., object]) -> None:
        issue = world.ticket()
        run_id = await world.tell(issue)
        await clock.sleep(moment)
        withdraw(world, issue)
        run = await world.until(run_id)
        assert run.status == "cancelled", moment
        assert world.pulls() == []

    @virtual
    async def test(clock: VirtualClock) -> None:
        async with tickets_world(clock, tmp_path, {**DO, "id": "a"}, DO, PULL) as world:
            world.seconds = 1.0
            for tenth in range(1, 20):
                await at(clock, world, tenth / 10, WITHDRAWN[how])

    test()


@virtual
async def test_a_run_at_work_elsewhere_is_cancelled_within_30_seconds(clock: VirtualClock, tmp_path: Path) -> None:
    class Theirs:
        async def keep(self) -> bool:
            return False

    async with tickets_world(clock, tmp_path, DO, PULL, working=False) as world:
        store: Any = world.store
        attending = RunControl(store, lambda name: {SHOP: world.github}, lambda: world.settings, clock)
        world.work()
        tasks = [asyncio.create_task(attending.keep(Ours())), asyncio.create_task(world.run_control.keep(Theirs()))]
        issue = world.ticket()
        run_id = await world.tell(issue)
        world.seconds = 3600.0
        await clock.sleep(100)
        world.hub.unlabel(issue, "fix")
        assert (await world.until(run_id, seconds=30)).status == "cancelled"
        assert world.pulls() == []
        await cancel_and_wait(tasks)


@virtual
async def test_looks_at_tickets_stay_within_the_quota_however_many_runs_are_open(
    clock: VirtualClock, tmp_path: Path
) -> None:
    ask = {"id": "ask", "action": "ticket.ask", "question": "Which one?"}
    async with tickets_world(clock, tmp_path, ask) as world:
        world.hub.writes_a_minute = 1_000
        runs = [await world.tell(world.ticket()) for _ in range(20)]
        for run_id in runs:
            await world.until(run_id, "waiting")
        before = len(world.hub.seen)
        await clock.sleep(1200)
        assert 20 <= len(world.hub.seen) - before <= 620
