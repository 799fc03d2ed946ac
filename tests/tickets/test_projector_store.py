"""The projector over a real store: what its runs do is shown, also when the process ends in between."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from harken.backends.sqlite import SqliteStore
from harken.runs import Cancelled, Failed, Finished, Park
from harken.testing import HandClock
from harken.testing.store.world import Given, definitions, trigger
from tests.tickets.projecting import World, accept, boards


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
async def given(clock: HandClock, tmp_path: Path) -> AsyncIterator[Given]:
    store = SqliteStore.at(str(tmp_path / "harken.db"), clock)
    opened = await store.open(definitions(triggers=[trigger("shop/web")]))
    lease = await store.lease(0, "a", 30.0)
    assert lease is not None
    yield Given(store, clock, opened, lease)
    await store.close()


@pytest.fixture
async def world(clock: HandClock, given: Given) -> AsyncIterator[World]:
    async with boards(clock, "github") as served:
        world = World(clock, *served)
        world.store = given.store
        world.restart()
        yield world


async def fires(world: World, given: Given, number: str) -> str:
    ticket = await world.ticket(number)
    await given.renew()
    entry = given.entry(ticket.id, given.intent(ticket.id, trigger="shop/web", watched=True, slot=ticket.id))
    event = replace(entry.event, data={"id": ticket.id, "label": "fix", "pipeline": "fix-bug"})
    committed = await given.commit(replace(entry, event=event))
    return committed.verdicts[0][0].run_id


async def test_every_way_a_run_can_go_is_shown(world: World, given: Given, clock: HandClock):
    ends = {"done": Finished(), "failed": Failed(error="the tests fail"), "": Cancelled(reason="withdrawn")}
    for label, outcome in ends.items():
        number = world.board.open("fix", "urgent")
        run = await fires(world, given, number)
        await world.settle(10)
        assert world.lifecycle(number) == {"harken:enqueued"}
        claim = await given.claims_one()
        await world.settle(10)
        assert world.lifecycle(number) == {"harken:enqueued"}, "it looks at its ticket"
        await accept(given.store, claim)
        await world.settle(10)
        assert world.lifecycle(number) == {"harken:in-progress"}
        await given.store.park(claim.id, claim.token, Park(waiting_for="approval", prompt="Go on?"))
        await world.settle(10)
        assert world.lifecycle(number) == {"harken:waiting"}
        assert await given.store.answer(run, {"approved": True})
        claim = await given.claims_one()
        await world.settle(10)
        assert world.lifecycle(number) == {"harken:in-progress"}
        world.restart()
        await given.settle(claim, outcome)
        await world.settle(10)
        assert world.board.labels(number) == {"fix", "urgent", *([f"harken:{label}"] if label else [])}
        assert (await world.memory(number)).run == run
    assert await given.store.moved_runs() == []


async def test_a_run_whose_worker_died_is_enqueued_again(world: World, given: Given, clock: HandClock):
    number = world.board.open("fix")
    await fires(world, given, number)
    await given.claims_one()
    await world.settle(30)
    clock.advance(120)
    assert await given.store.requeue_expired() == 1
    await world.settle(10)
    assert world.lifecycle(number) == {"harken:enqueued"}


async def test_a_failed_run_that_is_tried_again_is_shown_again(world: World, given: Given):
    number = world.board.open("fix")
    run = await fires(world, given, number)
    for _ in range(2):
        claim = await given.claims_one()
        await given.settle(claim, Failed(error="no"))
        await world.settle(20)
        assert world.lifecycle(number) == {"harken:failed"}
        assert await given.store.retry(run)
        await world.settle(20)
        assert world.lifecycle(number) == {"harken:enqueued"}
    sticky, told = world.board.comments(number)
    assert "harken-receipt" in sticky
    assert told.startswith("@leo this run failed")
