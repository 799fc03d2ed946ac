"""The memory of tickets is rebuilt from what is on them, on fakes of the platforms."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from harken.errors import Misconfigured
from harken.testing import HandClock
from harken.tickets import Lifecycle, TicketMemory
from harken.tickets.write_pace import PaceLimits, WritePaces
from tests.tickets.projecting import KINDS, World, boards

PEOPLE = {"fix", "harken:later"}


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture(params=KINDS)
async def world(request: pytest.FixtureRequest, clock: HandClock) -> AsyncIterator[World]:
    async with boards(clock, request.param) as served:
        yield World(clock, *served)


async def test_nothing_that_was_done_runs_again_after_the_store_is_lost(world: World, clock: HandClock):
    ends = {"done": Lifecycle.DONE, "failed": Lifecycle.FAILED}
    numbers = {end: world.board.open(*PEOPLE) for end in ends}
    runs = {end: await world.claim(number, status=end) for end, number in numbers.items()}
    await world.settle(30)
    before = {end: await world.memory(number) for end, number in numbers.items()}
    world.store.stored.clear()
    world.restart()
    adopted = await world.projector.adopt("shop")
    assert len(adopted.finished) == 2
    assert adopted.interrupted == adopted.foreign == ()
    for end, number in numbers.items():
        memory = await world.memory(number)
        assert (memory.run, memory.status, memory.shown) == (runs[end], end, ends[end])
        assert memory.confirmed
        assert memory.comment == before[end].comment
    wrote = len(world.board.writes())
    await world.settle(600)
    assert len(world.board.writes()) == wrote


async def test_a_run_that_was_not_over_can_be_claimed_again(world: World):
    number = world.board.open(*PEOPLE)
    await world.claim(number, status="running")
    await world.settle(30)
    world.store.stored.clear()
    world.restart()
    adopted = await world.projector.adopt("shop")
    assert len(adopted.interrupted) == 1
    assert world.board.labels(number) == {*PEOPLE, "harken:pending"}
    assert (await world.memory(number)).run == ""


async def test_an_adoption_that_must_wait_says_for_how_long_and_goes_on_after_that(world: World, clock: HandClock):
    numbers = [world.board.open(*PEOPLE) for _ in range(3)]
    for number in numbers:
        await world.claim(number, status="running")
    await world.settle(30)
    world.store.stored.clear()
    limits = PaceLimits(per_minute=1)
    world.restart(WritePaces(clock, dict.fromkeys(KINDS, limits)))
    interrupted: list[str] = []
    for waits in (60.0, 60.0, None):
        adopted = await world.projector.adopt("shop")
        interrupted += adopted.interrupted
        assert adopted.waits == (None if waits is None else pytest.approx(waits, abs=2))
        assert adopted.reason.startswith("" if waits is None else "the limit of writes")
        clock.advance(60)
    assert len(interrupted) == len(set(interrupted)) == 3
    assert [world.board.labels(number) for number in numbers] == [{*PEOPLE, "harken:pending"}] * 3


async def test_without_the_key_labels_of_our_own_account_count_and_those_of_others_do_not(world: World):
    ours, theirs = world.board.open("fix"), world.board.open("fix", "harken:done")
    await world.claim(ours, status="done")
    await world.settle(30)
    world.store.stored.clear()
    world.restart()
    world.projector._key = b"another key"
    adopted = await world.projector.adopt("shop")
    assert (len(adopted.finished), len(adopted.foreign)) == (1, 1)
    assert (await world.memory(ours)).status == "done"
    assert await world.memory(theirs) is None


async def test_a_receipt_that_a_stranger_copied_proves_nothing(world: World):
    done, victim = world.board.open("fix"), world.board.open("fix", "harken:in-progress")
    await world.claim(done, status="done")
    await world.settle(30)
    world.board.comment(victim, world.board.comments(done)[0])
    world.store.stored.clear()
    world.restart()
    adopted = await world.projector.adopt("shop")
    assert len(adopted.foreign) == 1
    assert world.board.labels(victim) == {"fix", "harken:in-progress"}


async def test_an_old_receipt_that_a_stranger_kept_does_not_finish_a_newer_run(world: World, clock: HandClock):
    number = world.board.open("fix")
    await world.claim(number, status="done")
    await world.settle(30)
    kept = world.board.comments(number)[0]
    clock.advance(600)
    await world.claim(number, status="running")
    await world.settle(100)
    world.board.comment(number, kept)
    world.store.stored.clear()
    world.restart()
    adopted = await world.projector.adopt("shop")
    assert (len(adopted.finished), len(adopted.interrupted)) == (0, 1)


async def test_what_is_remembered_stays(world: World):
    number = world.board.open("fix")
    run = await world.claim(number, status="done")
    await world.settle(30)
    before = await world.memory(number)
    assert (await world.projector.adopt("shop")).finished == ()
    assert await world.memory(number) == before
    assert isinstance(before, TicketMemory)
    assert before.run == run


async def test_a_tracker_that_is_not_configured_is_refused(world: World):
    with pytest.raises(Misconfigured):
        await world.projector.adopt("nowhere")
