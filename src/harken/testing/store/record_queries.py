"""The contract of `Records`: every query, in keyset pages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from harken.event import Known, Verdict
from harken.feed import INTERNAL
from harken.runs import Again, Dead, Finished
from harken.store import Backlog, Page, Settlement, Store
from harken.testing.store.claims import step
from harken.testing.store.columnar_event_history import HistoryContract
from harken.testing.store.leases import rest
from harken.testing.store.paging import PagingContract
from harken.testing.store.subject_index import ObjectsContract
from harken.testing.store.world import INBOX, INTERNAL_FEED, MAIL, OTHER, Given, definitions, feed, trigger

__all__ = ["RecordsContract", "all_pages"]


async def all_pages(ask: Callable[..., Awaitable[Page]], limit: int, **filters: Any) -> list[Any]:
    """Items of all pages."""
    page = await ask(limit=limit, **filters)
    items = list(page.items)
    while page.next is not None:
        page = await ask(limit=limit, before=page.next, **filters)
        items += page.items
    return items


class RecordsContract(ObjectsContract, HistoryContract, PagingContract):
    async def test_events_come_newest_first(self, given: Given) -> None:
        await given.commit(*(given.entry(each) for each in "abc"))
        assert [event.subject for event in await given.events()] == ["c", "b", "a"]

    async def test_pages_show_every_event_once(self, given: Given) -> None:
        names = [f"s{n}" for n in range(23)]
        await given.commit(*(given.entry(name) for name in names))
        seen = await all_pages(given.store.events, limit=5)
        assert [event.subject for event in seen] == names[::-1]

    async def test_a_page_is_not_moved_by_what_arrives_meanwhile(self, given: Given) -> None:
        await given.commit(*(given.entry(each) for each in "abcd"))
        first = await given.store.events(limit=2)
        await given.commit(given.entry("e"))
        second = await given.store.events(limit=2, before=first.next)
        assert [event.subject for event in second.items] == ["b", "a"]

    async def test_triggers_are_read_by_name_and_in_pages(self, given: Given) -> None:
        names = ["B", "Z", "a", "a-1", "a1", "ä", "b", "mail"]
        await given.open(definitions(triggers=tuple(trigger(name) for name in names)))
        await given.open(definitions(triggers=tuple(trigger(name) for name in names if name != "a1")))
        left = sorted({*names} - {"a1"})
        seen: list[str] = []
        while page := await given.store.triggers(after=seen[-1] if seen else "", limit=2):
            assert len(page) <= 2
            seen += [state.name for state in page]
        assert seen == left
        assert [state.name for state in await given.store.triggers()] == left
        assert [state.name for state in await given.store.triggers(after="b")] == ["mail", "ä"]
        assert [state.name for state in await given.store.triggers(names=["mail", "a1", "B", "none"])] == ["B", "mail"]
        assert await given.store.triggers(names=[]) == []

    async def test_feeds_are_read_by_name(self, given: Given) -> None:
        await given.open(definitions(feeds=(INBOX, INTERNAL_FEED, feed("news"))))
        assert [state.name for state in await given.store.feeds(names=["news", "none"])] == ["news"]
        assert await given.store.feeds(names=[]) == []

    async def test_events_of_one_feed(self, given: Given) -> None:
        await given.open(definitions(feeds=(INBOX, INTERNAL_FEED, feed("news"))))
        await given.commit(given.entry("s"))
        await given.commit(given.entry("n"), feed="news", revision=given.opened.feeds["news"].revision)
        assert [await given.subjects(feed="news"), await given.subjects(feed=INTERNAL)] == [["n"], []]

    async def test_events_of_one_key(self, given: Given) -> None:
        await given.commit(given.entry("s", state="A"), given.entry("t", state="A"))
        assert await given.subjects(key="s:A") == ["s"]

    async def test_events_that_a_trigger_decided_about(self, given: Given) -> None:
        filtered = Verdict(trigger="other", outcome="filtered", reason="no")
        await given.commit(given.entry("a", given.intent("a")), given.entry("b", filtered), given.entry("c", filtered))
        assert await given.subjects(trigger="other") == ["b", "c"]
        assert await given.subjects(trigger="mail") == ["a"]

    async def test_pages_of_a_rare_trigger_are_full_to_the_end(self, given: Given) -> None:
        entries = [given.entry(f"s{n}", *[given.intent(f"s{n}")] * (n % 7 == 0)) for n in range(30)]
        await given.commit(*entries)
        seen = await all_pages(given.store.events, limit=2, trigger="mail")
        assert [event.subject for event in seen] == ["s28", "s21", "s14", "s7", "s0"]

    async def test_events_since_a_time(self, given: Given) -> None:
        await given.commit(given.entry("old"))
        given.clock.advance(10)
        await given.commit(given.entry("new"))
        assert await given.subjects(since=given.now(-5)) == ["new"]

    async def test_the_tail_comes_oldest_first_after_an_id(self, given: Given) -> None:
        committed = await given.commit(*(given.entry(each) for each in "abcd"))
        tail = await given.store.events_after(committed.event_ids[0], limit=2)
        assert [event.subject for event in tail] == ["b", "c"]

    async def test_ids_rise_in_the_order_of_commits(self, given: Given) -> None:
        first = await given.commit(given.entry("a"), given.entry("b"))
        second = await given.commit(given.entry("c"))
        ids = [*first.event_ids, *second.event_ids]
        assert ids == sorted(set(ids))

    async def test_an_unknown_event_is_none(self, given: Given) -> None:
        assert await given.store.event(4711) is None

    async def test_events_by_their_ids_come_newest_first_without_unknown_ones(self, given: Given) -> None:
        committed = await given.commit(given.entry("a", given.intent("a")), *(given.entry(each) for each in "bc"))
        a, _, c = committed.event_ids
        found = await given.store.events_by_id([a, 4711, c, a])
        assert list(found) == [await given.store.event(c), await given.store.event(a)]
        assert await given.store.events_by_id([]) == []

    async def test_many_events_are_found_by_their_ids(self, given: Given) -> None:
        committed = await given.commit(*(given.entry(f"s{n}") for n in range(1_200)))
        found = await given.store.events_by_id(committed.event_ids)
        assert [event.id for event in found] == sorted(committed.event_ids, reverse=True)

    async def test_a_sighting_tells_when_a_subject_was_seen_first_and_last(self, given: Given) -> None:
        first = given.now()
        await given.commit(given.entry("s", state="A"))
        given.clock.advance(10)
        await given.commit(given.entry("s", state="B", expect=1, seq=2))
        assert await given.store.memory_of("inbox", "s") == (Known("B", 2), first, given.now())
        assert await given.store.memory_of("inbox", "t") is None

    async def test_of_a_subject_that_is_no_longer_listed_only_the_times_are_known(self, given: Given) -> None:
        first = given.now()
        await given.commit(given.entry("s", state="A"))
        given.clock.advance(10)
        await given.store.forget("inbox", given.lease.token, [], given.now())
        assert await given.store.memory_of("inbox", "s") == (Known(None, 1), first, first)

    async def test_runs_come_newest_first_in_pages(self, given: Given) -> None:
        run_ids = await given.fires(*(f"s{n}" for n in range(13)))
        seen = await all_pages(given.store.runs, limit=4)
        assert [run.id for run in seen] == run_ids[::-1]

    async def test_runs_by_trigger_status_and_workflow(self, given: Given) -> None:
        [mail] = await given.fires("a")
        [other] = await given.fires("b", trigger="other", hold="flood")
        found = [
            (await given.store.runs(trigger="mail")).items,
            (await given.store.runs(status="held")).items,
            (await given.store.runs(workflow="triage", status="ready")).items,
            (await given.store.runs(workflow="nothing")).items,
        ]
        assert [[run.id for run in runs] for runs in found] == [[mail], [other], [mail], []]

    async def test_runs_of_an_event(self, given: Given) -> None:
        committed = await given.commit(given.entry("s", given.intent("s"), given.intent("s", trigger="other")))
        await given.fires("t")
        page = await given.store.runs(event_id=committed.event_ids[0])
        assert sorted(run.trigger for run in page.items) == ["mail", "other"]

    async def test_a_run_has_its_events_input_and_journal(self, given: Given) -> None:
        claim = await given.running("s", input=b'{"n":1}')
        await given.store.journal(claim.id, claim.token, [step()])
        run = await given.run(claim.id)
        assert (run.trigger, run.workflow, run.event_keys, run.input) == ("mail", "triage", ("s:None",), {"n": 1})
        assert run.journal == (step(),)

    async def test_a_unique_beginning_of_an_id_is_enough(self, given: Given) -> None:
        run_ids = await given.fires("a", "b", "c")
        assert (await given.run(run_ids[0][:12])).id == run_ids[0]
        assert await given.store.run("") is None

    async def test_what_is_no_id_at_all_is_none(self, given: Given) -> None:
        assert await given.store.run("no such run") is None

    async def test_dead_letters_that_died_together_are_all_shown(self, given: Given) -> None:
        run_ids = await given.fires(*(f"s{n}" for n in range(7)))
        claims = await given.claims()
        await given.store.settle([Settlement(id=each.id, token=each.token, outcome=Dead(error="x")) for each in claims])
        seen = await all_pages(given.store.dead, limit=3)
        assert sorted(letter.id for letter in seen) == sorted(run_ids)

    async def test_feeds_and_triggers_are_listed(self, given: Given) -> None:
        assert {state.name for state in await given.store.feeds()} == {"inbox", INTERNAL}
        assert {state.name for state in await given.store.triggers()} == {"mail", "other"}

    async def test_removed_ones_are_not_listed(self, given: Given) -> None:
        await given.open(definitions(triggers=(MAIL,)))
        assert [state.name for state in await given.store.triggers()] == ["mail"]

    async def test_a_trigger_counts_what_it_fired(self, given: Given) -> None:
        await given.fires("a", "b")
        [mail] = [state for state in await given.store.triggers() if state.name == "mail"]
        assert (mail.fired, mail.last_fired_at) == (2, given.now())

    async def test_a_trigger_counts_its_good_ends_for_good(self, given: Given) -> None:
        await given.fires("a", "b", "c", "d")
        one, two, three, four = await given.claims()
        await given.settle(one, trigger="mail")
        await given.settle(two, Finished(filtered=True), trigger="mail")
        await given.settle(three, Dead(error="x"), trigger="mail")
        await given.settle(four, record=step("deliver"), trigger="mail")
        assert await given.settle(four, trigger="mail") == "lost"
        given.clock.advance(3600)
        assert await given.store.prune(events=60, ticks=60, runs=60, pushed=60, audit=60) > 0
        assert {state.name: state.done for state in await given.store.triggers()} == {"mail": 2, "other": 0}

    async def test_a_feed_counts_what_it_has_found_for_good(self, given: Given) -> None:
        await given.commit(given.entry("a"), given.entry("b"))
        await given.commit(given.entry("b"), given.entry("c"))
        await given.store.record_idle([rest(given)])
        given.clock.advance(3600)
        assert await given.store.prune(events=60, ticks=60, runs=60, pushed=60, audit=60) > 0
        assert (await given.feed()).seen == 3
        assert [state.seen for state in await given.store.feeds() if state.name == "inbox"] == [3]

    async def test_the_newest_ticks_come_first(self, given: Given) -> None:
        for result in ("nothing_new", "unchanged", "nothing_new"):
            given.clock.advance(1)
            await given.store.record_idle([rest(given, result)])
        spans = await given.store.ticks("inbox", limit=2)
        assert [span.result for span in spans] == ["nothing_new", "unchanged"]

    async def test_counts_are_of_events_and_of_runs_by_status(self, given: Given) -> None:
        await given.fires("a", "b")
        await given.fires("c", hold="flood")
        counts = await given.store.counts()
        assert (counts["events"], counts["runs_ready"], counts["runs_held"]) == (3, 2, 1)

    async def test_backlogs_are_of_held_dead_and_retrying_runs_by_trigger(self, given: Given) -> None:
        await given.fires("a", "b", hold="flood")
        await given.fires("c", hold="paused", trigger="other")
        await given.fires("d", "e", "f", "g")
        dead, again, done, _ = await given.claims()
        await given.settle(dead, Dead(error="gone"))
        await given.settle(again, Again(at=given.clock.now() + timedelta(seconds=60), error="503"))
        await given.settle(done)
        found = await given.store.backlogs()
        assert found == {
            "mail": Backlog(held={"flood": 2}, dead=1, retrying=1),
            "other": Backlog(held={"paused": 1}),
        }
        await given.store.release("mail")
        await given.store.drop_dead_letter(dead.id)
        assert (await given.store.backlogs())["mail"] == Backlog(retrying=1)

    async def test_an_empty_store_answers_everything(self, store: Store) -> None:
        await store.open(definitions(feeds=(), triggers=()))
        assert [(await store.events()).items, (await store.runs()).items, (await store.dead()).items] == [[], [], []]
        assert (await store.counts())["events"] == 0
        assert await store.ticks("inbox") == []

    async def test_a_trigger_moved_to_another_feed_keeps_its_runs(self, given: Given) -> None:
        [run_id] = await given.fires("s")
        moved = trigger("mail", on="news")
        await given.open(definitions(feeds=(INBOX, INTERNAL_FEED, feed("news")), triggers=(moved, OTHER)))
        assert [run.id for run in (await given.store.runs(trigger="mail")).items] == [run_id]
