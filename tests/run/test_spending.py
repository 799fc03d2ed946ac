"""What models take is charged to the trigger's budget: once, and not lost."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from harken.errors import RetryLater
from harken.feed import Budget, Trigger
from harken.run.language_models import Answer, Models, ModelSettings
from harken.store import Definitions
from harken.testing import VirtualClock
from harken.testing.clock import virtual
from tests.run.world import FEEDS, World, do, running_world, steps

ASK = {"action": "llm", "id": "ask", "prompt": "Sum up {{.trigger.event.x}}"}


def answer(model: str = "x:small", given: int = 1_000_000, said: int = 100_000) -> Answer:
    return Answer(model=model, usage={"input_tokens": given, "output_tokens": said, "requests": 1})


async def limit(world: World, budget: Budget) -> None:
    """Give the main workflow's trigger a budget."""
    made = Trigger(name="main", feed="inbox", workflow="main", workflow_rev="main@1", flood_limit=0, budget=budget)
    document = await world.sqlite.get("workflow", "main@1")
    assert document is not None
    flows = {"main": ("main@1", msgspec.json.encode(document.value["definition"]))}
    world.opened = await world.sqlite.open(Definitions(generation="2", feeds=FEEDS, triggers=[made], workflows=flows))


async def used(world: World) -> int:
    [state] = await world.sqlite.triggers()
    return state.tokens_today


def test_a_price_is_for_a_million_tokens() -> None:
    models = Models(ModelSettings(prices={"x:small": (3.0, 15.0)}))
    assert models.cost(answer()) == pytest.approx(3.0 + 1.5)


def test_a_model_without_a_price_has_no_cost_and_echo_is_free() -> None:
    models = Models(ModelSettings())
    assert models.cost(answer()) is None
    assert models.cost(answer("echo")) == 0.0


async def test_echo_counts_tokens_roughly() -> None:
    models = Models(ModelSettings(names={"default": "echo"}))
    short, long = await models.ask("", "x" * 40), await models.ask("", "x" * 400)
    assert short.usage["input_tokens"] == 10
    assert long.tokens - short.tokens == 180


@virtual
async def test_an_llm_step_is_charged_to_its_trigger(clock: VirtualClock, tmp_path: Path) -> None:
    async with running_world(clock, tmp_path, steps(ASK)) as world:
        run = await world.end(x="this")
        assert run.journal[0].tokens > 0
        assert await used(world) == run.journal[0].tokens


@virtual
async def test_a_step_that_is_done_is_not_charged_again_when_its_run_is_tried_again(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with running_world(clock, tmp_path, steps(ASK, do("post"))) as world:
        world.service.says = [RetryLater("away"), RetryLater("away"), {"ok": True}]
        run = await world.end(x="this")
        assert (run.status, run.attempt) == ("done", 3)
        assert await used(world) == run.journal[0].tokens


@virtual
async def test_the_count_survives_a_worker_that_dies_after_the_model_answered(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with running_world(clock, tmp_path, steps(ASK, do("post"))) as world:
        world.service.seconds = 10_000.0
        run_id = await world.start(x="this")
        await clock.sleep(1)
        journaled = (await world.look(run_id)).journal
        assert [record.path for record in journaled] == ["ask"]
        assert await used(world) == journaled[0].tokens


@virtual
async def test_runs_beyond_the_tokens_of_a_day_are_held_until_the_next(clock: VirtualClock, tmp_path: Path) -> None:
    async with running_world(clock, tmp_path, steps(ASK), parallel=1) as world:
        await limit(world, Budget(tokens_per_day=100))
        runs = [(await world.push({"x": "x" * 200})).verdicts[0][0].run_id for _ in range(3)]
        world.worker.nudge()
        await clock.sleep(60)
        assert [(await world.look(run)).status for run in runs] == ["done", "held", "held"]
        await clock.sleep(86_400)
        assert [(await world.look(run)).status for run in runs] == ["done", "done", "held"]


@virtual
async def test_a_model_without_a_price_warns_where_dollars_are_limited(clock: VirtualClock, tmp_path: Path) -> None:
    class Unpriced(Models):
        def cost(self, answer: Answer) -> float | None:
            return super().cost(msgspec.structs.replace(answer, model="x:small"))

    usd_limited = ModelSettings(names={"default": "echo"}, usd_limited=frozenset({"main"}))
    async with running_world(clock, tmp_path, steps(ASK), models=Unpriced(usd_limited)) as world:
        run = await world.end(x="this")
        assert "has no price under models.prices" in run.journal[0].warnings[-1]
        assert (run.status, run.journal[0].usd) == ("done", 0.0)
