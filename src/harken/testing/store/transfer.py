"""What a copy of a store keeps: everything that it tells, and the way in which it goes on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
import pytest

from harken.errors import Refused, StoreUnavailable
from harken.runs import Claimed
from harken.store import HOUSE, GatherInto
from harken.store.export_rows import KINDS, Chunk, MovedRun
from harken.store.transfer import Counts, Moving, refuse_marked
from harken.testing.clock import HandClock
from harken.testing.store.transfer_world import BEFORE, WORLD, Left, Place, fill, told
from harken.testing.store.world import LEASE_SECONDS, Given

__all__ = ["MovingContract", "MovingWorld", "alike", "move"]

HOUR, DAY = 3600.0, 86_400.0


def alike(found: dict[str, Any]) -> str:
    """What a store tells, with runs by their order: they have other ids where only the copy is encrypted."""
    text = repr(found)
    for number, run in enumerate(found["runs"]):
        text = text.replace(run.id, f"run {number}")
    return text


async def move(origin: Place, goal: Place) -> None:
    source, target = origin.moving(), goal.moving()
    try:
        await target.take(source.rows(), source.place)
    finally:
        await source.close()
        await target.close()


class Copied(Given):
    """A store that was filled and copied, as the copy goes on with it."""

    left: Left
    before: dict[str, Any]
    tokens: Sequence[int]
    former: str

    async def claims_of(self, run_id: str) -> Claimed:
        """Claim all that is due, and give this one."""
        claims = await self.claims(100)
        return next(claim for claim in claims if claim.id == run_id)


class MovingWorld:
    """Subclass a contract with the fixtures `origin` and `goal`: two empty places, made with `clock`."""

    @pytest.fixture
    def clock(self) -> HandClock:
        return HandClock()

    @pytest.fixture
    async def given(self, origin: Place, clock: HandClock) -> AsyncIterator[Copied]:
        """The store to be copied, with a bit of everything."""
        store = await origin.open()
        former = (await store.open(BEFORE)).triggers["former"].uid
        opened = await store.open(WORLD)
        leases = [lease for shard in (0, HOUSE, 3) if (lease := await store.lease(shard, "a", LEASE_SECONDS))]
        given = Copied(store, clock, opened, leases[0])
        given.former = former
        given.left = await fill(given)
        given.before = await told(store)
        given.tokens = [lease.token for lease in leases]
        yield given
        await given.store.close()

    @pytest.fixture
    async def copied(self, given: Copied, origin: Place, goal: Place, clock: HandClock) -> Copied:
        await given.store.close()
        await move(origin, goal)
        given.store = await goal.open()
        await given.renew()
        given.opened = await given.store.open(WORLD)
        await given.refresh()
        return given


class MovingContract(MovingWorld):
    """A copy tells the same, knows what was there, and is made as a whole or not at all."""

    async def test_a_copy_tells_the_same(self, given: Copied, origin: Place, goal: Place) -> None:
        await given.store.close()
        await move(origin, goal)
        given.store = await goal.open()
        after = await told(given.store)
        for what, before in given.before.items():
            assert after[what] == before, what
        assert await given.store.check() == []

    async def test_both_count_the_same(self, copied: Copied, origin: Place, goal: Place) -> None:
        counts = [await _counted(place.moving()) for place in (origin, goal)]
        assert counts[0] == counts[1]
        assert list(counts[0]) == list(KINDS.values())
        assert all(counts[0].values())

    async def test_event_ids_go_on_after_the_highest(self, copied: Copied) -> None:
        highest = max(event.id for event in copied.before["events"])
        committed = await copied.commit(copied.entry("new", copied.intent("new")))
        assert committed.event_ids[0] > highest
        assert [event.subject for event in await copied.events(limit=1)] == ["new"]
        assert (await copied.store.runs(limit=1)).items[0].id == committed.verdicts[0][0].run_id

    async def test_ids_go_on_also_where_the_newest_are_gone(self, given: Copied, origin: Place, goal: Place) -> None:
        await given.store.close()
        source, target = origin.moving(), goal.moving()
        await target.take(_later(source.rows()), source.place)
        await source.close()
        await target.close()
        given.store = await goal.open()
        await given.renew()
        committed = await given.commit(given.entry("new", given.intent("new")))
        assert committed.event_ids == [LATER]
        below = await given.store.runs(limit=1000, before=LATER)
        assert committed.verdicts[0][0].run_id not in {run.id for run in below.items}

    async def test_lease_tokens_go_on_rising(self, copied: Copied) -> None:
        leases = [await copied.store.lease(shard, "z", LEASE_SECONDS) for shard in (3, HOUSE, 17)]
        assert min(lease.token for lease in (*leases, copied.lease) if lease) > max(copied.tokens)

    async def test_what_was_gathered_is_not_gathered_again(self, copied: Copied) -> None:
        into = GatherInto("k", copied.now(HOUR))
        again = copied.intent("g1:None", trigger="digest", gather=into, due_at=into.due_at)
        [verdict] = (await copied.commit(copied.entry("elsewhere", again))).verdicts[0]
        assert (verdict.outcome, verdict.run_id) == ("duplicate", copied.left.gathering)

    async def test_an_occurrence_has_its_run_already(self, copied: Copied) -> None:
        [verdict] = (await copied.commit(copied.entry("else", copied.intent("running", priority=9)))).verdicts[0]
        assert (verdict.outcome, verdict.run_id) == ("duplicate", copied.left.running)

    async def test_what_was_seen_is_known(self, copied: Copied) -> None:
        first = next(event for event in copied.before["events"] if event.subject == "running")
        committed = await copied.commit(copied.entry("running", copied.intent("other key")))
        assert (committed.event_ids[0], committed.verdicts[0][0].outcome) == (first.id, "duplicate")
        assert (await copied.store.event(first.id)).repeats == 1  # type: ignore[union-attr]

    async def test_a_store_that_is_not_empty_is_not_filled(self, copied: Copied, origin: Place, goal: Place) -> None:
        await copied.store.close()
        with pytest.raises(Refused, match="not empty"):
            await move(origin, goal)
        copied.store = await goal.open()
        assert (await copied.run(copied.left.first)).status == "ready"

    async def test_a_copy_that_was_cut_off_is_never_used(self, given: Copied, origin: Place, goal: Place) -> None:
        await given.store.close()
        source, target = origin.moving(), goal.moving()
        with pytest.raises(StoreUnavailable):
            await target.take(_cut_off(source.rows()), source.place)
        await target.close()
        given.store = await goal.open()
        if await given.store.feeds():
            with pytest.raises(Refused, match="being filled"):
                await refuse_marked(given.store)
        await given.store.close()
        target = goal.moving()
        await target.take(source.rows(), source.place, force=True)
        assert await source.counts() == await target.counts()
        await source.close()
        await target.close()
        given.store = await goal.open()
        await refuse_marked(given.store)
        assert await given.store.check() == []

    async def test_whoever_uses_the_store_is_named(self, given: Copied, origin: Place) -> None:
        source = origin.moving()
        assert await source.writers()
        await source.close()

    async def test_nobody_starts_while_it_is_copied(self, given: Copied, origin: Place, clock: HandClock) -> None:
        await given.store.close()
        clock.advance(HOUR)
        source = origin.moving()
        assert await source.writers() == []
        with pytest.raises(Refused):
            given.store = await origin.open()
            await refuse_marked(given.store)
        await source.stay()
        await source.close()
        given.store = await origin.open()
        await refuse_marked(given.store)
        assert await given.store.lease(0, "b", LEASE_SECONDS) is not None

    async def test_a_store_that_moved_away_says_where_to(self, given: Copied, origin: Place, clock: HandClock) -> None:
        await given.store.close()
        clock.advance(HOUR)
        source = origin.moving()
        assert await source.writers() == []
        await source.mark("it moved to the other place", "Start with that")
        await source.close()
        given.store = await origin.open()
        with pytest.raises(Refused, match="it moved to the other place"):
            await refuse_marked(given.store)
        await given.store.close()
        again = origin.moving()
        with pytest.raises(Refused, match="it moved to the other place"):
            await again.writers()
        await again.mark("", "")
        await again.close()
        given.store = await origin.open()
        await refuse_marked(given.store)


async def _counted(moving: Moving) -> Counts:
    try:
        return await moving.counts()
    finally:
        await moving.close()


LATER = 5000


async def _later(rows: AsyncIterator[Chunk]) -> AsyncIterator[Chunk]:
    """As from a store that had more events and runs once."""
    [beginning] = await anext(rows)
    yield [msgspec.structs.replace(beginning, next_event=LATER, next_run=LATER)]
    async for chunk in rows:
        yield chunk


async def _cut_off(rows: AsyncIterator[Chunk]) -> AsyncIterator[Chunk]:
    async for chunk in rows:
        if isinstance(chunk[0], MovedRun):
            raise StoreUnavailable("the network is gone")
        yield chunk
