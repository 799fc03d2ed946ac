"""Steps that set the run aside: waits, questions to people, and sub-runs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from harken.errors import RetryLater
from harken.testing.clock import VirtualClock, virtual
from tests.run.test_steps import paths
from tests.run.world import World, do, running_world, steps

ASK: dict[str, Any] = {"action": "approve", "id": "ask", "prompt": "Delete {{.inputs.what}}?"}


def ask(step_id: str, **more: Any) -> dict[str, Any]:
    return {"action": "approve", "id": step_id, "prompt": f"{step_id}?", **more}


async def answer(world: World, run_id: str, approved: bool = True, **more: Any) -> None:
    await world.until(run_id, "waiting")
    assert await world.sqlite.answer(run_id, {"approved": approved, "by": "ana", **more})
    world.worker.nudge()


@virtual
async def test_a_long_wait_holds_no_slot(clock: VirtualClock, tmp_path: Path) -> None:
    async with running_world(clock, tmp_path, steps({"action": "wait", "for": "1h"}, do("a")), parallel=1) as world:
        runs = [await world.start() for _ in range(3)]
        await asyncio.sleep(60)
        assert [(await world.look(run)).status for run in runs] == ["waiting"] * 3
        assert world.worker.in_flight == 0
        began = clock.time()
        for run in runs:
            assert (await world.until(run)).status == "done"
        assert clock.time() - began <= 3600


@virtual
async def test_a_short_wait_is_slept_through(clock: VirtualClock, tmp_path: Path) -> None:
    async with running_world(clock, tmp_path, steps({"action": "wait", "for": "3s"})) as world:
        began = clock.time()
        await world.end()
        assert clock.time() - began >= 3
        assert world.worker.parked == 0


@virtual
async def test_a_wait_may_name_a_moment_of_the_event(clock: VirtualClock, tmp_path: Path) -> None:
    async with running_world(clock, tmp_path, steps({"action": "wait", "until": "{{.inputs.at}}"})) as world:
        run = await world.end(at="2026-01-05T10:00:00Z")
        assert run.status == "done"
        assert run.finished_at is not None
        assert run.finished_at.isoformat() >= "2026-01-05T10:00:00+00:00"


@virtual
async def test_a_retried_run_does_not_wait_again(clock: VirtualClock, tmp_path: Path) -> None:
    async with running_world(clock, tmp_path, steps({"action": "wait", "for": "1h"}, do("a"))) as world:
        world.service.says = [RetryLater("busy")]
        began = clock.time()
        await world.end()
        assert clock.time() - began < 3700


@virtual
async def test_waits_in_branches_end_each_at_its_time(clock: VirtualClock, tmp_path: Path) -> None:
    branches = [
        [{"action": "wait", "for": "2h"}, do("late", at="{{.run.id}}")],
        [{"action": "wait", "for": "1h"}, do("soon", at="{{.run.id}}")],
        [do("now")],
    ]
    async with running_world(clock, tmp_path, steps({"action": "parallel", "id": "p", "branches": branches})) as world:
        began = clock.time()
        run = await world.end()
        assert 7200 <= clock.time() - began < 7300
        assert [key.rpartition(".")[2] for key in world.service.keys] == ["now", "soon", "late"]
        assert run.status == "done"


@virtual
async def test_a_wait_in_a_loop_goes_on_with_the_same_item(clock: VirtualClock, tmp_path: Path) -> None:
    loop = {"action": "foreach", "items": [1, 2], "steps": [do("a"), {"action": "wait", "for": "1h"}, do("b")]}
    async with running_world(clock, tmp_path, steps(loop)) as world:
        await world.end()
        assert [key.rpartition(":")[2] for key in world.service.keys] == [
            "foreach_1[0].a", "foreach_1[0].b", "foreach_1[1].a", "foreach_1[1].b",
        ]  # fmt: skip


@virtual
async def test_approval_lets_the_run_go_on(clock: VirtualClock, tmp_path: Path) -> None:
    async with running_world(clock, tmp_path, steps(ASK, do("a", who="{{.steps.ask.response.by}}"))) as world:
        run_id = await world.start(what="it")
        waiting = await world.until(run_id, "waiting")
        assert waiting.waiting_for == "approval"
        assert waiting.journal[0].output["prompt"] == "Delete it?"
        await answer(world, run_id)
        assert (await world.until(run_id)).status == "done"
        assert world.service.got == [{"who": "ana"}]


@virtual
async def test_rejection_fails_the_run_with_who_and_why(clock: VirtualClock, tmp_path: Path) -> None:
    async with running_world(clock, tmp_path, steps(ASK, do("a"))) as world:
        run_id = await world.start(what="it")
        await answer(world, run_id, approved=False, comment="too risky")
        run = await world.until(run_id)
        assert (run.status, run.error) == ("failed", "step ask: rejected by ana: too risky")
        assert world.service.got == []


@virtual
async def test_a_rejection_may_be_lived_with(clock: VirtualClock, tmp_path: Path) -> None:
    workflow = steps({**ASK, "on_error": "ignore"}, do("a", ok="{{.steps.ask.response.approved}}"))
    async with running_world(clock, tmp_path, workflow) as world:
        run_id = await world.start(what="it")
        await answer(world, run_id, approved=False)
        await world.until(run_id, "done")
        assert world.service.got == [{"ok": False}]


@virtual
async def test_an_unanswered_question_is_rejected_in_time(clock: VirtualClock, tmp_path: Path) -> None:
    async with running_world(clock, tmp_path, steps({**ASK, "timeout": "1h"})) as world:
        run = await world.end(what="it")
        assert (run.status, run.error) == ("failed", "step ask: rejected: nobody answered in time")


@virtual
async def test_an_unanswered_question_may_mean_yes(clock: VirtualClock, tmp_path: Path) -> None:
    async with running_world(clock, tmp_path, steps({**ASK, "timeout": "1h", "on_timeout": "approve"})) as world:
        assert (await world.end(what="it")).status == "done"


@virtual
async def test_an_answer_to_one_question_does_not_answer_the_next(clock: VirtualClock, tmp_path: Path) -> None:
    async with running_world(clock, tmp_path, steps(ask("one"), ask("two"))) as world:
        run_id = await world.start()
        await answer(world, run_id)
        await asyncio.sleep(60)
        run = await world.look(run_id)
        assert (run.status, paths(run)) == ("waiting", {"one": "ok", "two": "waiting"})
        await answer(world, run_id)
        assert (await world.until(run_id)).status == "done"


@virtual
async def test_questions_in_branches_are_asked_one_after_the_other(clock: VirtualClock, tmp_path: Path) -> None:
    branches = [[ask("one"), do("a")], [ask("two"), do("b")]]
    async with running_world(clock, tmp_path, steps({"action": "parallel", "id": "p", "branches": branches})) as world:
        run_id = await world.start()
        await answer(world, run_id)
        await asyncio.sleep(60)
        assert [key.rpartition(".")[2] for key in world.service.keys] == ["a"]
        await answer(world, run_id)
        await world.until(run_id, "done")
        assert [key.rpartition(".")[2] for key in world.service.keys] == ["a", "b"]


@virtual
async def test_a_sub_run_gives_its_output_to_its_parent(clock: VirtualClock, tmp_path: Path) -> None:
    child = steps(do("inner", n="{{.n}}"), inputs={"n": {"type": "integer"}}, outputs={"sum": "{{add .n 1}}"})
    call = {"action": "workflow", "id": "sub", "name": "child", "inputs": {"n": "{{.inputs.n}}"}}
    workflow = steps(call, outputs={"got": "{{.steps.sub.response.sum}}"})
    async with running_world(clock, tmp_path, workflow, workflows={"child": child}, parallel=1) as world:
        run = await world.end(n=4)
        assert (run.status, run.output) == ("done", {"got": 5})
        inner = await world.look(run.journal[-1].output["run"])
        assert (inner.parent, inner.workflow, inner.status) == (run.id, "child", "done")


@virtual
async def test_a_missed_wake_up_costs_a_minute_and_no_more(clock: VirtualClock, tmp_path: Path) -> None:
    call = {"action": "workflow", "name": "child"}
    async with running_world(clock, tmp_path, steps(call), workflows={"child": steps(do("a"))}) as world:
        world.service.seconds = 10
        run_id = await world.start()
        parked = await world.until(run_id, "waiting")
        assert parked.waiting_for.startswith("run:")
        began = clock.time()
        assert (await world.until(run_id)).status == "done"
        assert clock.time() - began <= 62
        assert len(world.service.got) == 1


@virtual
async def test_a_dead_sub_run_fails_its_step(clock: VirtualClock, tmp_path: Path) -> None:
    call = {"action": "workflow", "id": "sub", "name": "child"}
    child = steps(do(x="{{.inputs.nothing}}"))
    async with running_world(clock, tmp_path, steps(call), workflows={"child": child}) as world:
        run = await world.end()
        assert (run.status, "of child is dead" in run.error) == ("dead", True)


@virtual
async def test_a_sub_run_need_not_be_waited_for(clock: VirtualClock, tmp_path: Path) -> None:
    call = {"action": "workflow", "id": "sub", "name": "child", "wait": False}
    async with running_world(clock, tmp_path, steps(call), workflows={"child": steps(do("a"))}) as world:
        run = await world.end()
        inner = await world.until(run.journal[-1].output["run"])
        assert (run.status, inner.status, inner.parent) == ("done", "done", "")


@virtual
async def test_an_unknown_workflow_is_dead_with_its_name(clock: VirtualClock, tmp_path: Path) -> None:
    async with running_world(clock, tmp_path, steps({"action": "workflow", "name": "nobody"})) as world:
        run = await world.end()
        assert (run.status, "'nobody'" in run.error) == ("dead", True)
