"""The contract of a copy: it has the same contents, and behaves as the original would have."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
import pytest

from harken.errors import LeaseLost, Refused, StoreUnavailable
from harken.event import Event
from harken.runs import Claimed
from harken.schedule import Cron
from harken.store import HOUSEKEEPING, Distinct, GatherInto, IdleRead, JoinPart, RateLimit, Stale
from harken.store.transfer_protocol_and_exclusive_access import Counts, StoreTransfer, refuse_marked
from harken.store.transfer_rows import KINDS, Chunk, ExportedRun
from harken.testing.clock import HandClock
from harken.testing.store.transfer_world import BEFORE, WORLD, FilledRuns, Place, fill, snapshot
from harken.testing.store.world import INBOX, LEASE_SECONDS, Given

__all__ = ["CopiedStoreContract", "TransferContract", "TransferWorld", "comparable", "copy_store"]


HOUR, DAY = 3600.0, 86_400.0


def comparable(found: dict[str, Any]) -> str:
    """A snapshot as text in which runs are numbered: encryption gives them other ids."""
    text = repr(found)
    for number, run in enumerate(found["runs"]):
        text = text.replace(run.id, f"run {number}")
    return text


async def copy_store(origin: Place, goal: Place) -> None:
    source, target = origin.transfer(), goal.transfer()
    try:
        await target.take(source.rows(), source.place)
    finally:
        await source.close()
        await target.close()


class Copied(Given):
    """A filled store, and later its copy.

    `before` is a snapshot of the original, `tokens` are its leases' tokens, `former` is the uid of a removed trigger.
    """

    left: FilledRuns
    before: dict[str, Any]
    tokens: Sequence[int]
    former: str

    async def claims_of(self, run_id: str) -> Claimed:
        """Claim all due runs and return this one."""
        claims = await self.claims(100)
        return next(claim for claim in claims if claim.id == run_id)


class TransferWorld:
    """A subclass provides the fixtures `origin` and `goal`: places of two empty stores that use `clock`."""

    @pytest.fixture
    def clock(self) -> HandClock:
        return HandClock()

    @pytest.fixture
    async def given(self, origin: Place, clock: HandClock) -> AsyncIterator[Copied]:
        """The filled store at `origin`."""
        store = await origin.open()
        former = (await store.open(BEFORE)).triggers["former"].uid
        opened = await store.open(WORLD)
        leases = [lease for shard in (0, HOUSEKEEPING, 3) if (lease := await store.lease(shard, "a", LEASE_SECONDS))]
        given = Copied(store, clock, opened, leases[0])
        given.former = former
        given.left = await fill(given)
        given.before = await snapshot(store)
        given.tokens = [lease.token for lease in leases]
        yield given
        await given.store.close()

    @pytest.fixture
    async def copied(self, given: Copied, origin: Place, goal: Place, clock: HandClock) -> Copied:
        await given.store.close()
        await copy_store(origin, goal)
        given.store = await goal.open()
        await given.renew()
        given.opened = await given.store.open(WORLD)
        await given.refresh()
        return given


class TransferContract(TransferWorld):
    """A copy has the same contents, and is made as a whole or not at all."""

    async def test_a_copy_has_the_same_contents(self, given: Copied, origin: Place, goal: Place) -> None:
        await given.store.close()
        await copy_store(origin, goal)
        given.store = await goal.open()
        after = await snapshot(given.store)
        for what, before in given.before.items():
            assert after[what] == before, what
        assert await given.store.check() == []

    async def test_what_was_running_has_moved_by_the_copy(self, given: Copied, origin: Place, goal: Place) -> None:
        moved = await given.store.moved_runs()
        assert {"running", "dead"} <= {run.status for run in moved}
        assert await given.store.moved_runs({run.id: run.seen for run in moved}) == []
        await given.store.close()
        await copy_store(origin, goal)
        given.store = await goal.open()
        assert [(run.id, run.status) for run in await given.store.moved_runs()] == [(given.left.running, "ready")]

    async def test_both_count_the_same(self, copied: Copied, origin: Place, goal: Place) -> None:
        counts = [await _counted(place.transfer()) for place in (origin, goal)]
        assert counts[0] == counts[1]
        assert list(counts[0]) == list(KINDS.values())
        assert all(counts[0].values())

    async def test_parts_of_joins_and_limits_go_on(self, given: Copied, origin: Place, goal: Place) -> None:
        def part(number: int) -> GatherInto:
            return GatherInto("join", given.now(HOUR), part=JoinPart(number, given.now(), HOUR, 2))

        await given.refresh()
        await given.decides("part one", gather=part(0))
        limits: dict[str, Any] = {"distinct": Distinct("v", HOUR), "rate": RateLimit("k", 1, HOUR, True)}
        unique = await given.decides("unique", **limits)
        await given.store.close()
        await copy_store(origin, goal)
        given.store = await goal.open()
        await given.renew()
        second = await given.decides("part two", gather=part(1))
        equal = await given.decides("equal", **limits)
        dropped = await given.decides("dropped", rate=limits["rate"])
        assert (second.outcome, second.reason) == ("gathered", "event 2 of the run that is gathering")
        assert (await given.run(second.run_id)).status == "ready"
        assert (unique.outcome, equal.outcome, dropped.outcome) == ("fired", "duplicate", "skipped")
        # names are hashed anew where the copy is encrypted, in verdicts as in marks
        [stored] = [event for event in await given.events(limit=100) if event.subject == "unique"]
        assert equal.run_id == stored.verdicts[0].run_id

    async def test_event_ids_go_on_after_the_highest(self, copied: Copied) -> None:
        highest = max(event.id for event in copied.before["events"])
        committed = await copied.commit(copied.entry("new", copied.intent("new")))
        assert committed.event_ids[0] > highest
        assert [event.subject for event in await copied.events(limit=1)] == ["new"]
        assert (await copied.store.runs(limit=1)).items[0].id == committed.verdicts[0][0].run_id

    async def test_ids_go_on_also_where_the_newest_are_gone(self, given: Copied, origin: Place, goal: Place) -> None:
        await given.store.close()
        source, target = origin.transfer(), goal.transfer()
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
        leases = [await copied.store.lease(shard, "z", LEASE_SECONDS) for shard in (3, HOUSEKEEPING, 17)]
        assert min(lease.token for lease in (*leases, copied.lease) if lease) > max(copied.tokens)

    async def test_what_was_gathered_is_not_gathered_again(self, copied: Copied) -> None:
        into = GatherInto("k", copied.now(HOUR))
        again = copied.intent("g1:None", trigger="digest", gather=into, due_at=into.due_at)
        [verdict] = (await copied.commit(copied.entry("elsewhere", again))).verdicts[0]
        assert (verdict.outcome, verdict.run_id) == ("duplicate", copied.left.gathering)

    async def test_an_occurrence_has_its_run_already(self, copied: Copied) -> None:
        [verdict] = (await copied.commit(copied.entry("else", copied.intent("running", priority=9)))).verdicts[0]
        assert (verdict.outcome, verdict.run_id) == ("duplicate", copied.left.running)

    async def test_seen_events_are_known(self, copied: Copied) -> None:
        first = next(event for event in copied.before["events"] if event.subject == "running")
        committed = await copied.commit(copied.entry("running", copied.intent("other key")))
        assert (committed.event_ids[0], committed.verdicts[0][0].outcome) == (first.id, "duplicate")
        assert (await copied.store.event(first.id)).repeats == 1  # type: ignore[union-attr]

    async def test_a_store_that_is_not_empty_is_not_filled(self, copied: Copied, origin: Place, goal: Place) -> None:
        await copied.store.close()
        with pytest.raises(Refused, match="not empty"):
            await copy_store(origin, goal)
        copied.store = await goal.open()
        assert (await copied.run(copied.left.first)).status == "ready"

    async def test_a_copy_that_was_cut_off_is_never_used(self, given: Copied, origin: Place, goal: Place) -> None:
        await given.store.close()
        source, target = origin.transfer(), goal.transfer()
        with pytest.raises(StoreUnavailable):
            await target.take(_cut_off(source.rows()), source.place)
        await target.close()
        given.store = await goal.open()
        if await given.store.feeds():
            with pytest.raises(Refused, match="being filled"):
                await refuse_marked(given.store)
        await given.store.close()
        target = goal.transfer()
        await target.take(source.rows(), source.place, force=True)
        assert await source.counts() == await target.counts()
        await source.close()
        await target.close()
        given.store = await goal.open()
        await refuse_marked(given.store)
        assert await given.store.check() == []

    async def test_processes_that_use_the_store_are_named(self, given: Copied, origin: Place) -> None:
        source = origin.transfer()
        assert await source.writers()
        await source.close()

    async def test_nobody_starts_while_it_is_copied(self, given: Copied, origin: Place, clock: HandClock) -> None:
        await given.store.close()
        clock.advance(HOUR)
        source = origin.transfer()
        assert await source.writers() == []
        with pytest.raises(Refused):
            given.store = await origin.open()
            await refuse_marked(given.store)
        await source.stay()
        await source.close()
        given.store = await origin.open()
        await refuse_marked(given.store)
        assert await given.store.lease(0, "b", LEASE_SECONDS) is not None

    async def test_a_replaced_store_names_its_successor(self, given: Copied, origin: Place, clock: HandClock) -> None:
        await given.store.close()
        clock.advance(HOUR)
        source = origin.transfer()
        assert await source.writers() == []
        await source.mark("it moved to the other place", "Start with that")
        await source.close()
        given.store = await origin.open()
        with pytest.raises(Refused, match="it moved to the other place"):
            await refuse_marked(given.store)
        await given.store.close()
        again = origin.transfer()
        with pytest.raises(Refused, match="it moved to the other place"):
            await again.writers()
        await again.mark("", "")
        await again.close()
        given.store = await origin.open()
        await refuse_marked(given.store)


async def _counted(transfer: StoreTransfer) -> Counts:
    try:
        return await transfer.counts()
    finally:
        await transfer.close()


LATER = 5000


async def _later(rows: AsyncIterator[Chunk]) -> AsyncIterator[Chunk]:
    """The export of a store whose newest events and runs were deleted."""
    [beginning] = await anext(rows)
    yield [msgspec.structs.replace(beginning, next_event=LATER, next_run=LATER)]
    async for chunk in rows:
        yield chunk


async def _cut_off(rows: AsyncIterator[Chunk]) -> AsyncIterator[Chunk]:
    async for chunk in rows:
        if isinstance(chunk[0], ExportedRun):
            raise StoreUnavailable("the network is gone")
        yield chunk


class CopiedStoreContract(TransferWorld):
    """Every method of the copy does what it would have done in the original."""

    async def test_the_same_configuration_changes_nothing(self, copied: Copied) -> None:
        feeds = {state.name: state.revision for state in copied.before["feeds"]}
        assert {name: state.revision for name, state in copied.opened.feeds.items()} == feeds
        assert copied.opened.epoch == 2

    async def test_a_removed_trigger_comes_back_as_it_was(self, copied: Copied) -> None:
        assert (await copied.open(BEFORE)).triggers["former"].uid == copied.former

    async def test_what_was_running_is_claimed_again_with_its_journal(self, copied: Copied) -> None:
        journaled, running = await copied.claims(2)
        assert [journaled.id, running.id] == [copied.left.journaled, copied.left.running]
        assert [step.output for step in journaled.journal] == [{"n": 1}]
        assert (journaled.token, journaled.attempt, running.cancel_requested) == (2, 1, True)
        assert await copied.settle(journaled) == "settled"

    async def test_an_old_claim_is_refused(self, copied: Copied) -> None:
        step = copied.before["runs"][0].journal
        with pytest.raises(LeaseLost):
            await copied.store.journal(copied.left.running, 1, step)

    async def test_the_next_run_of_a_slot_follows(self, copied: Copied) -> None:
        copied.clock.advance(3 * HOUR)
        first = await copied.claims_of(copied.left.first)
        assert await copied.status(copied.left.second) == "blocked"
        await copied.settle(first)
        assert (await copied.claims_one()).id == copied.left.second

    async def test_an_open_window_takes_more_and_closes(self, copied: Copied) -> None:
        into = GatherInto("k", copied.now(HOUR))
        verdict = await copied.decides("g3", trigger="digest", gather=into, due_at=into.due_at)
        assert (verdict.outcome, verdict.run_id) == ("gathered", copied.left.gathering)
        copied.clock.advance(HOUR)
        claim = await copied.claims_of(copied.left.gathering)
        assert [event.subject for event in claim.events] == ["g1", "g2", "g3"]

    async def test_memory_goes_on_counting(self, copied: Copied) -> None:
        assert isinstance(await copied.store.commit(copied.page(copied.entry("c", state="open", expect=1))), Stale)
        await copied.commit(copied.entry("c", state="open", expect=2, seq=3))
        assert (await copied.store.recall("inbox", ["c"]))["c"].seq == 3

    async def test_answers_reach_waiting_runs(self, copied: Copied) -> None:
        assert await copied.store.answer(copied.left.asking, "yes")
        claims = {claim.id: claim for claim in await copied.claims(100)}
        assert claims[copied.left.answered].answer == {"yes": True}
        assert claims[copied.left.asking].answer == "yes"
        assert [step.tokens for step in claims[copied.left.asking].journal] == [60]

    async def test_a_sub_run_wakes_its_parent(self, copied: Copied) -> None:
        copied.clock.advance(HOUR / 2)
        child = await copied.claims_of(copied.left.child)
        await copied.settle(child)
        woken = await copied.claims_of(copied.left.parent)
        assert (woken.answer["run"], woken.answer["status"]) == (copied.left.child, "done")

    async def test_held_runs_are_released(self, copied: Copied) -> None:
        left = copied.left
        assert await copied.store.release("mail", hold="flood") == 1
        await copied.store.resume("resting")
        assert await copied.statuses([left.flooded, left.paused, left.short]) == ["ready", "ready", "held"]
        copied.clock.advance(HOUR)
        assert left.short in {claim.id for claim in await copied.claims(100)}
        [thrifty] = [state for state in await copied.store.triggers() if state.name == "thrifty"]
        assert thrifty.runs_this_hour == 1

    async def test_a_step_that_is_written_again_is_not_charged_again(self, copied: Copied) -> None:
        journaled = await copied.claims_one()
        await copied.store.journal(journaled.id, journaled.token, journaled.journal)
        assert [state.tokens_today for state in await copied.store.triggers()] == [
            state.tokens_today for state in copied.before["triggers"]
        ]

    async def test_a_wait_after_failures_stays_when_the_schedule_is_edited(self, copied: Copied) -> None:
        due = (await copied.feed()).next_due
        hourly = msgspec.structs.replace(INBOX, schedule=Cron(expression="0 * * * *"))
        others = [each for each in WORLD.feeds if each.name != "inbox"]
        await copied.open(msgspec.structs.replace(WORLD, generation="g2", feeds=(hourly, *others)))
        assert (await copied.feed()).next_due == due is not None

    async def test_a_run_does_not_start_in_its_quiet_hours(self, copied: Copied) -> None:
        copied.clock.advance(2500)
        assert copied.left.hushed not in {claim.id for claim in await copied.claims(100)}
        copied.clock.advance(6600)
        assert copied.left.hushed in {claim.id for claim in await copied.claims(100)}

    async def test_budgets_stay_spent(self, copied: Copied) -> None:
        thrifty = copied.trigger("thrifty")
        assert (thrifty.runs_this_hour, thrifty.tokens_today, thrifty.done) == (1, 60, 1)
        assert (await copied.decides("one more", trigger="thrifty")).outcome == "held"

    async def test_dead_letters_are_retried_and_dropped(self, copied: Copied) -> None:
        assert await copied.store.retry(copied.left.dead)
        # tries go on counting after a retry
        assert (await copied.claims_of(copied.left.dead)).attempt == 2
        await copied.store.dead_letter("inbox", Event(subject="x", type="mail", data={}, key="odd:1"), "again")
        await copied.store.dead_letter("inbox", Event(subject="x", type="mail", data={}, key="odd:3"), "no")
        assert [letter.key for letter in (await copied.store.dead()).items] == ["odd:3", "odd:1"]
        assert await copied.store.drop_dead_letter("event-1")

    async def test_reads_that_find_nothing_extend_their_span(self, copied: Copied) -> None:
        lease = await copied.store.lease(3, "a", LEASE_SECONDS)
        assert lease is not None
        times: dict[str, Any] = {"first_at": copied.now(), "last_at": copied.now(), "next_due": copied.now(9)}
        await copied.store.record_idle(
            [IdleRead(feed="box", token=lease.token, count=1, result="nothing_new", seen=9, **times)]
        )
        assert [span.count for span in await copied.store.ticks("box")] == [5]

    async def test_old_rows_are_pruned(self, copied: Copied) -> None:
        copied.clock.advance(30 * DAY)
        ages = {"events": DAY, "ticks": DAY, "runs": DAY, "pushed": DAY, "audit": DAY}
        while await copied.store.prune(**ages):
            pass
        assert await copied.store.recall("hook", ["p1", "p2"]) == {}
        assert await copied.store.ticks("inbox") == []
        assert (await copied.store.audits()).items == []
        assert copied.left.finished not in [run.id for run in (await copied.store.runs(limit=1000)).items]
        assert await copied.store.check() == []
