"""The loop of the projector: one replica writes, it is woken when a run moved, and trouble does not end it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from harken.errors import StoreUnavailable
from harken.task_cancellation import cancel_and_wait
from harken.testing import VirtualClock, virtual
from harken.testing.fakes.server import Answer
from harken.tickets import Projector
from tests.tickets.projecting import KEY, HubBoard, World, boards


class SharedLease:
    """The right of one replica, which another may take away."""

    def __init__(self, *, ours: bool) -> None:
        self.ours = ours

    async def keep(self) -> bool:
        return self.ours


@asynccontextmanager
async def kept(projector: Projector, lease: SharedLease) -> AsyncIterator[None]:
    task = asyncio.create_task(projector.keep(lease))
    try:
        yield
    finally:
        await cancel_and_wait([task])


def replica(world: World) -> Projector:
    return Projector(
        world.store, lambda name: {world.board.location: world.board.tracker}, lambda: world.settings, world.clock, KEY
    )


@virtual
async def test_a_nudge_is_answered_at_once_and_a_lost_one_within_seconds(clock: VirtualClock):
    async with boards(clock, "github") as served:
        world = World(clock, *served)
        async with kept(world.projector, SharedLease(ours=True)):
            await clock.sleep(60.5)
            number = world.board.open("fix")
            run = await world.claim(number, status="running")
            world.projector.nudge()
            await clock.sleep(0.2)
            assert world.lifecycle(number) == {"harken:in-progress"}
            world.store.move(run, "failed")
            await clock.sleep(6)
            assert world.lifecycle(number) == {"harken:failed"}


@virtual
async def test_a_replica_without_the_lease_writes_nothing_until_it_has_it(clock: VirtualClock):
    async with boards(clock, "github") as served:
        world = World(clock, *served)
        first, second = SharedLease(ours=True), SharedLease(ours=False)
        numbers = [world.board.open("fix") for _ in range(30)]
        runs = [await world.claim(number, status="running") for number in numbers]
        async with kept(world.projector, first), kept(replica(world), second):
            await clock.sleep(10)
            assert any(world.lifecycle(number) for number in numbers)
            first.ours, second.ours = False, True
            await clock.sleep(60)
            assert all(world.lifecycle(number) == {"harken:in-progress"} for number in numbers)
            for run in runs:
                world.store.move(run, "done")
            await clock.sleep(300)
        assert all(world.lifecycle(number) == {"harken:done"} for number in numbers)
        # one that put each label on, one that put on the next and one that took off the first, and the comments
        assert len(world.board.writes()) <= 30 * 4


@virtual
async def test_a_store_that_is_away_is_waited_for(clock: VirtualClock):
    async with boards(clock, "github") as served:
        world = World(clock, *served)
        number = world.board.open("fix")
        await world.claim(number, status="running")
        away = True

        def refuse() -> None:
            if away:
                raise StoreUnavailable("the disk is full")

        world.store.on_put = refuse
        async with kept(world.projector, SharedLease(ours=True)):
            await clock.sleep(30)
            assert world.lifecycle(number) == set()
            away = False
            await clock.sleep(30)
            assert world.lifecycle(number) == {"harken:in-progress"}


@virtual
async def test_a_project_that_comes_back_into_the_configuration_is_caught_up(clock: VirtualClock):
    async with boards(clock, "github") as served:
        world = World(clock, *served)
        assert isinstance(world.board, HubBoard)
        number = world.board.open("fix")
        run = await world.claim(number, status="running")
        async with kept(world.projector, SharedLease(ours=True)):
            await clock.sleep(10)
            configured = dict(world.settings)
            world.settings.clear()
            world.store.move(run, "done")
            await clock.sleep(60)
            assert world.lifecycle(number) == {"harken:in-progress"}
            world.settings.update(configured)
            await clock.sleep(60)
            assert world.lifecycle(number) == {"harken:done"}
        assert (await world.memory(number)).status == "done"


@virtual
async def test_what_another_replica_left_half_written_is_found_when_the_lease_comes_back(clock: VirtualClock):
    async with boards(clock, "github") as served:
        world = World(clock, *served)
        lease, other = SharedLease(ours=True), replica(world)
        number = world.board.open("fix")
        async with kept(world.projector, lease):
            await clock.sleep(10)
            lease.ours = False
            await clock.sleep(10)
            await world.claim(number, status="running")
            world.board.fake.limit(30)
            # it notes what moved, cannot write, gives the run back, and is never seen again
            await other.project()
            await other.project()
            assert list(await world.store.moved_runs()) == []
            lease.ours = True
            await clock.sleep(60)
        assert world.lifecycle(number) == {"harken:in-progress"}


@virtual
async def test_a_platform_that_does_not_answer_keeps_no_other_waiting(clock: VirtualClock):
    async with boards(clock, "github", "jira") as served:
        world = World(clock, *served)
        hub, jira = served
        numbers = [hub.open("fix") for _ in range(3)]
        ids = [(await world.ticket(number)).id for number in numbers]
        fine = await world.ticket(jira.open("fix"), jira)
        hub.fake.answers = [Answer(hang=True)] * 3
        async with kept(world.projector, SharedLease(ours=True)):
            await clock.sleep(1)
            hung = [world.store.start(id, status="running") for id in ids]
            run = world.store.start(fine.id, trigger="shop2/web", status="running")
            world.projector.nudge()
            await clock.sleep(5)
            assert jira.labels(fine.number) == {"fix", "harken:in-progress"}
            for _ in range(3):
                await clock.sleep(15)
                world.store.move(run, "waiting")
                world.projector.nudge()
                await clock.sleep(5)
                assert jira.labels(fine.number) == {"fix", "harken:waiting"}
                world.store.move(run, "running")
                world.projector.nudge()
                await clock.sleep(5)
                assert jira.labels(fine.number) == {"fix", "harken:in-progress"}
            for one in hung:
                world.store.move(one, "done")
            await clock.sleep(700)
        assert all(hub.labels(number) == {"fix", "harken:done"} for number in numbers)


@virtual
async def test_a_run_that_moves_while_its_ticket_is_being_written_is_shown_at_once(clock: VirtualClock):
    async with boards(clock, "github") as served:
        world = World(clock, *served)
        number = world.board.open("fix")
        run = await world.claim(number, status="running")
        plain = world.board.tracker.get

        async def slow(id: str) -> object:
            found = await plain(id)
            await clock.sleep(20)
            return found

        world.board.tracker.get = slow
        async with kept(world.projector, SharedLease(ours=True)):
            await clock.sleep(15)
            world.store.move(run, "done")
            await clock.sleep(30)
            world.board.tracker.get = plain
            await clock.sleep(15)
        assert world.lifecycle(number) == {"harken:done"}
