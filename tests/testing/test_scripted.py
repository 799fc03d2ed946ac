from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from harken.errors import NeedsAttention, RetryLater
from harken.source import Batch, PollSource
from harken.testing import START, Change, Fault, HandClock, VirtualClock, World, WorldSource, virtual
from harken.testing.scripted import View
from harken.testing.source import SourceContract

BEGIN = START - timedelta(hours=1)


class ScriptedService:
    page_size = 4
    since = BEGIN

    def __init__(self, view: View, *, conditional: bool = False) -> None:
        self.clock = HandClock()
        self.world = World(self.clock)
        self.source: PollSource = WorldSource(self.world, view, self.page_size, conditional=conditional)
        self.count = 0

    async def put(self, count: int, *, tied: bool = False) -> Sequence[str]:
        names = []
        for _ in range(count):
            self.count += 1
            names.append(f"i{self.count:03}")
            self.world.put(names[-1])
            self.clock.advance(0.0 if tied else 1.0)
        return names

    async def expire(self) -> bool:
        return False


class TestListing(SourceContract):
    @pytest.fixture
    def service(self) -> ScriptedService:
        return ScriptedService("listing")


class TestConditionalListing(SourceContract):
    @pytest.fixture
    def service(self) -> ScriptedService:
        return ScriptedService("listing", conditional=True)


class TestSince(SourceContract):
    @pytest.fixture
    def service(self) -> ScriptedService:
        return ScriptedService("since")


class TestLog(SourceContract):
    @pytest.fixture
    def service(self) -> ScriptedService:
        return ScriptedService("log")


def shown(batch: Batch) -> list[tuple[str, str | None]]:
    return [(event.subject, event.state) for event in batch.events]


async def poll(source: WorldSource, cursor: object = None) -> Batch:
    return await source.poll(cursor, BEGIN)


async def test_a_script_is_seen_as_time_passes() -> None:
    clock = HandClock()
    world = World(clock)
    at = clock.time()
    world.script(
        [
            Change(at=at + 1, id="a", state="A", stamp=at),
            Change(at=at + 2, id="a", state="B", stamp=at + 2),
            Change(at=at + 3, id="a", state=None),
        ]
    )
    seen = []
    for _ in range(4):
        seen.append(shown(await poll(WorldSource(world))))
        clock.advance(1)
    assert seen == [[], [("a", "A")], [("a", "B")], []]


async def test_a_late_item_is_listed_at_its_own_time() -> None:
    world = World(HandClock())
    world.put("a")
    world.put("b", late=60)
    assert shown(await poll(WorldSource(world))) == [("b", "new"), ("a", "new")]


async def test_an_undated_item_has_no_time() -> None:
    world = World(HandClock())
    world.put("a", undated=True)
    [event] = (await poll(WorldSource(world))).events
    assert event.occurred_at is None


async def test_there_and_back_is_three_entries_of_the_log() -> None:
    world = World(HandClock())
    for state in "ABA":
        world.put("x", state)
    assert shown(await poll(WorldSource(world, "log"))) == [("x", "A"), ("x", "B"), ("x", "A")]


async def test_a_known_tag_is_answered_with_unchanged() -> None:
    world = World(HandClock())
    world.put("a")
    source = WorldSource(world, conditional=True)
    first = await poll(source)
    second = await poll(source, first.cursor)
    assert (second.unchanged, second.events, second.cursor) == (True, (), first.cursor)


async def test_a_listing_that_moves_between_pages_is_not_complete() -> None:
    world = World(HandClock())
    for name in "abcd":
        world.put(name)
    source = WorldSource(world, page_size=2)
    first = await poll(source)
    world.remove("a")
    second = await poll(source, first.cursor)
    assert shown(first) + shown(second) == [("a", "new"), ("b", "new"), ("d", "new")]
    assert (second.more, second.complete, second.cursor) == (False, False, {})


async def test_a_capped_listing_shows_the_newest_and_says_that_it_is_not_complete() -> None:
    clock = HandClock()
    world = World(clock)
    for name in "abc":
        world.put(name)
        clock.advance(1)
    batch = await poll(WorldSource(world, cap=2))
    assert (shown(batch), batch.complete) == ([("b", "new"), ("c", "new")], False)


async def test_a_read_since_a_time_covers_it_until_now() -> None:
    world = World(HandClock())
    batch = await poll(WorldSource(world, "since"))
    assert batch.covered is not None
    assert (batch.covered.start, batch.covered.end) == (BEGIN, world.clock.now())


async def test_a_429_carries_its_retry_after() -> None:
    clock = HandClock()
    world = World(clock, faults=[Fault(begin=clock.time(), end=clock.time() + 5, kind="rate_limited", after=7)])
    with pytest.raises(RetryLater) as raised:
        await poll(WorldSource(world))
    assert (raised.value.reason, raised.value.after) == ("rate_limited", 7)
    clock.advance(5)
    assert shown(await poll(WorldSource(world))) == []


async def test_a_401_needs_attention() -> None:
    clock = HandClock()
    world = World(clock, faults=[Fault(begin=0, end=clock.time() + 5, kind="forbidden")])
    with pytest.raises(NeedsAttention):
        await poll(WorldSource(world))


@virtual
async def test_a_hanging_service_takes_virtual_time_only(clock: VirtualClock) -> None:
    world = World(clock, faults=[Fault(begin=0, end=clock.time() + 1, kind="timeout")])
    before = datetime.now(UTC)
    with pytest.raises(RetryLater):
        await poll(WorldSource(world))
    assert clock.monotonic() > 3600
    assert datetime.now(UTC) - before < timedelta(seconds=5)
