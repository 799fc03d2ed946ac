"""The contract of `Upkeep`: expired claims are requeued, and retention deletes only what is old and not needed."""

from __future__ import annotations

import msgspec

from harken.event import Event, Verdict
from harken.feed import Feed
from harken.runs import Finished, Park, StepRecord
from harken.store import Committed, Erased, Store
from harken.store.document_kinds import STARRED
from harken.testing.store.claims import step
from harken.testing.store.leases import rest
from harken.testing.store.world import INBOX, INTERNAL_FEED, Given, Reopen, StoreWorld, definitions, feed

__all__ = ["UpkeepContract"]

DAY = 86_400.0
HOOK = Feed(name="hook", kind="webhook", integration="", way="push", identity="once")


async def prune_all(store: Store, **seconds: float) -> int:
    """Prune until nothing more is deleted. Return how many rows were deleted."""
    limits = {"events": DAY, "ticks": DAY, "runs": DAY, "pushed": DAY, "audit": DAY} | seconds
    total = 0
    while gone := await store.prune(**limits):
        total += gone
    return total


async def bank_all(store: Store, keep: int) -> None:
    while await store.bank_events(keep):
        pass


class UpkeepContract(StoreWorld):
    async def test_a_run_whose_claim_ran_out_is_ready_again(self, given: Given) -> None:
        claim = await given.running()
        given.clock.advance(61)
        assert await given.store.requeue_expired() == 1
        assert (await given.claims_one("w2")).id == claim.id

    async def test_a_run_whose_claim_lives_is_left_alone(self, given: Given) -> None:
        claim = await given.running()
        given.clock.advance(59)
        assert await given.store.requeue_expired() == 0
        assert await given.status(claim.id) == "running"

    async def test_requeuing_twice_finds_nothing_more(self, given: Given) -> None:
        await given.running()
        given.clock.advance(61)
        assert [await given.store.requeue_expired(), await given.store.requeue_expired()] == [1, 0]

    async def test_a_run_handed_back_by_a_commit_is_requeued_too(self, given: Given) -> None:
        await given.commit(given.entry("s", given.intent("s")), claim=1, holder="w")
        given.clock.advance(3600)
        assert await given.store.requeue_expired() == 1

    async def test_old_events_and_runs_that_are_over_go(self, given: Given) -> None:
        claim = await given.running()
        await given.settle(claim, Finished(), record=step())
        given.clock.advance(2 * DAY)
        assert await prune_all(given.store) > 0
        assert await given.events() == []
        assert await given.store.run(claim.id) is None
        assert await given.store.check() == []

    async def test_young_events_and_runs_stay(self, given: Given) -> None:
        claim = await given.running()
        await given.settle(claim)
        given.clock.advance(DAY / 2)
        assert await prune_all(given.store) == 0
        assert await given.status(claim.id) == "done"
        assert await given.subjects() == ["s"]

    async def test_open_runs_never_go_nor_do_their_events(self, given: Given) -> None:
        waiting = await given.running("waiting")
        await given.store.park(waiting.id, waiting.token, Park(waiting_for="approval"))
        await given.fires("ready")
        await given.fires("held", hold="flood")
        given.clock.advance(400 * DAY)
        await prune_all(given.store)
        assert sorted(run.status for run in (await given.store.runs()).items) == ["held", "ready", "waiting"]
        assert await given.subjects() == ["waiting", "ready", "held"]

    async def test_the_last_events_of_each_outcome_stay(self, given: Given) -> None:
        for n in range(5):
            await given.settle(await given.running(f"fired{n}"))
            verdicts = [Verdict(trigger="mail", outcome=outcome) for outcome in ("filtered", "error")]
            entries = [given.entry(f"{one.outcome}{n}", one) for one in verdicts]
            await given.commit(*entries, given.entry(f"nobody{n}"))
        given.clock.advance(2 * DAY)
        await bank_all(given.store, 2)
        await prune_all(given.store)
        kept = [f"{what}{n}" for n in (3, 4) for what in ("fired", "filtered", "error")]
        assert await given.subjects() == kept
        banked = await given.store.banked_events("mail")
        ids = {subject: event.id for event in await given.events() if (subject := event.subject)}
        assert {name: list(found) for name, found in banked.items()} == {
            name: [ids[f"{name}4"], ids[f"{name}3"]] for name in ("fired", "filtered", "error")
        }
        assert await given.store.banked_events("other") == {}
        assert await given.store.check() == []

    async def test_what_leaves_the_bank_goes(self, given: Given, reopen: Reopen) -> None:
        for n in range(3):
            await given.commit(given.entry(f"old{n}", Verdict(trigger="mail", outcome="filtered")))
        given.clock.advance(2 * DAY)
        await bank_all(given.store, 2)
        await prune_all(given.store)
        assert await given.subjects() == ["old1", "old2"]
        await given.renew()
        await given.commit(given.entry("new", Verdict(trigger="mail", outcome="filtered")))
        given.clock.advance(60 + DAY / 2)
        await bank_all(given.store, 2)
        await prune_all(given.store)
        assert await given.subjects() == ["old2", "new"]
        given.store = await reopen(given.store)
        await bank_all(given.store, 0)
        await prune_all(given.store)
        assert await given.subjects() == ["new"]
        assert await given.store.banked_events("mail") == {}

    async def test_nothing_goes_that_the_bank_has_not_seen(self, given: Given) -> None:
        await given.store.bank_events(5)
        await given.commit(given.entry("s", Verdict(trigger="mail", outcome="filtered")))
        given.clock.advance(2 * DAY)
        await prune_all(given.store)
        assert await given.subjects() == ["s"]

    async def test_starred_events_stay_until_the_star_is_gone(self, given: Given) -> None:
        committed = await given.commit(given.entry("a"), given.entry("b"))
        star = str(committed.event_ids[0])
        await given.store.put(STARRED, star, {"who": "ana"})
        given.clock.advance(2 * DAY)
        await prune_all(given.store)
        assert await given.subjects() == ["a"]
        await given.store.delete(STARRED, star)
        await prune_all(given.store)
        assert await given.subjects() == []

    async def test_lists_of_a_trigger_that_is_gone_are_dropped(self, given: Given) -> None:
        await given.commit(given.entry("s", Verdict(trigger="nobody", outcome="error")))
        given.clock.advance(2 * DAY)
        await bank_all(given.store, 5)
        await prune_all(given.store)
        assert await given.store.banked_events("nobody") == {}
        assert await given.subjects() == []

    async def test_an_event_that_was_erased_leaves_the_bank_in_peace(self, given: Given) -> None:
        verdict = Verdict(trigger="mail", outcome="filtered")
        committed = await given.commit(given.entry("a", verdict), given.entry("b", verdict))
        given.clock.advance(2 * DAY)
        await bank_all(given.store, 2)
        await given.store.erase([committed.event_ids[0]], [], lambda key, payload: False)
        await given.renew()
        await given.commit(*(given.entry(f"new{n}", verdict) for n in range(3)))
        given.clock.advance(61)
        await bank_all(given.store, 2)
        await prune_all(given.store)
        assert await given.subjects() == ["new0", "new1", "new2"]

    async def test_the_memory_of_a_poll_never_goes_by_time(self, given: Given) -> None:
        await given.commit(given.entry("s", given.intent("s")))
        await given.settle(await given.claims_one())
        given.clock.advance(400 * DAY)
        await prune_all(given.store)
        assert "s" in await given.store.recall("inbox", ["s"])

    async def test_a_repeat_is_a_duplicate_even_when_the_first_event_is_gone(self, given: Given) -> None:
        await given.settle(await given.running("s"))
        given.clock.advance(400 * DAY)
        await prune_all(given.store)
        await given.renew()
        assert (await given.decides("s")).outcome == "duplicate"
        assert await given.claims() == []

    async def test_the_memory_of_a_push_goes_after_its_time(self, given: Given) -> None:
        opened = await given.open(definitions(feeds=(INBOX, INTERNAL_FEED, HOOK)))
        await given.commit(given.entry("s"), feed="hook", revision=opened.feeds["hook"].revision, token=None)
        given.clock.advance(2 * DAY)
        await prune_all(given.store, pushed=3 * DAY)
        assert "s" in await given.store.recall("hook", ["s"])
        given.clock.advance(2 * DAY)
        await prune_all(given.store, pushed=3 * DAY)
        assert await given.store.recall("hook", ["s"]) == {}

    async def test_only_pushed_and_absent_subjects_go_by_time_however_many_there_are(self, given: Given) -> None:
        hooks = [msgspec.structs.replace(HOOK, name=f"hook{n}") for n in range(3)]
        listing = feed("listing", identity="once")
        opened = await given.open(definitions(feeds=(INBOX, INTERNAL_FEED, listing, *hooks)))
        names = [f"s{n}" for n in range(150)]

        async def all_of(name: str, token: int | None = None) -> None:
            revision = opened.feeds[name].revision
            await given.commit(*(given.entry(each) for each in names), feed=name, revision=revision, token=token)

        for name in ("hook0", "hook1"):
            await all_of(name)
        for name in ("inbox", "listing"):
            await all_of(name, given.lease.token)
        given.clock.advance(4 * DAY)
        await given.renew()
        assert await given.store.forget("inbox", given.lease.token, names[100:], given.now(-DAY)) == 100
        await all_of("hook2")
        await prune_all(given.store, pushed=3 * DAY, runs=30 * DAY)
        left = {name: len(await given.store.recall(name, names)) for name in opened.feeds if name != INTERNAL_FEED.name}
        assert left == {"inbox": 150, "listing": 150, "hook0": 0, "hook1": 0, "hook2": 150}
        given.clock.advance(31 * DAY)
        await prune_all(given.store, pushed=99 * DAY, runs=30 * DAY)
        assert sorted(await given.store.recall("inbox", names)) == sorted(names[100:])
        assert len(await given.store.recall("listing", names)) == 150

    async def test_a_sweep_of_many_subjects_keeps_what_is_listed(self, given: Given) -> None:
        opened = await given.open(definitions(feeds=(feed("inbox", identity="once"), INTERNAL_FEED)))
        names = [f"s{n}" for n in range(2_500)]
        for begin in range(0, len(names), 500):
            entries = [given.entry(each) for each in names[begin : begin + 500]]
            await given.commit(*entries, revision=opened.feeds["inbox"].revision)
        given.clock.advance(2 * DAY)
        await given.renew()
        assert await given.store.forget("inbox", given.lease.token, names[:1_200], given.now(-DAY)) == 1_300
        assert sorted(await given.store.recall("inbox", names)) == sorted(names[:1_200])

    async def test_old_runs_behind_many_that_may_not_go_are_found(self, given: Given) -> None:
        for begin in range(0, 1_200, 200):
            entries = [given.entry(f"h{n}", given.intent(f"h{n}", hold="flood")) for n in range(begin, begin + 200)]
            await given.commit(*entries)
        done = await given.running("s")
        await given.settle(done)
        given.clock.advance(2 * DAY)
        await prune_all(given.store)
        assert await given.store.run(done.id) is None
        assert (await given.store.counts())["runs_held"] == 1_200
        assert await given.store.check() == []

    async def test_space_is_given_back_until_there_is_nothing_to_give(self, given: Given) -> None:
        await given.commit(*(given.entry(f"s{n}") for n in range(200)))
        given.clock.advance(2 * DAY)
        await prune_all(given.store)
        while await given.store.shrink():
            pass
        space = await given.store.space()
        assert space.bytes > space.unused >= 0
        assert space.advice == ""
        assert await given.store.check() == []

    async def test_a_feed_that_is_no_longer_pushed_forgets_nothing_by_time(self, given: Given) -> None:
        opened = await given.open(definitions(feeds=(INBOX, INTERNAL_FEED, HOOK)))
        await given.commit(given.entry("s"), feed="hook", revision=opened.feeds["hook"].revision, token=None)
        polled = feed("hook", identity="once")
        await given.open(definitions(feeds=(INBOX, INTERNAL_FEED, polled), generation="g2"))
        given.clock.advance(4 * DAY)
        await prune_all(given.store, pushed=3 * DAY)
        assert "s" in await given.store.recall("hook", ["s"])

    async def test_a_feed_that_is_pushed_now_forgets_what_it_knew_as_a_poll_after_its_time(self, given: Given) -> None:
        polled = feed("hook", identity="once")
        opened = await given.open(definitions(feeds=(INBOX, INTERNAL_FEED, polled)))
        await given.commit(
            given.entry("s"), feed="hook", revision=opened.feeds["hook"].revision, token=given.lease.token
        )
        given.clock.advance(DAY)
        opened = await given.open(definitions(feeds=(INBOX, INTERNAL_FEED, HOOK), generation="g2"))
        await given.commit(given.entry("t"), feed="hook", revision=opened.feeds["hook"].revision, token=None)
        given.clock.advance(2.5 * DAY)
        await prune_all(given.store, pushed=3 * DAY)
        assert set(await given.store.recall("hook", ["s", "t"])) == {"t"}

    async def test_old_ticks_go_and_the_current_span_stays(self, given: Given) -> None:
        await given.store.record_idle([rest(given)])
        await given.store.record_idle([rest(given, "unchanged")])
        given.clock.advance(2 * DAY)
        await prune_all(given.store)
        assert [span.result for span in await given.store.ticks("inbox")] == ["unchanged"]

    async def test_a_slice_is_small_and_the_next_goes_on(self, given: Given) -> None:
        names = [f"s{n}" for n in range(3000)]
        await given.commit(*(given.entry(name) for name in names))
        given.clock.advance(2 * DAY)
        first = await given.store.prune(events=DAY, ticks=DAY, runs=DAY, pushed=DAY, audit=DAY)
        assert 0 < first < len(names)
        await prune_all(given.store)
        assert await given.events() == []

    async def test_old_audits_go_and_young_ones_stay(self, given: Given) -> None:
        for n in range(250):
            await given.store.audit("ana", "pause", f"trigger {n}", {})
        given.clock.advance(2 * DAY)
        await given.store.audit("ana", "resume", "trigger 7", {})
        assert await prune_all(given.store, audit=3 * DAY) == 0
        assert await prune_all(given.store) == 250
        page = await given.store.audits()
        assert [item["did"] for item in page.items] == ["resume"]
        assert page.next is None

    async def test_pages_of_audits_go_on_after_older_ones_went(self, given: Given) -> None:
        for n in range(4):
            await given.store.audit("ana", "pause", str(n), {})
            given.clock.advance(DAY)
        first = await given.store.audits(limit=2)
        await prune_all(given.store, audit=3.5 * DAY)
        second = await given.store.audits(before=first.next, limit=2)
        assert [item["what"] for item in (*first.items, *second.items)] == ["3", "2", "1"]
        assert second.next is None

    async def test_ids_do_not_come_back_after_everything_went(self, given: Given) -> None:
        before = await given.commit(given.entry("a"))
        given.clock.advance(2 * DAY)
        await prune_all(given.store)
        await given.renew()
        after = await given.commit(given.entry("b"))
        assert after.event_ids[0] > before.event_ids[0]

    async def test_ids_do_not_come_back_after_a_crash_either(self, given: Given, reopen: Reopen) -> None:
        before = await given.commit(given.entry("a"))
        given.clock.advance(2 * DAY)
        await prune_all(given.store)
        given.store = await reopen(given.store)
        await given.renew()
        after = await given.commit(given.entry("b"))
        assert after.event_ids[0] > before.event_ids[0]

    async def test_a_sound_store_has_no_findings(self, given: Given) -> None:
        await given.fires("a", "b", overlap="queue", slot="k")
        await given.running("c")
        assert await given.store.check() == []
        assert given.store.trouble == ""

    async def test_closing_twice_is_fine(self, store: Store) -> None:
        await store.close()
        await store.close()

    async def test_erased_events_and_runs_are_gone_and_the_store_is_sound(self, given: Given) -> None:
        first, second = await given.fires("ana", "bob")
        for claim in await given.claims():
            await given.store.journal(claim.id, claim.token, [StepRecord(path="s", action="llm", status="ok")])
            await given.settle(claim)
        ids = {event.subject: event.id for event in await given.events()}
        assert await given.store.erase([ids["ana"]], [first], no_letter) == Erased(events=1, runs=1)
        assert await given.store.run(first) is None
        assert await given.subjects() == ["bob"]
        assert (await given.run(second)).status == "done"
        assert await given.store.check() == []
        assert (await given.store.counts())["events"] == 1
        assert await given.store.erase([ids["ana"]], [first], no_letter) == Erased()

    async def test_what_is_erased_is_not_new_again(self, given: Given) -> None:
        [run] = await given.fires("ana")
        await given.settle(await given.claims_one())
        [event] = await given.events()
        await given.store.erase([event.id], [run], no_letter)
        known = await given.store.recall("inbox", ["ana"])
        assert known["ana"].seq == 1
        again = await given.store.commit(given.page(given.entry("ana", given.intent("ana"))))
        assert isinstance(again, Committed)
        assert [verdict.outcome for verdict in again.verdicts[0]] == ["duplicate"]

    async def test_a_run_that_is_not_over_keeps_itself_and_its_event(self, given: Given) -> None:
        claim = await given.running("ana")
        [event] = await given.events()
        assert await given.store.erase([event.id], [claim.id], no_letter) == Erased()
        await given.settle(claim)
        assert await given.store.erase([event.id], [claim.id], no_letter) == Erased(events=1, runs=1)

    async def test_refused_events_are_erased_by_what_they_say(self, given: Given) -> None:
        for name in ("ana", "bob"):
            event = Event(subject=name, type="mail", data={"from": f"{name}@example.com"}, occurred_at=given.now())
            await given.store.dead_letter("inbox", event, "too large")
        erased = await given.store.erase([], [], lambda key, payload: key == "ana" and "ana@example.com" in payload)
        assert erased == Erased(letters=1)
        assert [letter.key for letter in (await given.store.dead()).items] == ["bob"]


def no_letter(key: str, payload: str) -> bool:
    return False
