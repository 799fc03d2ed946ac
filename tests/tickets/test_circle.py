"""The whole circle on every platform: the engine reads a tracker, and the projector writes on its tickets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from harken.runs import Failed, Finished, RunOutcome
from harken.store.method_arguments_and_results import Settlement
from harken.task_cancellation import cancel_and_wait
from harken.testing import VirtualClock, virtual
from harken.tickets import Projector
from tests.tickets.projecting import accept
from tests.tickets.test_platforms import Board, Platform, count, everywhere, polled
from tests.tickets.tracked import Tracked

KEY = b"a key of this installation"


class AlwaysOurs:
    async def keep(self) -> bool:
        return True


def projector_of(it: Tracked) -> Projector:
    return Projector(it.store, lambda name: it.trackers, lambda: {it.settings.name: it.settings}, it.clock, KEY)


@asynccontextmanager
async def shown(clock: VirtualClock, path: Path, board: Board) -> AsyncIterator[Tracked]:
    """A tracker that is polled, and whose tickets show their runs."""
    async with polled(clock, path, board) as it:
        task = asyncio.create_task(projector_of(it).keep(AlwaysOurs()))
        try:
            yield it
        finally:
            await cancel_and_wait([task])


async def work(
    it: Tracked, outcome: RunOutcome, seconds: float = 65.0, during: Callable[[], object] = lambda: None
) -> int:
    """Execute all runs that are ready; each takes so long. `during` is called before they end."""
    claims = await it.store.claim("tests", 2000, 3600.0)
    await accept(it.store, *claims)
    await it.cycle(seconds)
    during()
    await it.store.settle([Settlement(id=one.id, token=one.token, outcome=outcome) for one in claims])
    return len(claims)


@everywhere
@virtual
async def test_a_ticket_is_run_once_per_wish_and_shows_it(
    clock: VirtualClock, tmp_path: Path, platform: Platform
) -> None:
    async with platform(clock) as board, shown(clock, tmp_path, board) as it:
        number = board.open("fix", "urgent")
        board.open("question")
        await it.cycle()
        seen: list[set[str]] = []
        assert await work(it, Failed(error="no"), during=lambda: seen.append(board.labels(number))) == 1
        assert seen == [{"fix", "urgent", "harken:in-progress"}]
        for _ in range(20):
            await it.cycle()
        assert board.labels(number) == {"fix", "urgent", "harken:failed"}
        assert await count(it) == {number: 1}
        board.unlabel(number, "harken:failed")
        await it.cycle()
        await it.cycle()
        assert await work(it, Finished()) == 1
        for _ in range(20):
            await it.cycle()
        assert board.labels(number) == {"fix", "urgent", "harken:done"}
        assert await count(it) == {number: 2}


@everywhere
@virtual
async def test_after_the_store_is_lost_nothing_that_was_done_runs_again(
    clock: VirtualClock, tmp_path: Path, platform: Platform
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    async with platform(clock) as board:
        async with shown(clock, first, board) as it:
            done = [board.open("fix") for _ in range(3)]
            await it.cycle()
            assert await work(it, Finished()) == 3
            await it.cycle()
            interrupted = board.open("fix")
            await it.cycle()
            await accept(it.store, *await it.store.claim("tests", 10, 3600.0))
            await it.cycle(30)
            assert "harken:in-progress" in board.labels(interrupted)
        async with polled(clock, second, board) as it:
            adopted = await projector_of(it).adopt(it.settings.name)
            assert (len(adopted.finished), len(adopted.interrupted)) == (3, 1)
            for _ in range(20):
                await it.cycle()
            assert await count(it) == {interrupted: 1}
            # a person still gets a second run by taking the label off
            board.unlabel(done[0], "harken:done")
            await it.cycle()
            await it.cycle()
            assert await count(it) == {interrupted: 1, done[0]: 1}
