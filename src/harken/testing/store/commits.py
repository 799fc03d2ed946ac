"""The contract of `commit`: a page is written as a whole, and an event only once; and of failed and idle reads."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from harken.circuit_breaker import Health
from harken.event import Event, Known, Span, Verdict
from harken.store import Committed, Entry, Stale, Tick
from harken.testing.store.leases import failure, rest
from harken.testing.store.world import Given, Reopen, StoreWorld, definitions, feed

__all__ = ["CommitContract"]


class CommitContract(StoreWorld):
    async def test_a_page_stores_event_verdict_run_memory_and_cursor(self, given: Given) -> None:
        committed = await given.commit(given.entry("s", given.intent("s"), state="open"), cursor={"after": 7})
        event = await given.store.event(committed.event_ids[0])
        assert event is not None
        assert (event.feed, event.subject, event.state, event.data) == ("inbox", "s", "open", {"id": "s"})
        assert event.verdicts == committed.verdicts[0]
        assert (event.verdicts[0].trigger, event.verdicts[0].outcome) == ("mail", "fired")
        assert await given.status(event.verdicts[0].run_id) == "ready"
        assert await given.store.recall("inbox", ["s"]) == {"s": Known("open", 1)}
        assert (await given.feed()).cursor == {"after": 7}

    async def test_a_page_survives_a_crash(self, given: Given, reopen: Reopen) -> None:
        [run_id] = await given.fires("s")
        await given.commit(cursor={"after": 7})
        store = await reopen(given.store)
        assert (await store.state("inbox")).cursor == {"after": 7}
        assert await store.recall("inbox", ["s"]) == {"s": Known(None, 1)}
        assert [claim.id for claim in await store.claim("w", 10, 60)] == [run_id]

    async def test_the_received_bytes_are_kept(self, given: Given) -> None:
        event = Event(subject="s", key="s", type="mail", data={"n": 1.0}, raw=b'{"n": 1.0, "text": "\xf0\x9f\x91\x8b"}')
        committed = await given.commit(Entry(event=event, memory_id="s"))
        recorded = await given.store.event(committed.event_ids[0])
        assert recorded is not None
        assert recorded.data == {"n": 1.0, "text": "👋"}

    async def test_an_undated_event_stays_undated(self, given: Given) -> None:
        committed = await given.commit(Entry(event=Event(subject="s", type="t", data={}), memory_id="s"))
        recorded = await given.store.event(committed.event_ids[0])
        assert recorded is not None
        assert recorded.occurred_at is None
        assert recorded.recorded_at == given.now()

    async def test_verdicts_that_matching_gave_are_kept_with_their_reason(self, given: Given) -> None:
        filtered = Verdict(trigger="mail", outcome="filtered", reason="urgent was false")
        committed = await given.commit(given.entry("s", filtered, given.intent("s", trigger="other")))
        assert committed.verdicts[0][0] == filtered
        assert committed.verdicts[0][1].outcome == "fired"

    async def test_another_revision_is_stale_and_writes_nothing(self, given: Given) -> None:
        page = given.page(given.entry("s", given.intent("s")), revision=given.revision - 1, cursor=[1])
        assert await given.store.commit(page) == Stale(given.revision)
        assert await given.events() == []
        assert await given.store.recall("inbox", ["s"]) == {}
        assert (await given.feed()).cursor is None

    async def test_a_stale_page_of_several_counts_nothing(self, given: Given) -> None:
        await given.commit(given.entry("s", state="open"))
        moved = given.entry("s", given.intent("s2"), state="closed", expect=7, seq=8)
        page = given.page(given.entry("a", given.intent("a")), given.entry("b", given.intent("b")), moved)
        assert await given.store.commit(page) == Stale(given.revision)
        await given.fires("c")
        states = {state.name: state.fired for state in await given.store.triggers()}
        assert states["mail"] == 1

    async def test_an_empty_page_of_another_revision_is_stale_too(self, given: Given) -> None:
        page = given.page(revision=given.revision - 1, cursor=[1])
        assert await given.store.commit(page) == Stale(given.revision)
        assert (await given.feed()).cursor is None

    async def test_a_subject_that_became_known_meanwhile_is_a_duplicate_of_the_first_event(self, given: Given) -> None:
        first = await given.commit(given.entry("s", given.intent("s")))
        again = await given.commit(given.entry("s", given.intent("s")))
        assert again.event_ids == first.event_ids
        assert [verdict.outcome for verdict in again.verdicts[0]] == ["duplicate"]
        assert again.verdicts[0][0].trigger == "mail"
        assert len(await given.claims()) == 1

    async def test_a_repeat_is_counted_on_the_first_event(self, given: Given) -> None:
        first = await given.commit(given.entry("s", given.intent("s")))
        given.clock.advance(5)
        await given.commit(given.entry("s", given.intent("s")))
        recorded = await given.store.event(first.event_ids[0])
        assert recorded is not None
        assert (recorded.repeats, recorded.last_repeat_at) == (1, given.now())

    async def test_a_subject_that_moved_to_another_state_meanwhile_makes_the_page_stale(self, given: Given) -> None:
        await given.commit(given.entry("s", state="open"))
        page = given.page(given.entry("new", given.intent("new")), given.entry("s", state="closed"), cursor=[1])
        assert isinstance(await given.store.commit(page), Stale)
        assert await given.subjects() == ["s"]
        assert await given.store.recall("inbox", ["new", "s"]) == {"s": Known("open", 1)}
        assert (await given.feed()).cursor is None
        assert await given.claims() == []

    async def test_a_transition_from_what_was_recalled_is_recorded(self, given: Given) -> None:
        await given.commit(given.entry("s", state="open"))
        await given.commit(given.entry("s", state="closed", expect=1, seq=2))
        assert await given.store.recall("inbox", ["s"]) == {"s": Known("closed", 2)}
        assert [event.state for event in await given.events()] == ["closed", "open"]

    async def test_a_transition_that_someone_else_recorded_is_a_duplicate(self, given: Given) -> None:
        await given.commit(given.entry("s", state="open"))
        first = await given.commit(given.entry("s", given.intent("s2"), state="closed", expect=1, seq=2))
        again = await given.commit(given.entry("s", given.intent("s2"), state="closed", expect=1, seq=2))
        assert again.event_ids == first.event_ids
        assert again.verdicts[0][0].outcome == "duplicate"

    async def test_there_and_back_in_one_page_is_three_events(self, given: Given) -> None:
        committed = await given.commit(
            given.entry("s", given.intent("s1"), state="A", seq=1),
            given.entry("s", given.intent("s2"), state="B", expect=1, seq=2),
            given.entry("s", given.intent("s3"), state="A", expect=2, seq=3),
        )
        assert [verdicts[0].outcome for verdicts in committed.verdicts] == ["fired", "fired", "fired"]
        assert await given.store.recall("inbox", ["s"]) == {"s": Known("A", 3)}

    async def test_an_event_without_memory_id_is_not_remembered(self, given: Given) -> None:
        await given.commit(given.entry("s", memory_id=""))
        again = await given.commit(given.entry("s", memory_id=""))
        assert len(again.event_ids) == 1
        assert len(await given.events()) == 2
        assert (await given.feed()).memory == 0

    async def test_recall_leaves_out_what_is_unknown(self, given: Given) -> None:
        await given.commit(given.entry("s", state="open"))
        assert await given.store.recall("inbox", ["s", "t"]) == {"s": Known("open", 1)}
        assert await given.store.recall("inbox", []) == {}

    async def test_recall_takes_many(self, given: Given) -> None:
        names = [f"s{n}" for n in range(1200)]
        await given.commit(*(given.entry(name) for name in names))
        assert set(await given.store.recall("inbox", names)) == set(names)
        assert (await given.feed()).memory == len(names)

    async def test_each_feed_has_a_memory_of_its_own(self, given: Given) -> None:
        await given.open(definitions(feeds=(feed("inbox", identity="transition"), feed("news"))))
        await given.refresh()
        await given.commit(given.entry("s"))
        assert await given.store.recall("news", ["s"]) == {}

    async def test_a_page_without_cursor_leaves_the_cursor(self, given: Given) -> None:
        await given.commit(cursor=[1])
        await given.commit(given.entry("s"))
        assert (await given.feed()).cursor == [1]

    async def test_only_the_last_page_counts_as_a_read(self, given: Given) -> None:
        await given.commit(given.entry("s"), cursor=[1])
        before = await given.feed()
        await given.commit(given.entry("t"), cursor=[2], done=True)
        after = await given.feed()
        assert (before.reads, before.baselined) == (0, False)
        assert (after.reads, after.baselined) == (1, True)

    async def test_watermark_due_time_and_health_are_kept(self, given: Given) -> None:
        now = given.clock.time()
        health = Health(
            rate_limited=1,
            code="rate_limited",
            message="slow down",
            blocked_until=now + 30,
            failing_since=now - 60,
            offline_since=now - 5,
            probes=2,
        )
        await given.commit(watermark=given.now(-5), next_due=given.now(60), health=health, done=True)
        state = await given.feed()
        assert (state.watermark, state.next_due, state.health) == (given.now(-5), given.now(60), health)
        assert state.last_success == given.now()

    async def test_after_the_last_page_of_a_last_read_nothing_is_due(self, given: Given) -> None:
        await given.commit(given.entry("a"), next_due=given.now(60))
        await given.commit(given.entry("b"))
        assert (await given.feed()).next_due == given.now(60)
        await given.commit(given.entry("c"), done=True)
        assert (await given.feed()).next_due is None

    async def test_a_webhook_commits_without_a_lease(self, given: Given) -> None:
        await given.store.release_lease(given.lease, "a")
        committed = await given.store.commit(given.page(given.entry("s", given.intent("s")), token=None))
        assert isinstance(committed, Committed)
        assert committed.verdicts[0][0].outcome == "fired"

    async def test_new_ready_runs_are_handed_back_claimed(self, given: Given) -> None:
        entries = [given.entry(each, given.intent(each)) for each in "abc"]
        committed = await given.commit(*entries, claim=2, holder="w")
        assert [claim.events[0].subject for claim in committed.claimed] == ["a", "b"]
        assert [claim.events[0].subject for claim in await given.claims()] == ["c"]
        assert [await given.settle(claim) for claim in committed.claimed] == ["settled", "settled"]

    async def test_a_handed_run_says_whether_others_may_wait_for_its_end(self, given: Given) -> None:
        free, slotted = given.intent("a"), given.intent("b", slot="k", overlap="queue")
        committed = await given.commit(given.entry("a", free), given.entry("b", slotted), claim=2, holder="w")
        assert [(claim.events[0].subject, claim.alone) for claim in committed.claimed] == [("a", True), ("b", False)]

    async def test_no_more_is_handed_back_than_was_asked_for(self, given: Given) -> None:
        both = given.entry("s", given.intent("s"), given.intent("s", trigger="other"))
        committed = await given.commit(both, claim=1, holder="w")
        assert len(committed.claimed) == 1
        assert len(await given.claims()) == 1

    async def test_a_run_that_is_due_now_is_handed_back_at_every_instant(self, given: Given) -> None:
        """`Clock.time` has fractions that `Clock.now` rounds to microseconds: the store rounds in the same way."""
        instants = 1_000
        for number in range(instants):
            given.clock.advance(0.001 + 1e-7 * (number % 10) + number / 3e9)
            name = f"s{number}"
            committed = await given.commit(given.entry(name, given.intent(name)), token=None, claim=1, holder="w")
            assert [claim.id for claim in committed.claimed] == [committed.verdicts[0][0].run_id], given.clock.time()

    async def test_what_is_due_later_is_not_handed_back(self, given: Given) -> None:
        entry = given.entry("s", given.intent("s", due_at=given.now(60)))
        assert (await given.commit(entry, claim=5, holder="w")).claimed == []

    async def test_a_failure_is_kept_with_its_health_and_a_tick(self, given: Given) -> None:
        failed = failure(given)
        await given.store.fail(failed)
        state = await given.feed()
        assert (state.health, state.next_due) == (failed.health, failed.next_due)
        assert state.last_success is None
        [span] = await given.store.ticks("inbox")
        assert (span.result, span.error, span.count) == ("error", "it broke", 1)

    async def test_reads_that_found_nothing_extend_one_span(self, given: Given) -> None:
        await given.store.record_idle([rest(given)])
        begun = given.now()
        given.clock.advance(10)
        await given.store.record_idle([rest(given)])
        [span] = await given.store.ticks("inbox")
        assert (span.result, span.count, span.started_at, span.ended_at) == ("nothing_new", 2, begun, given.now())
        state = await given.feed()
        assert (state.last_success, state.reads) == (given.now(), 2)
        assert state.next_due == given.now(60)

    async def test_what_was_read_before_a_reset_does_not_undo_it(self, given: Given) -> None:
        """Idle reads are written with a delay, and another process may reset the feed meanwhile."""
        now = msgspec.structs.replace(rest(given), revision=given.revision, cursor=[7])
        for _ in range(2):
            assert list(await given.store.record_idle([now])) == []
        assert (await given.feed()).cursor == [7]
        await given.store.reset("mail", cursor=True)
        wanted = await given.feed()
        late = msgspec.structs.replace(now, cursor=[8], watermark=given.now(), next_due=given.now(600))
        assert list(await given.store.record_idle([late])) == ["inbox"]
        state = await given.feed()
        assert (state.cursor, state.watermark, state.next_due) == (None, None, wanted.next_due)
        assert (state.reads, state.baselined) == (wanted.reads, wanted.baselined)
        later = msgspec.structs.replace(late, revision=state.revision)
        assert list(await given.store.record_idle([later])) == []
        assert (await given.feed()).cursor == [8]

    async def test_events_end_a_span(self, given: Given) -> None:
        await given.store.record_idle([rest(given)])
        await given.commit(
            given.entry("s"), tick=Tick(result="events", started_at=given.now(), seen=4, new=1), done=True
        )
        await given.store.record_idle([rest(given)])
        spans = await given.store.ticks("inbox")
        assert [span.result for span in spans] == ["nothing_new", "events", "nothing_new"]
        assert (spans[1].seen, spans[1].new) == (4, 1)

    async def test_adjoining_coverage_grows_together_and_a_gap_stays(self, given: Given) -> None:
        hour = timedelta(hours=1)
        begin = given.now()
        for first, last in ((0, 1), (1, 2), (5, 6)):
            covered = Span(begin + first * hour, begin + last * hour)
            await given.commit(tick=Tick(result="nothing_new", started_at=begin, covered=covered), done=True)
        spans = (await given.feed()).coverage
        assert spans == (Span(begin, begin + 2 * hour), Span(begin + 5 * hour, begin + 6 * hour))

    async def test_an_event_that_the_store_refused_is_a_dead_letter(self, given: Given) -> None:
        await given.store.dead_letter("inbox", given.entry("s").event, "a number too large")
        [buried] = (await given.store.dead()).items
        assert (buried.what, buried.key, buried.reason) == ("event", "s:None", "a number too large")
