"""The suite for workflows on an issue tracker, run through the whole engine. Each tracker subclasses it with its fake:

class TestGitHub(TrackerContract):
    kind, main, triage, life, secret = "github", MAIN, TRIAGE, LIFE, TOKEN

    def watched(self, clock: VirtualClock, skew: float = 0.0) -> Tracker: ...
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from harken.testing import VirtualClock, virtual
from harken.testing.fakes.server import FakeServer
from tests.services.whole import fired, running, write
from tests.timings import LONG_NAPS


@dataclass(frozen=True, kw_only=True)
class Watched:
    """A fake, and how to change it. `key` is the name of an item in runs."""

    fake: FakeServer
    open: Callable[..., Any]
    key: Callable[[Any], str]
    limit: Callable[[float], None]
    revoke: Callable[[], object]


@dataclass(frozen=True, kw_only=True)
class Tracker(Watched):
    """Issues in two projects. `moves` change the state: away, back and away again."""

    open_elsewhere: Callable[..., Any]
    label: Callable[[Any, str], None]
    unlabel: Callable[[Any, str], None]
    comment: Callable[[Any], object]
    moves: tuple[Callable[[Any], None], ...]
    comments: Callable[[Any], int]
    labels: Callable[[Any], Container[str]]


class LimitContract:
    """Subclass it with a configuration, a workflow that runs for whatever is opened, and what it watches.

    `mark` ends the name of an item in the key of an event; `waits`: seconds without requests after a limit of 700 s.
    """

    kind: ClassVar[str]
    main: ClassVar[str]
    life: ClassVar[str]
    secret: ClassVar[str]
    mark: ClassVar[str] = "@"
    waits: ClassVar[float] = 700.0

    def watched(self, clock: VirtualClock) -> Watched:
        raise NotImplementedError

    @virtual
    async def test_a_limit_is_waited_for_and_a_revoked_token_pauses_and_says_why(
        self, clock: VirtualClock, tmp_path: Path
    ) -> None:
        it = self.watched(clock)
        async with it.fake.serve() as url:
            write(tmp_path, self.main.format(url=url), life=self.life)
            async with running(tmp_path, clock, timings=LONG_NAPS) as app:
                await clock.sleep(100)
                it.limit(700)
                limited_at = clock.time()
                made = it.open()
                await clock.sleep(1500)
                asked = [sent.at - limited_at for sent in it.fake.seen if sent.at > limited_at]
                assert await fired(app, self.mark) == {it.key(made): 1}
                assert sum(after < self.waits for after in asked) == 1, "the one that met the limit"
                it.revoke()
                for _ in range(60):
                    await clock.sleep(10)
                    (feed,) = [state for state in await app.store.feeds() if state.name.startswith(f"{self.kind}-")]
                    if feed.health.state == "paused":
                        break
                asked_before = len(it.fake.seen)
                # it looks again after 15 minutes
                await clock.sleep(600)
            assert len(it.fake.seen) == asked_before
            assert feed.health.state == "paused"
            assert f"harken integrations {self.kind} configure" in feed.health.message
            assert self.secret not in feed.health.message


class TrackerContract(LimitContract):
    """Subclass it with a workflow for bugs, which answers and marks them as triaged, and one for every state."""

    triage: ClassVar[str]
    bug: ClassVar[str] = "bug"
    many: ClassVar[int] = 250

    def watched(self, clock: VirtualClock, skew: float = 0.0) -> Tracker:
        raise NotImplementedError

    @virtual
    async def test_every_bug_runs_once_over_many_polls_comments_and_restarts(
        self, clock: VirtualClock, tmp_path: Path
    ) -> None:
        it, bug = self.watched(clock), self.bug
        async with it.fake.serve() as url:
            write(tmp_path, self.main.format(url=url), triage=self.triage)
            before, old = it.open(bug, age=3600), it.open(age=86_400)
            async with running(tmp_path, clock, timings=LONG_NAPS) as app:
                await clock.sleep(120)
                assert await fired(app) == {}
                new, late = it.open(bug), it.open_elsewhere(bug, late=300)
                await clock.sleep(600)
                it.label(old, bug)
                it.comment(before)
                it.comment(new)
                await clock.sleep(600)
                it.unlabel(new, bug)
                await clock.sleep(60)
                it.label(new, bug)
                await clock.sleep(600)
            asleep = it.open_elsewhere(bug)
            await clock.sleep(9 * 3600)
            async with running(tmp_path, clock, timings=LONG_NAPS) as app:
                await clock.sleep(900)
                it.comment(old)
                await clock.sleep(900)
                ran = await fired(app)
                explained = await app.operator.call("triggers.explain", name="triage", key=it.key(old))
            assert ran == {it.key(issue): 1 for issue in (old, new, late, asleep)}
            assert explained["outcome"] == "fired"
            assert [it.comments(issue) for issue in (before, old, new, late)] == [1, 2, 2, 1]
            assert "triaged" in it.labels(late)
            assert "triaged" not in it.labels(before)

    @virtual
    async def test_hundreds_at_once_all_run(self, clock: VirtualClock, tmp_path: Path) -> None:
        it = self.watched(clock)
        async with it.fake.serve() as url:
            write(tmp_path, self.main.format(url=url), life=self.life)
            async with running(tmp_path, clock, timings=LONG_NAPS) as app:
                await clock.sleep(90)
                for _ in range(self.many):
                    it.open()
                await clock.sleep(900)
                ran = await fired(app)
            assert (len(ran), set(ran.values())) == (self.many, {1})

    @pytest.mark.parametrize("skew", [-90.0, 90.0])
    @virtual
    async def test_their_clock_may_be_wrong_and_states_may_come_back(
        self, clock: VirtualClock, tmp_path: Path, skew: float
    ) -> None:
        it = self.watched(clock, skew)
        async with it.fake.serve() as url:
            write(tmp_path, self.main.format(url=url), life=self.life)
            old = it.open(age=86_400)
            async with running(tmp_path, clock, timings=LONG_NAPS) as app:
                await clock.sleep(300)
                for move in it.moves:
                    move(old)
                    await clock.sleep(45)
                made = [it.open() for _ in range(5)]
                await clock.sleep(300)
                ran = await fired(app)
            assert ran == {it.key(old): 3} | {it.key(issue): 1 for issue in made}

    @virtual
    async def test_the_first_items_of_a_service_whose_clock_is_behind_run_and_older_ones_do_not(
        self, clock: VirtualClock, tmp_path: Path
    ) -> None:
        it = self.watched(clock, skew=-300.0)
        async with it.fake.serve() as url:
            write(tmp_path, self.main.format(url=url), life=self.life)
            it.open(age=86_400)
            it.open(age=30)
            async with running(tmp_path, clock, timings=LONG_NAPS) as app:
                made = [it.open()]
                for _ in range(8):
                    await clock.sleep(45)
                    made.append(it.open())
                await clock.sleep(300)
                ran = await fired(app)
            assert ran == {it.key(issue): 1 for issue in made}


class ConditionalTrackerContract(TrackerContract):
    """For a tracker that answers 304 where nothing has changed."""

    @virtual
    async def test_a_quiet_night_costs_next_to_nothing(self, clock: VirtualClock, tmp_path: Path) -> None:
        it = self.watched(clock)
        async with it.fake.serve() as url:
            write(tmp_path, self.main.format(url=url), life=self.life)
            async with running(tmp_path, clock, timings=LONG_NAPS):
                await clock.sleep(60)
                it.open()
                await clock.sleep(3 * 3600)
            answers = Counter(seen.status for seen in it.fake.seen)
            assert answers[304] > 300
            assert answers[200] < 15
