"""Steps that a trigger wants around its runs, and a run that nobody wants any more."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harken.run.control_flow_exceptions import Withdrawn
from harken.run.execute import Frame
from harken.run.plan import Step
from harken.testing import VirtualClock, virtual
from tests.run.world import World, do, running_world, steps

Act = Callable[[Frame], Awaitable[Any]]


async def nothing(frame: Frame) -> None:
    return None


@dataclass(frozen=True)
class Around:
    before: Act = nothing
    after: Act = nothing
    replays: bool = False

    @property
    def first(self) -> Step:
        return Step(id="begin", action="test.begin", act=self.before, pure=True, replays=self.replays)

    @property
    def last(self) -> Step:
        return Step(id="end", action="test.end", act=self.after, pure=True)


def surround(world: World, around: Around) -> None:
    world.worker.use(replace(world.worker._environment, bracket=lambda claimed: around))


@virtual
async def test_the_steps_around_a_run_are_journaled_with_its_own(clock: VirtualClock, tmp_path: Path) -> None:
    async def look(frame: Frame) -> Any:
        return {"seen": len(world.service.got)}

    async with running_world(clock, tmp_path, steps(do("a"))) as world:
        surround(world, Around(before=look, after=look))
        run = await world.end()
        assert run.status == "done"
        assert [(record.path, record.action) for record in run.journal] == [
            ("begin", "test.begin"),
            ("a", "desk.do"),
            ("end", "test.end"),
        ]
        assert (run.journal[0].output, run.journal[2].output) == ({"seen": 0}, {"seen": 1})


@virtual
async def test_a_run_that_would_need_no_task_is_surrounded_too(clock: VirtualClock, tmp_path: Path) -> None:
    async def look(frame: Frame) -> Any:
        await clock.sleep(1)

    instant = steps({"id": "t", "action": "transform", "set": {"x": 1}})
    async with running_world(clock, tmp_path, instant) as world:
        assert (await world.end()).status == "done"
        surround(world, Around(before=look))
        run = await world.end()
        assert (run.status, [record.path for record in run.journal]) == ("done", ["begin", "t", "end"])


@virtual
async def test_the_first_step_may_show_other_values_of_the_event(clock: VirtualClock, tmp_path: Path) -> None:
    async def newer(frame: Frame) -> Any:
        return {"event": {"title": "new"}}

    definition = steps(do("a", title="{{.event.title}}", again="{{.trigger.event.title}}", body="{{.event.body}}"))
    async with running_world(clock, tmp_path, definition) as world:
        surround(world, Around(before=newer))
        await world.push({"title": "old", "body": "kept"})
        world.worker.nudge()
        await clock.sleep(5)
        assert world.service.got == [{"title": "new", "again": "new", "body": "kept"}]


@virtual
async def test_a_withdrawn_run_is_cancelled_and_goes_on_where_it_was_if_it_is_retried(
    clock: VirtualClock, tmp_path: Path
) -> None:
    wanted = [True, False, False, True, True]

    async def look(frame: Frame) -> Any:
        if not wanted.pop(0):
            raise Withdrawn("nobody wants it")
        return {}

    async with running_world(clock, tmp_path, steps(do("a"))) as world:
        surround(world, Around(before=look, after=look, replays=True))
        run_id = await world.start()
        run = await world.until(run_id)
        assert (run.status, run.error, world.service.keys) == ("cancelled", "nobody wants it", [f"{run_id}:a"])
        assert (run.journal[-1].path, run.journal[-1].status, run.journal[-1].code) == ("end", "failed", "withdrawn")
        for status in ("cancelled", "done"):
            assert await world.sqlite.retry(run_id)
            world.worker.nudge()
            assert (await world.until(run_id)).status == status
        assert len(world.service.got) == 1


@virtual
async def test_a_run_that_is_to_stop_is_found_without_waiting_for_the_heartbeat(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with running_world(clock, tmp_path, steps(do("a"))) as world:
        world.service.seconds = 50.0
        run_id = await world.start()
        await world.until(run_id, "running")
        await world.sqlite.cancel(run_id)
        await world.worker.check_claims()
        before = clock.time()
        assert (await world.until(run_id)).status == "cancelled"
        assert clock.time() - before < 1
