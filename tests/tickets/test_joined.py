"""What is read and what is written, together: the source of a tracker and the projector on one store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from harken.runs import Cancelled, Dead, Failed, Finished, RunOutcome
from harken.store.method_arguments_and_results import Settlement
from harken.task_cancellation import cancel_and_wait
from harken.testing import VirtualClock, virtual
from harken.testing.fakes.github import Issue
from harken.tickets.projector import Projector
from tests.soak import longer
from tests.tickets.projecting import accept
from tests.tickets.test_histories import STEPS, History
from tests.tickets.test_tracker_feed_source import cycles, id_of, ran
from tests.tickets.tracked import Tracked, github, settings

DONE = Finished()


class OurLease:
    async def keep(self) -> bool:
        return True


class Joined:
    """A tracker whose labels the real projector writes. `work` stands in for workers."""

    def __init__(self, it: Tracked) -> None:
        self.it = it
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        await self.it.start()
        trackers, given = self.it.trackers, {self.it.settings.name: self.it.settings}
        projector = Projector(self.it.store, lambda name: trackers, lambda: given, self.it.clock, b"k" * 32)
        self._tasks = {asyncio.get_running_loop().create_task(projector.keep(OurLease()))}

    async def stop(self) -> None:
        await cancel_and_wait(self._tasks)
        await self.it.stop()

    async def crash(self) -> None:
        await cancel_and_wait(self._tasks)
        await self.it.crash()

    async def begin(self) -> None:
        claims = await self.it.store.claim("tests", 2000, 36_000.0)
        await accept(self.it.store, *claims)
        self.it.claims += claims

    async def end(self, outcome: RunOutcome = DONE) -> None:
        ended, self.it.claims = self.it.claims, []
        await self.it.store.settle([Settlement(id=one.id, token=one.token, outcome=outcome) for one in ended])


@asynccontextmanager
async def joined(clock: VirtualClock, path: Path, *, webhook: bool = False) -> AsyncIterator[Joined]:
    async with github(clock, path, settings(webhook=webhook)) as it:
        both = Joined(it)
        await both.start()
        await it.cycle(5)
        yield both
        await both.stop()


def lifecycle_of(issue: Issue) -> list[str]:
    return [label for label in issue.labels if label.startswith("harken:")]


@virtual
async def test_a_ticket_lives_through_several_runs_one_for_each_wish(clock: VirtualClock, tmp_path: Path) -> None:
    async with joined(clock, tmp_path) as both:
        it = both.it
        issue = it.hub.open("fix")
        for wanted in (1, 2, 3):
            await cycles(it, 2)
            await both.begin()
            await cycles(it, 2)
            assert lifecycle_of(issue) == ["harken:in-progress"]
            await both.end(Dead(error="no") if wanted == 2 else DONE)
            await cycles(it, 20)
            assert lifecycle_of(issue) == ["harken:failed" if wanted == 2 else "harken:done"]
            assert await ran(it) == {"1": wanted}
            it.hub.unlabel(issue, lifecycle_of(issue)[0])


@virtual
async def test_runs_that_end_before_anything_is_shown_of_them_are_one_for_each_wish_too(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with joined(clock, tmp_path) as both:
        it = both.it
        issue, by_hand = it.hub.open("fix"), it.hub.open("fix", "harken:pending")
        for wanted in (1, 2, 3):
            while len(it.claims) < 2:
                await clock.sleep(0.5)
                await both.begin()
            await both.end()
            await cycles(it, 20)
            assert await ran(it) == {"1": wanted, "2": wanted}
            assert lifecycle_of(issue) == lifecycle_of(by_hand) == ["harken:done"]
            it.hub.unlabel(issue, "harken:done")
            it.hub.unlabel(by_hand, "harken:done")
            it.hub.label(by_hand, "harken:pending")


@virtual
async def test_a_withdrawn_ticket_is_told_and_can_be_wished_for_again(clock: VirtualClock, tmp_path: Path) -> None:
    async with joined(clock, tmp_path) as both:
        it = both.it
        issue = it.hub.open("fix")
        await cycles(it, 2)
        await both.begin()
        await cycles(it, 2)
        it.hub.unlabel(issue, "fix")
        await it.cycle()
        assert (await it.states(id_of(issue)))[-1] == "withdrawn:label"
        await both.end(Cancelled())
        await cycles(it, 3)
        assert lifecycle_of(issue) == []
        assert await ran(it) == {"1": 1}
        it.hub.label(issue, "fix")
        await cycles(it, 2)
        assert await ran(it) == {"1": 2}


@virtual
async def test_a_run_that_a_person_cancelled_is_not_started_again_by_what_it_leaves(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with joined(clock, tmp_path) as both:
        it = both.it
        issue = it.hub.open("fix", "harken:pending")
        await cycles(it, 2)
        await both.begin()
        await both.end(Cancelled())
        await cycles(it, 20)
        it.hub.comment(issue, "hm")
        await cycles(it, 20)
        assert await ran(it) == {"1": 1}
        assert lifecycle_of(issue) == []
        it.hub.label(issue, "harken:pending")
        await cycles(it, 2)
        assert await ran(it) == {"1": 2}


class JoinedHistory(History):
    """The same things happen, and the labels are written by the projector, from copies that are behind."""

    def __init__(self, both: Joined, seed: int) -> None:
        super().__init__(both.it, seed)
        self.both = both
        self._outcomes = Random(seed + 1)

    async def begin(self) -> None:
        await self.both.begin()

    async def end(self) -> None:
        await self.both.end(self._outcomes.choice((DONE, Dead(error="no"), Failed(error="no"))))
        self._tell_of_all()

    async def wait(self) -> None:
        await super().wait()
        self._tell_of_all()

    async def restart(self) -> None:
        await (self.both.crash if self._outcomes.random() < 0.5 else self.both.stop)()
        await self.both.start()

    def _tell_of_all(self) -> None:
        self.sent = self.sent[-40:]
        for issue in self.issues:
            self.tell_of(issue)


@pytest.mark.parametrize("seed", range(longer(__file__, 3)))
@virtual
async def test_a_wish_is_one_run_and_every_ticket_shows_its_end(clock: VirtualClock, tmp_path: Path, seed: int) -> None:
    async with joined(clock, tmp_path, webhook=True) as both:
        it, history = both.it, JoinedHistory(both, seed)
        for _ in range(STEPS):
            await history.step()
        it.hub.answers.clear()
        await it.cycle(1000)
        await history.begin()
        await it.cycle(200)
        await history.end()
        for notice in history.sent:
            await it.tell(notice)
        await it.cycle(2000)
        assert await ran(it) == {str(issue.number): 1 for issue in history.issues}
        for issue in history.issues:
            assert lifecycle_of(issue) in (["harken:done"], ["harken:failed"])
