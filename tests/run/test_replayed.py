"""Steps see whether their run is a replay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harken.config.loaded import Loaded
from harken.config.settings import Settings
from harken.feed import Trigger
from harken.operate.operator import Operator
from harken.runs import Workflow
from harken.testing.clock import VirtualClock, virtual
from tests.run.world import FEEDS, World, do, running_world, steps

FLOW = steps(
    do("tell", text="{{ event.id }} {{ event.replay }}", given="{{ trigger.event.replay }}"),
    do("page", text="{{ event.id }}") | {"if": "!event.replay"},
)


def desk(world: World, path: Path) -> Operator:
    flow = Workflow(name="main", rev="main@1", definition=FLOW)
    trigger = Trigger(name="main", feed="inbox", workflow="main", workflow_rev="main@1", flood_limit=0)
    loaded = Loaded(
        directory=path, settings=Settings(), store="", feeds=FEEDS, triggers=(trigger,), workflows={"main": flow}
    )
    return Operator(world.sqlite, None, loaded, world.clock)


async def ended(world: World, run_id: str) -> Any:
    world.worker.nudge()
    return await world.until(run_id)


@virtual
async def test_a_replay_is_seen_by_templates_and_conditions_of_steps(clock: VirtualClock, tmp_path: Path) -> None:
    async with running_world(clock, tmp_path, FLOW) as world:
        await world.push({"id": "A"})
        operator = desk(world, tmp_path)
        first = await ended(world, (await world.sqlite.runs(limit=1)).items[0].id)
        assert world.service.got == [{"text": "A false", "given": False}, {"text": "A"}]
        one = await operator.call("events.replay", id=1, trigger="main")
        await ended(world, one["runs"][0]["id"])
        span = await operator.call("events.replay_range", trigger="main", since="1h")
        replayed = await ended(world, span["runs"][0]["id"])
        assert world.service.got[2:] == [{"text": "A true", "given": True}] * 2
        shown = await operator.call("runs.show", id=replayed.id)
        assert (shown["replay"], shown["input"], shown["replay_of"]) == (True, None, first.id)
        again = await operator.call("runs.rerun", id=replayed.id)
        await ended(world, again["id"])
        anew = await operator.call("runs.rerun", id=first.id)
        await ended(world, anew["id"])
        assert [got["text"] for got in world.service.got[4:]] == ["A true", "A false", "A"]


@virtual
async def test_an_event_that_has_such_a_field_keeps_it(clock: VirtualClock, tmp_path: Path) -> None:
    async with running_world(clock, tmp_path, steps(do(text="{{ event.replay }}"))) as world:
        await world.push({"replay": "the match"})
        await ended(world, (await world.sqlite.runs(limit=1)).items[0].id)
        assert world.service.got == [{"text": "the match"}]
