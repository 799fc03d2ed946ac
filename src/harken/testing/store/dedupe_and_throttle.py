"""The contract of dedupe and throttle: which events start a run, and when, decided by the commit."""

from __future__ import annotations

from harken.event import Verdict
from harken.store import Distinct, GatherInto, RateLimit
from harken.testing.store.world import Given, Reopen, StoreWorld

__all__ = ["LimitContract"]

SPAN = 60.0
RETAINED = 1e9


async def counts_once(given: Given, subject: str, value: str = "v", **intent: object) -> Verdict:
    return await given.decides(subject, distinct=Distinct(value, SPAN), **intent)


async def throttled(given: Given, subject: str, key: str = "k", *, drops: bool = False, **intent: object) -> Verdict:
    return await given.decides(subject, rate=RateLimit(key, 2, SPAN, drops), **intent)


class LimitContract(StoreWorld):
    async def test_of_equal_values_only_the_first_starts_a_run(self, given: Given) -> None:
        first = await counts_once(given, "a")
        second = await counts_once(given, "b")
        assert (first.outcome, second.outcome, second.run_id) == ("fired", "duplicate", first.run_id)
        assert second.reason == "an event with the same dedupe value has started this run"
        assert len(await given.claims()) == 1

    async def test_equal_values_within_one_page_are_one_run_too(self, given: Given) -> None:
        entries = [given.entry(each, given.intent(each, distinct=Distinct("v", SPAN))) for each in "ab"]
        committed = await given.commit(*entries)
        assert [verdicts[0].outcome for verdicts in committed.verdicts] == ["fired", "duplicate"]

    async def test_values_triggers_and_epochs_are_apart(self, given: Given) -> None:
        epoch = given.trigger().epoch
        verdicts = [
            await counts_once(given, "a"),
            await counts_once(given, "b", value="w"),
            await counts_once(given, "c", trigger="other"),
            await counts_once(given, "d", epoch=epoch + 1),
        ]
        assert [verdict.outcome for verdict in verdicts] == ["fired"] * 4

    async def test_after_the_span_a_value_counts_again(self, given: Given) -> None:
        await counts_once(given, "a")
        given.clock.advance(SPAN - 1)
        await given.renew()
        assert (await counts_once(given, "b")).outcome == "duplicate"
        given.clock.advance(1)
        assert (await counts_once(given, "c")).outcome == "fired"
        assert (await counts_once(given, "d")).outcome == "duplicate"

    async def test_a_value_that_a_digest_took_counts(self, given: Given) -> None:
        into = GatherInto("k", given.now(SPAN))
        first = await counts_once(given, "a", gather=into)
        second = await counts_once(given, "b", gather=into)
        assert (second.outcome, second.run_id) == ("duplicate", first.run_id)

    async def test_what_is_skipped_does_not_count(self, given: Given) -> None:
        running = await given.running("a", slot="s", overlap="skip")
        assert (await counts_once(given, "b", slot="s", overlap="skip")).outcome == "skipped"
        await given.settle(running)
        assert (await counts_once(given, "c", slot="s", overlap="skip")).outcome == "fired"

    async def test_the_same_occurrence_is_a_duplicate_of_its_own_run(self, given: Given) -> None:
        first = await counts_once(given, "a")
        entry = given.entry("elsewhere", given.intent("a", distinct=Distinct("w", SPAN)))
        [again] = (await given.commit(entry)).verdicts[0]
        assert (again.outcome, again.run_id) == ("duplicate", first.run_id)
        assert again.reason == "this occurrence has its run already"

    async def test_values_stay_known_across_a_crash(self, given: Given, reopen: Reopen) -> None:
        await counts_once(given, "a")
        given.store = await reopen(given.store)
        await given.renew()
        assert (await counts_once(given, "b")).outcome == "duplicate"

    async def test_housekeeping_forgets_values_only_after_their_span(self, given: Given) -> None:
        await counts_once(given, "a")
        kept = {"events": RETAINED, "ticks": RETAINED, "runs": RETAINED, "pushed": RETAINED, "audit": RETAINED}
        assert await given.store.prune(**kept) == 0
        assert (await counts_once(given, "b")).outcome == "duplicate"
        given.clock.advance(SPAN + 1)
        assert await given.store.prune(**kept) == 1

    async def test_a_throttle_lets_the_rest_start_later(self, given: Given) -> None:
        verdicts = [await throttled(given, each) for each in "abcde"]
        assert [verdict.outcome for verdict in verdicts] == ["fired"] * 5
        runs = [await given.run(verdict.run_id) for verdict in verdicts]
        starts = [(run.due_at - given.now()).total_seconds() for run in runs]
        assert starts == [0, 0, SPAN, SPAN, 2 * SPAN]
        assert verdicts[0].reason == ""
        assert verdicts[2].reason == f"waits until {given.now(SPAN):%Y-%m-%d %H:%M:%S}Z (throttle)"

    async def test_no_span_has_more_runs_than_the_throttle_allows(self, given: Given) -> None:
        claimed: list[float] = []
        for step in range(12):
            if step < 6:
                await throttled(given, f"s{step}")
            claimed += [step * 20.0 for _ in await given.claims()]
            given.clock.advance(20)
            await given.renew()
        assert len(claimed) == 6
        assert all(later - earlier >= SPAN for earlier, later in zip(claimed, claimed[2:], strict=False))

    async def test_a_throttle_that_drops_says_when_the_next_may_start(self, given: Given) -> None:
        verdicts = [await throttled(given, each, drops=True) for each in "abc"]
        assert [verdict.outcome for verdict in verdicts] == ["fired", "fired", "skipped"]
        allowed = f"{given.now(SPAN):%Y-%m-%d %H:%M:%S}Z"
        assert verdicts[2].reason == f"the throttle allows the next run at {allowed}"
        given.clock.advance(SPAN)
        await given.renew()
        assert (await throttled(given, "d", drops=True)).outcome == "fired"

    async def test_keys_of_a_throttle_are_apart(self, given: Given) -> None:
        for each in "ab":
            await throttled(given, each, drops=True)
        assert (await throttled(given, "c", key="other", drops=True)).outcome == "fired"

    async def test_a_dropped_event_leaves_its_value_free(self, given: Given) -> None:
        for each in "ab":
            await throttled(given, each, drops=True)
        dropped = await throttled(given, "c", drops=True, distinct=Distinct("v", 10 * SPAN))
        given.clock.advance(SPAN)
        await given.renew()
        later = await throttled(given, "d", drops=True, distinct=Distinct("v", 10 * SPAN))
        assert (dropped.outcome, later.outcome) == ("skipped", "fired")

    async def test_a_throttled_run_is_not_handed_over_with_its_commit(self, given: Given) -> None:
        entries = [given.entry(each, given.intent(each, rate=RateLimit("k", 1, SPAN))) for each in "ab"]
        committed = await given.commit(*entries, claim=5, holder="w")
        assert [claim.events[0].subject for claim in committed.claimed] == ["a"]
        assert await given.claims() == []
        given.clock.advance(SPAN)
        assert [claim.events[0].subject for claim in await given.claims()] == ["b"]

    async def test_a_throttle_goes_on_across_a_crash(self, given: Given, reopen: Reopen) -> None:
        for each in "ab":
            await throttled(given, each)
        given.store = await reopen(given.store)
        await given.renew()
        third = await throttled(given, "c")
        assert (await given.run(third.run_id)).due_at == given.now(SPAN)
