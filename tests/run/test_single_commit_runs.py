"""Runs that are executed before their commit: over with it, and otherwise as if nobody had tried."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from harken.errors import StoreUnavailable
from harken.event import Event
from harken.ingest.commit import Committer, RuleCache
from harken.match import Read
from harken.run.worker import RunEnd
from harken.runs import Run
from harken.store import Committed, Intent
from harken.testing.clock import VirtualClock, virtual
from harken.tracing import NO_TRACER, Tracer
from tests.run.test_bracket import Around, surround
from tests.run.world import World, do, running_world, steps

FILTER = {"id": "high", "action": "filter", "condition": "event.n > 0"}
SET = {"id": "sum", "action": "transform", "set": {"twice": "{{add .event.n .event.n}}", "by": "{{.trigger.name}}"}}
CHOOSE = {"id": "size", "if": "event.n > 5", "then": [{"id": "t", "action": "transform", "set": {"big": True}}]}
ALL = steps(FILTER, SET, CHOOSE, outputs={"twice": "{{.steps.sum.response.twice}}"})


def early_world(
    clock: VirtualClock, path: Path, main: Any, listens: Callable[[str], bool] = lambda type: False, **options: Any
) -> AbstractAsyncContextManager[World]:
    """A world in which nobody listens to the ends of runs."""
    return running_world(clock, path, main, listens=listens, **options)


async def send(world: World, data: Mapping[str, Any], key: str = "k") -> Committed:
    """An event comes the way that webhooks take; the worker knows the workflow already."""
    await world.worker._workflows.get("main@1")
    store: Any = world.store
    committer = Committer(store, RuleCache(store), world.worker, world.clock)
    now = world.clock.now()
    event = Event(subject=key, type="mail", data=data, key=key, occurred_at=now)
    return await committer.push("inbox", [event], Read(now=now))


async def run_of(world: World, committed: Committed) -> Run:
    """Its run, once it is over."""
    return await world.until(committed.verdicts[0][0].run_id)


def writes(world: World) -> list[str]:
    return [verb for verb, _ in world.store.calls if verb in ("commit", "journal", "settle")]


@virtual
async def test_a_run_without_waiting_steps_is_over_with_its_commit(clock: VirtualClock, tmp_path: Path) -> None:
    async with early_world(clock, tmp_path, ALL) as world:
        committed = await send(world, {"n": 7})
        run = await world.look(committed.verdicts[0][0].run_id)
        assert (run.status, run.output) == ("done", {"twice": 14})
        assert [(record.path, record.status, record.output) for record in run.journal] == [
            ("high", "ok", {"passed": True}),
            ("sum", "ok", {"twice": 14, "by": "main"}),
            ("size.then.t", "ok", {"big": True}),
            ("size", "ok", {"big": True}),
        ]
        assert writes(world) == ["commit"]


@virtual
async def test_its_journal_and_output_are_those_of_the_normal_way(clock: VirtualClock, tmp_path: Path) -> None:
    async with early_world(clock, tmp_path, ALL) as world:
        early = await run_of(world, await send(world, {"n": 7}))
        world.worker.accept((await world.push({"n": 7}, claim=world.worker.reserve(1))).claimed)
        normal = await world.until((await world.sqlite.runs()).items[0].id)
        assert normal.id != early.id
        assert (early.journal, early.output, early.attempt) == (normal.journal, normal.output, normal.attempt)


@virtual
async def test_it_is_counted_observed_and_told_once_it_is_written(clock: VirtualClock, tmp_path: Path) -> None:
    ends: list[RunEnd] = []
    settled: list[str] = []
    async with early_world(clock, tmp_path, steps(FILTER)) as world:
        world.worker.on_end, world.worker.on_settled = ends.append, settled.append
        first = await send(world, {"n": 1}, "a")
        second = await send(world, {"n": 0}, "b")
        ids = [committed.verdicts[0][0].run_id for committed in (first, second)]
        assert (world.worker.started, world.worker.done, world.worker.filtered) == (2, 1, 1)
        assert world.observed == ["started", "done", "started", "filtered"]
        assert [(end.claimed.id, end.claimed.events[0].key, end.outcome) for end in ends] == [
            (ids[0], "a", "done"),
            (ids[1], "b", "filtered"),
        ]
        assert settled == ids
        assert world.worker.in_flight == 0


@virtual
async def test_nothing_is_told_of_a_run_that_could_not_be_written(clock: VirtualClock, tmp_path: Path) -> None:
    async with early_world(clock, tmp_path, ALL) as world:
        world.store.failing["commit"] = [StoreUnavailable("the disk is full")]
        with pytest.raises(StoreUnavailable):
            await send(world, {"n": 7})
        assert (world.worker.started, world.observed) == (0, [])
        assert (await world.sqlite.runs()).items == []
        assert (await run_of(world, await send(world, {"n": 7}))).status == "done"


@virtual
async def test_an_event_that_comes_again_has_its_run(clock: VirtualClock, tmp_path: Path) -> None:
    async with early_world(clock, tmp_path, ALL) as world:
        first, again = await send(world, {"n": 7}), await send(world, {"n": 7})
        assert again.verdicts[0][0].outcome == "duplicate"
        assert again.verdicts[0][0].run_id == first.verdicts[0][0].run_id
        assert world.worker.done == 1


@virtual
async def test_a_step_that_fails_is_executed_again_by_the_normal_rules(clock: VirtualClock, tmp_path: Path) -> None:
    failing = steps(FILTER, {"id": "t", "action": "transform", "set": {"x": "{{.event.missing}}"}})
    async with early_world(clock, tmp_path, failing) as world:
        run = await run_of(world, await send(world, {"n": 7}))
        assert run.status == "dead"
        assert "missing" in run.error
        assert [record.status for record in run.journal] == ["ok", "failed"]
        assert (world.worker.started, world.worker.dead, world.worker.done) == (1, 1, 0)


@virtual
async def test_a_failure_that_a_step_accepts_is_no_reason_to_wait(clock: VirtualClock, tmp_path: Path) -> None:
    lenient = {"id": "t", "action": "transform", "set": {"x": "{{.event.missing}}"}, "on_error": "ignore"}
    async with early_world(clock, tmp_path, steps(lenient)) as world:
        run = await run_of(world, await send(world, {"n": 7}))
        assert (run.status, run.journal[0].status, writes(world)) == ("done", "failed", ["commit"])


@virtual
async def test_what_a_run_emits_is_written_with_its_journal(clock: VirtualClock, tmp_path: Path) -> None:
    async with early_world(clock, tmp_path, steps({"action": "emit", "event": "seen", "data": {"n": 1}})) as world:
        run = await run_of(world, await send(world, {"n": 7}))
        assert (run.status, len(world.emitted)) == ("done", 1)
        assert world.emitted[0].key.startswith(run.id)


@virtual
async def test_a_run_that_reads_its_own_id_has_the_one_it_is_stored_with(clock: VirtualClock, tmp_path: Path) -> None:
    async with early_world(clock, tmp_path, steps(outputs={"id": "{{run.id}}"})) as world:
        run = await run_of(world, await send(world, {"n": 7}))
        assert run.output == {"id": run.id}


@virtual
async def test_whoever_listens_to_ends_is_told(clock: VirtualClock, tmp_path: Path) -> None:
    told: list[str] = []

    def note(events: Any) -> None:
        told.extend(event.type for event in events)

    async with early_world(clock, tmp_path, ALL, lambda type: type == "run.done", internal=note) as world:
        await run_of(world, await send(world, {"n": 7}))
        await asyncio.sleep(1)
        assert told == ["run.done"]


@virtual
async def test_the_steps_around_a_run_are_executed(clock: VirtualClock, tmp_path: Path) -> None:
    async with early_world(clock, tmp_path, steps(SET)) as world:
        assert writes(world) == []
        await run_of(world, await send(world, {"n": 7}, "a"))
        surround(world, Around())
        run = await run_of(world, await send(world, {"n": 7}, "b"))
        assert [record.path for record in run.journal] == ["begin", "sum", "end"]


@virtual
async def test_runs_of_a_paused_trigger_wait_and_are_executed_when_it_goes_on(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with early_world(clock, tmp_path, ALL) as world:
        await world.sqlite.pause("main", "a person")
        committed = await send(world, {"n": 7})
        run_id = committed.verdicts[0][0].run_id
        assert (await world.look(run_id)).status == "held"
        await world.sqlite.resume("main")
        world.worker.nudge()
        assert (await world.until(run_id)).output == {"twice": 14}


@virtual
async def test_our_own_secrets_are_removed_before_anything_is_written(clock: VirtualClock, tmp_path: Path) -> None:
    def redact(value: Any) -> Any:
        return {name: "***" for name in value} if isinstance(value, dict) else value

    async with early_world(clock, tmp_path, ALL) as world:
        world.worker.use(replace(world.worker._environment, redact=redact))
        run = await run_of(world, await send(world, {"n": 1}))
        assert run.output == {"twice": "***"}
        assert run.journal[1].output == {"twice": "***", "by": "***"}
        assert writes(world) == ["commit"]


@virtual
async def test_results_that_are_long_or_cannot_be_stored_do_not_spoil_the_commit(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with early_world(clock, tmp_path, steps(outputs={"text": "{{.event.text}}"})) as world:
        long = await run_of(world, await send(world, {"text": "x" * 200_000}, "long"))
        assert (long.status, len(long.output["text"])) == ("done", 200_000)
        assert "settle" in writes(world)


@virtual
async def test_a_worker_that_stops_or_is_traced_leaves_it_to_the_normal_way(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with early_world(clock, tmp_path, steps(SET)) as world:
        state = world.opened.triggers["main"]
        event = Event(subject="s", type="t", data={"n": 1}, key="s")
        intent = Intent(trigger=state.uid, epoch=1, run_key="s", workflow_rev="main@1", due_at=clock.now())
        assert world.worker.find_end("inbox", "main", event, intent) is None
        await world.worker._workflows.get("main@1")
        assert world.worker.find_end("inbox", "main", event, intent) is not None
        world.worker.tracer = Tracer(clock, Random(1), lambda span: None)
        assert world.worker.find_end("inbox", "main", event, intent) is None
        world.worker.tracer = NO_TRACER
        await world.worker.stop(0)
        assert world.worker.find_end("inbox", "main", event, intent) is None


@virtual
async def test_a_run_that_waits_for_something_is_not_executed_early(clock: VirtualClock, tmp_path: Path) -> None:
    async with early_world(clock, tmp_path, steps(SET, do("a"))) as world:
        world.store.failing["commit"] = [StoreUnavailable("the disk is full")]
        with pytest.raises(StoreUnavailable):
            await send(world, {"n": 7})
        await asyncio.sleep(5)
        assert world.service.got == []
        assert (await run_of(world, await send(world, {"n": 7}))).status == "done"
        assert len(world.service.got) == 1
