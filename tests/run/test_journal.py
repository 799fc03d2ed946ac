"""The journal of a run: what is written before which effect, and what is kept when a write fails."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harken.errors import LeaseLost, StoreUnavailable
from harken.event import Event
from harken.feed import INTERNAL
from harken.run.journal import InternalFeed, Journal, Unwritten, append_records, park
from harken.run.services_given_to_steps import unchanged
from harken.runs import Claimed, Park, StepRecord
from harken.store import Commit, NewRun, Stale
from harken.testing.clock import START, VirtualClock, virtual
from tests.run.world import World, do, running_world, steps

CLAIMED = Claimed(
    id="r1", token=7, trigger="main", workflow_rev="main@1", attempt=1, max_attempts=3, events=(), created_at=START
)
SET = {"action": "transform", "set": {"a": 1}}


class Pages:
    """A store that keeps what is journaled; `answers` are the errors and replies to come."""

    def __init__(self) -> None:
        self.written: list[list[str]] = []
        self.caused: list[Sequence[Commit]] = []
        self.parked: list[tuple[str, str | None]] = []
        self.answers: list[Any] = []
        self.seconds = 0.0

    async def journal(
        self,
        run_id: str,
        token: int,
        records: Sequence[StepRecord],
        caused: Sequence[Commit] = (),
        start: Sequence[NewRun] = (),
    ) -> Stale | None:
        await asyncio.sleep(self.seconds)
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, BaseException):
            raise answer
        if answer is None:
            self.written.append([record.path for record in records])
            self.caused.append(caused)
        return answer

    async def park(self, run_id: str, token: int, park: Park, record: StepRecord | None = None) -> None:
        self.parked.append((run_id, record.path if record else None))


class Rules:
    """The internal feed's rules at a revision that moves on when they are learnt."""

    def __init__(self) -> None:
        self.revision = 1
        self.matched: list[int] = []

    def match(self, events: Sequence[Event]) -> Commit:
        self.matched.append(self.revision)
        return Commit(feed=INTERNAL, revision=self.revision)

    async def learn(self) -> None:
        self.revision += 1


def record(path: str, **more: Any) -> StepRecord:
    return StepRecord(path=path, action="x", status="ok", **more)


def event(key: str = "e", **data: Any) -> Event:
    return Event(subject=key, type="t", key=key, data=data, occurred_at=START)


def feed(clock: VirtualClock, rules: Rules | None = None, **more: Any) -> InternalFeed:
    rules = rules or Rules()
    return InternalFeed(rules.match, rules.learn, clock, **more)


def begin(clock: VirtualClock, redact: Any = unchanged) -> tuple[Journal, Pages]:
    pages: Any = Pages()
    return Journal(CLAIMED, pages, clock, feed(clock), redact), pages


def stored_at_effects(world: World) -> dict[str, list[str]]:
    """The journal as the store has it at the moment of each effect, by the effect's path."""
    stored: dict[str, list[str]] = {}

    async def look(key: str) -> None:
        run_id, _, path = key.partition(":")
        stored[path] = [record.path for record in (await world.look(run_id)).journal]

    world.service.before = look
    return stored


def hide(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value).replace(b"token", b"***"))


@virtual
async def test_at_each_effect_the_store_has_the_records_of_all_steps_before(
    clock: VirtualClock, tmp_path: Path
) -> None:
    given = steps({**SET, "id": "x"}, do("a"), {**SET, "id": "y"}, do("b"), do("c"))
    async with running_world(clock, tmp_path, given) as world:
        stored = stored_at_effects(world)
        await world.end()
        assert stored == {"a": ["x"], "b": ["x", "a", "y"], "c": ["x", "a", "y", "b"]}


@virtual
async def test_in_a_branch_too_the_store_has_the_record_before_the_next_effect(
    clock: VirtualClock, tmp_path: Path
) -> None:
    branches = {"one": [do("a"), do("b")], "two": [do("a"), do("b")]}
    async with running_world(clock, tmp_path, steps({"action": "parallel", "id": "p", "branches": branches})) as world:
        stored = stored_at_effects(world)
        await world.end()
        assert {"p.one.a"} <= set(stored["p.one.b"])
        assert {"p.two.a"} <= set(stored["p.two.b"])


@pytest.mark.parametrize(
    ("kept", "pure", "written"),
    [
        ([], False, []),
        (["pure"], True, []),
        (["pure", "pure"], False, [["0", "1"]]),
        (["effect"], True, [["0"]]),
        (["pure", "effect", "pure"], True, [["0", "1", "2"]]),
    ],
    ids=["nothing to write", "pure waits", "before an effect", "after an effect", "all in one write"],
)
@virtual
async def test_what_is_written_before_a_step(
    clock: VirtualClock, kept: list[str], pure: bool, written: list[list[str]]
) -> None:
    journal, pages = begin(clock)
    for number, kind in enumerate(kept):
        journal.add(record(str(number)), pure=kind == "pure")
    await journal.prepare_step(pure=pure)
    assert pages.written == written


@virtual
async def test_a_record_is_written_once(clock: VirtualClock) -> None:
    journal, pages = begin(clock)
    journal.add(record("a"), pure=False)
    await journal.prepare_step(pure=False)
    await journal.prepare_step(pure=False)
    assert (pages.written, journal.take_unwritten().records) == ([["a"]], [])


@pytest.mark.parametrize("error", [LeaseLost("another worker has it"), asyncio.CancelledError()])
@virtual
async def test_what_could_not_be_written_is_kept_in_order(clock: VirtualClock, error: BaseException) -> None:
    journal, pages = begin(clock)
    pages.answers = [error]
    journal.add(record("a"), pure=False, caused=[event()])
    with pytest.raises(type(error)):
        await journal.prepare_step(pure=False)
    journal.add(record("b"), pure=True)
    unwritten = journal.take_unwritten()
    assert ([one.path for one in unwritten.records], len(unwritten.events)) == (["a", "b"], 1)


@virtual
async def test_a_branch_waits_for_the_write_that_another_has_begun(clock: VirtualClock) -> None:
    journal, pages = begin(clock)
    pages.seconds = 5
    journal.add(record("a"), pure=False)
    first = asyncio.create_task(journal.prepare_step(pure=False))
    await asyncio.sleep(1)
    await journal.prepare_step(pure=False)
    assert (pages.written, first.done()) == ([["a"]], True)


@virtual
async def test_secrets_are_removed_from_what_is_kept_and_from_what_later_steps_see(clock: VirtualClock) -> None:
    journal, _ = begin(clock, redact=hide)
    given = record("a", input={"key": "token"}, output="token", error="a token")
    kept = journal.add(given, pure=True, caused=[event(a="token")])
    (caused,) = journal.take_unwritten().events
    assert (kept.output, kept.error, journal.latest["a"], caused.data) == ("***", "a ***", kept, {"a": "***"})
    assert kept.input == {"key": "***"}


@virtual
async def test_records_of_earlier_tries_are_known_and_replaced_by_newer_ones(clock: VirtualClock) -> None:
    pages: Any = Pages()
    earlier = Claimed(
        **{name: getattr(CLAIMED, name) for name in CLAIMED.__struct_fields__} | {"journal": (record("a"),)}
    )
    journal = Journal(earlier, pages, clock, feed(clock))
    assert journal.latest["a"].attempt == 1
    journal.add(record("a", attempt=2), pure=True)
    assert journal.latest["a"].attempt == 2


@virtual
async def test_events_are_matched_again_until_the_store_accepts_the_rules(clock: VirtualClock) -> None:
    pages: Any = Pages()
    pages.answers = [Stale(revision=2), Stale(revision=3), Stale(revision=4)]
    rules, began = Rules(), clock.monotonic()
    await append_records(pages, clock, CLAIMED, feed(clock, rules), [record("a")], [event()])
    assert (rules.matched, pages.written) == ([1, 2, 3, 4], [["a"]])
    assert clock.monotonic() - began == pytest.approx(0.0 + 0.01 + 0.02)


@virtual
async def test_a_store_that_is_away_is_waited_for(clock: VirtualClock) -> None:
    pages: Any = Pages()
    pages.answers = [StoreUnavailable("away"), StoreUnavailable("away")]
    await append_records(pages, clock, CLAIMED, feed(clock), [record("a")])
    assert pages.written == [["a"]]


@pytest.mark.parametrize(("events", "heard"), [([], 0), ([event()], 1)])
@virtual
async def test_events_may_have_made_runs_ready(clock: VirtualClock, events: list[Event], heard: int) -> None:
    calls: list[None] = []
    pages: Any = Pages()
    internal = feed(clock, on_started=lambda: calls.append(None))
    await append_records(pages, clock, CLAIMED, internal, [record("a")], events)
    assert len(calls) == heard


@pytest.mark.parametrize(
    ("records", "events", "before", "last"),
    [
        ([], [], [], None),
        (["a"], [], [], "a"),
        (["a", "b"], [], [["a"]], "b"),
        (["a", "b"], [event()], [["a", "b"]], None),
    ],
    ids=["nothing", "one goes with the parking", "the others go before", "events go with their records"],
)
@virtual
async def test_what_is_written_with_a_parking(
    clock: VirtualClock, records: list[str], events: list[Event], before: list[list[str]], last: str | None
) -> None:
    pages: Any = Pages()
    unwritten = Unwritten([record(path) for path in records], events)
    await park(pages, clock, CLAIMED, feed(clock), Park(), unwritten)
    assert (pages.written, pages.parked) == (before, [("r1", last)])


@virtual
async def test_what_another_branch_adds_while_a_write_fails_is_kept_behind_it(clock: VirtualClock) -> None:
    journal, pages = begin(clock)
    pages.seconds, pages.answers = 1.0, [LeaseLost("another worker has it")]
    journal.add(record("a"), pure=False)
    writing = asyncio.create_task(journal.flush_effects())
    await asyncio.sleep(0.5)
    journal.add(record("b"), pure=False)
    with pytest.raises(LeaseLost):
        await writing
    assert [one.path for one in journal.take_unwritten().records] == ["a", "b"]
