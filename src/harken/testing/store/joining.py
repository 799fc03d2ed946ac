"""The contract of debounce and join: runs that wait for more events, and what becomes of them when the time is over."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, permutations
from typing import Any

import msgspec

from harken.event import Verdict
from harken.feed import Join, Part
from harken.store import GatherInto, JoinPart
from harken.testing.store.world import INBOX, INTERNAL_FEED, Given, Reopen, StoreWorld, definitions, feed, trigger

__all__ = ["JoinContract"]

WINDOW = 60.0

PARTS = (Part(name="a", by="event.id"), Part(name="b", by="event.id", feed="outbox"))
BOTH = trigger("both", gather=Join(parts=PARTS, within=WINDOW))
TWO_FEEDS = definitions(feeds=(INBOX, feed("outbox"), INTERNAL_FEED), triggers=(BOTH,), generation="g2")


async def opens_two(given: Given, **changes: Any) -> None:
    """Open a configuration whose trigger `both` listens to two feeds."""
    changed = msgspec.structs.replace(BOTH, **changes)
    await given.open(msgspec.structs.replace(TWO_FEEDS, triggers=(changed,)))
    await given.refresh()


async def debounced(given: Given, subject: str, wait: float = 0.0, **intent: Any) -> Verdict:
    return await given.decides(subject, gather=GatherInto("k", given.now(WINDOW), extends=True, wait=wait), **intent)


def part(given: Given, number: int, at: float = 0.0, *, needs: int = 2, key: str = "k", **join: Any) -> GatherInto:
    """Part `number` of a join, which happened `at` seconds from now."""
    return GatherInto(key, given.now(WINDOW), part=JoinPart(number, given.now(at), WINDOW, needs, **join))


async def joins(given: Given, subject: str, into: GatherInto, **intent: Any) -> Verdict:
    return await given.decides(subject, gather=into, reason=f"part {subject}", **intent)


async def subjects_of(given: Given) -> list[list[str]]:
    return [[event.subject for event in claim.events] for claim in await given.claims()]


class JoinContract(StoreWorld):
    async def test_each_event_postpones_a_debounced_run_which_keeps_all(self, given: Given) -> None:
        for each in "abc":
            await debounced(given, each)
            given.clock.advance(WINDOW - 1)
            await given.renew()
            assert await given.claims() == []
        given.clock.advance(1)
        assert await subjects_of(given) == [["a", "b", "c"]]

    async def test_a_debounced_run_waits_no_longer_than_allowed(self, given: Given) -> None:
        for each in "abcd":
            verdict = await debounced(given, each, wait=100)
            given.clock.advance(30)
            await given.renew()
        assert (await given.run(verdict.run_id)).due_at == given.now(-20)
        assert await subjects_of(given) == [["a", "b", "c", "d"]]

    async def test_a_debounced_run_goes_on_across_a_crash(self, given: Given, reopen: Reopen) -> None:
        first = await debounced(given, "a", wait=100)
        given.clock.advance(WINDOW - 1)
        given.store = await reopen(given.store)
        await given.renew()
        second = await debounced(given, "b", wait=100)
        assert second.run_id == first.run_id
        assert (await given.run(first.run_id)).due_at == given.now(41)

    async def test_a_join_runs_when_all_its_parts_are_there(self, given: Given) -> None:
        first = await joins(given, "a", part(given, 0))
        run = await given.run(first.run_id)
        assert (run.status, run.parts) == ("gathering", (0,))
        assert await given.claims() == []
        second = await joins(given, "b", part(given, 1))
        assert (second.outcome, second.run_id) == ("gathered", first.run_id)
        assert second.reason == "event 2 of the run that is gathering: part b"
        assert await subjects_of(given) == [["a", "b"]]

    async def test_the_order_of_arrival_does_not_matter(self, given: Given) -> None:
        for key, order in enumerate(permutations(range(3))):
            for number in order:
                await joins(given, f"{key}{number}", part(given, number, needs=3, key=str(key)))
        assert sorted(map(len, await subjects_of(given))) == [3] * 6

    async def test_earlier_events_of_a_part_stay(self, given: Given) -> None:
        for each in "abc":
            await joins(given, each, part(given, 0))
        await joins(given, "d", part(given, 1))
        assert await subjects_of(given) == [["a", "b", "c", "d"]]

    async def test_a_join_is_used_up_once(self, given: Given) -> None:
        for number, each in enumerate("ab"):
            await joins(given, each, part(given, number))
        again = await joins(given, "c", part(given, 1))
        assert (await given.run(again.run_id)).parts == (1,)
        assert await subjects_of(given) == [["a", "b"]]

    async def test_keys_join_apart(self, given: Given) -> None:
        await joins(given, "a", part(given, 0))
        await joins(given, "b", part(given, 1, key="other"))
        assert await given.claims() == []

    async def test_some_of_the_parts_may_be_enough(self, given: Given) -> None:
        await joins(given, "a", part(given, 2, needs=2))
        await joins(given, "b", part(given, 2, needs=2))
        assert await given.claims() == []
        await joins(given, "c", part(given, 0, needs=2))
        assert await subjects_of(given) == [["a", "b", "c"]]

    async def test_an_incomplete_join_is_dropped_with_a_reason(self, given: Given) -> None:
        verdict = await joins(given, "a", part(given, 0))
        given.clock.advance(WINDOW)
        assert await given.claims() == []
        run = await given.run(verdict.run_id)
        assert (run.status, run.error, run.parts) == ("cancelled", "not all parts of its join came in time", (0,))

    async def test_an_incomplete_join_may_run_with_what_is_there(self, given: Given) -> None:
        await joins(given, "a", part(given, 0, keeps=True))
        given.clock.advance(WINDOW)
        assert await subjects_of(given) == [["a"]]

    async def test_a_part_that_comes_too_late_waits_anew(self, given: Given) -> None:
        first = await joins(given, "a", part(given, 0))
        given.clock.advance(WINDOW)
        await given.renew()
        second = await joins(given, "b", part(given, 1))
        assert second.run_id != first.run_id
        assert await given.statuses([first.run_id, second.run_id]) == ["cancelled", "gathering"]

    async def test_parts_that_happened_too_far_apart_do_not_join(self, given: Given) -> None:
        first = await joins(given, "a", part(given, 0, -WINDOW - 1))
        second = await joins(given, "b", part(given, 1))
        early = await joins(given, "c", part(given, 0, -WINDOW - 1))
        assert second.run_id != first.run_id
        assert (early.outcome, early.reason) == ("skipped", "it happened too long before the other parts of its join")
        assert await given.statuses([first.run_id, second.run_id]) == ["cancelled", "gathering"]

    async def test_parts_in_order_count_by_when_they_happened(self, given: Given) -> None:
        await joins(given, "b", part(given, 1, 2, ordered=True))
        await joins(given, "early", part(given, 1, -5, ordered=True))
        await joins(given, "a", part(given, 0, 1, ordered=True))
        assert await subjects_of(given) == [["b", "early", "a"]]

    async def test_parts_in_the_wrong_order_wait_for_the_right_one(self, given: Given) -> None:
        steps: Sequence[tuple[int, float]] = ((0, 3), (1, 1), (2, 9), (1, 2))
        for at, (number, happened) in enumerate(steps):
            await joins(given, f"s{at}", part(given, number, happened, needs=3, ordered=True))
        assert await given.claims() == []
        await joins(given, "last", part(given, 1, 5, needs=3, ordered=True))
        assert await subjects_of(given) == [["s0", "s1", "s2", "s3", "last"]]

    async def test_a_join_without_a_part_runs_when_the_time_is_over(self, given: Given) -> None:
        await joins(given, "a", part(given, 0, needs=1, waits=True))
        assert await given.claims() == []
        given.clock.advance(WINDOW)
        assert await subjects_of(given) == [["a"]]

    async def test_the_part_that_a_join_is_without_ends_its_run(self, given: Given) -> None:
        waiting = await joins(given, "a", part(given, 0, needs=1, waits=True))
        ending = await joins(given, "b", part(given, 1, 1, needs=1, waits=True, ends=True))
        assert (ending.outcome, ending.run_id) == ("gathered", waiting.run_id)
        assert ending.reason == "it ended the run that was gathering: part b"
        run = await given.run(waiting.run_id)
        assert (run.status, run.error) == ("cancelled", "a part came that its join is without")
        given.clock.advance(WINDOW)
        assert await given.claims() == []

    async def test_it_ends_what_happened_before_it_although_it_came_first(self, given: Given) -> None:
        ending = await joins(given, "b", part(given, 1, 5, needs=1, waits=True, ends=True))
        assert (ending.outcome, ending.run_id) == ("gathered", "")
        assert ending.reason == "no run that it would end is gathering: part b"
        before = await joins(given, "a", part(given, 0, 4, needs=1, waits=True))
        after = await joins(given, "c", part(given, 0, 6, needs=1, waits=True))
        assert (before.outcome, before.reason) == ("skipped", "a part that its join is without came after it")
        given.clock.advance(WINDOW)
        assert [claim.id for claim in await given.claims()] == [after.run_id]

    async def test_it_ends_what_happened_before_it_also_if_more_of_them_came_since(self, given: Given) -> None:
        for at, happened in enumerate((5, 6, 7, 5 + WINDOW, 5 + 3 * WINDOW, 5 + 2 * WINDOW)):
            await joins(given, f"b{at}", part(given, 1, happened, needs=1, waits=True, ends=True))
        before = await joins(given, "a", part(given, 0, 4, needs=1, waits=True))
        between = await joins(given, "c", part(given, 0, 7 + WINDOW, needs=1, waits=True))
        long_before = await joins(given, "d", part(given, 0, 4 - WINDOW, needs=1, waits=True))
        assert [before.outcome, between.outcome, long_before.outcome] == ["skipped", "skipped", "gathered"]

    async def test_it_does_not_end_what_happened_after_it_or_long_before(self, given: Given) -> None:
        await joins(given, "a", part(given, 0, 3, needs=1, waits=True))
        await joins(given, "b", part(given, 1, 2, needs=1, waits=True, ends=True))
        await joins(given, "c", part(given, 0, -WINDOW, key="other", needs=1, waits=True))
        await joins(given, "d", part(given, 1, 1, key="other", needs=1, waits=True, ends=True))
        given.clock.advance(WINDOW)
        assert await subjects_of(given) == [["a"], ["c"]]

    async def test_a_join_without_a_part_still_needs_the_others(self, given: Given) -> None:
        incomplete = await joins(given, "a", part(given, 0, waits=True))
        await joins(given, "b", part(given, 0, key="whole", waits=True))
        await joins(given, "c", part(given, 1, key="whole", waits=True))
        assert await given.claims() == []
        given.clock.advance(WINDOW)
        assert await subjects_of(given) == [["b", "c"]]
        assert await given.status(incomplete.run_id) == "cancelled"

    async def test_a_held_join_is_held_when_it_is_complete(self, given: Given) -> None:
        for number, each in enumerate("ab"):
            verdict = await joins(given, each, part(given, number), hold="paused")
        assert await given.status(verdict.run_id) == "held"
        await given.store.resume("mail")
        assert await subjects_of(given) == [["a", "b"]]

    async def test_the_parts_of_a_join_stay_across_a_crash(self, given: Given, reopen: Reopen) -> None:
        await joins(given, "a", part(given, 0))
        given.store = await reopen(given.store)
        await given.renew()
        await joins(given, "b", part(given, 1))
        assert await subjects_of(given) == [["a", "b"]]

    async def test_a_join_of_which_all_parts_are_early_does_not_run(self, given: Given) -> None:
        for number, each in enumerate("ab"):
            verdict = await joins(given, each, part(given, number, -1, early=True, keeps=True))
        run = await given.run(verdict.run_id)
        assert (run.status, run.parts) == ("gathering", (0, 1))
        given.clock.advance(WINDOW)
        assert await given.claims() == []
        assert await given.status(verdict.run_id) == "cancelled"

    async def test_an_early_part_joins_one_that_is_not(self, given: Given) -> None:
        await joins(given, "a", part(given, 0, -1, early=True))
        await joins(given, "b", part(given, 1))
        assert await subjects_of(given) == [["a", "b"]]

    async def test_a_trigger_listens_to_every_feed_of_its_parts(self, given: Given) -> None:
        opened = await given.open(TWO_FEEDS)
        found = await given.store.listeners("outbox")
        assert [trigger.name for trigger, _ in found.triggers] == ["both"]
        assert [trigger.name for trigger, _ in (await given.store.listeners("inbox")).triggers] == ["both"]
        assert opened.triggers["both"].uid == found.triggers[0][1].uid

    async def test_parts_of_several_feeds_join(self, given: Given) -> None:
        await opens_two(given)
        await joins(given, "a", part(given, 0), trigger="both")
        entry = given.entry("b", given.intent("b", trigger="both", gather=part(given, 1)))
        outbox = await given.feed("outbox")
        await given.commit(entry, feed="outbox", revision=outbox.revision)
        assert await subjects_of(given) == [["a", "b"]]

    async def test_what_is_done_to_a_trigger_concerns_all_its_feeds(self, given: Given) -> None:
        await opens_two(given)

        async def revisions() -> list[int]:
            return [(await given.feed(name)).revision for name in ("inbox", "outbox")]

        seen = [await revisions()]
        for step in (
            given.store.pause("both", ""),
            given.store.resume("both"),
            given.store.reset("both", cursor=True),
            given.open(definitions(feeds=TWO_FEEDS.feeds, triggers=(), generation="g3")),
        ):
            await step
            seen.append(await revisions())
        assert all(before[0] < after[0] and before[1] < after[1] for before, after in pairwise(seen))
        assert (await given.store.listeners("outbox")).triggers == []

    async def test_a_trigger_looks_back_at_each_of_its_feeds(self, given: Given) -> None:
        await opens_two(given, backfill=600.0)

        async def looks_back() -> list[bool]:
            found = [await given.store.listeners(name) for name in ("inbox", "outbox")]
            return [listeners.triggers[0][1].backfilling for listeners in found]

        assert await looks_back() == [True, True]
        uid, outbox = given.trigger("both").uid, await given.feed("outbox")
        await given.commit(feed="outbox", revision=outbox.revision, backfilled=[uid])
        assert await looks_back() == [True, False]
        await given.commit(backfilled=[uid])
        assert await looks_back() == [False, False]

    async def test_a_trigger_that_no_longer_listens_to_a_feed_is_gone_from_it(self, given: Given) -> None:
        await opens_two(given)
        alone = trigger("both")
        await given.open(definitions(feeds=TWO_FEEDS.feeds, triggers=(alone,), generation="g3"))
        assert (await given.store.listeners("outbox")).triggers == []
        assert len((await given.store.listeners("inbox")).triggers) == 1

    async def test_the_same_part_twice_is_a_duplicate(self, given: Given) -> None:
        entries = [given.entry(each, given.intent("a:None", gather=part(given, 0))) for each in ("a", "elsewhere")]
        [[first], [again]] = (await given.commit(*entries)).verdicts
        assert (again.outcome, again.run_id) == ("duplicate", first.run_id)
        assert await given.claims() == []
