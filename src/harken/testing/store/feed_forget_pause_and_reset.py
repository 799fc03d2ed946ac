"""The contract of a feed's memory: what `forget` drops; and of pause, resume and reset."""

from __future__ import annotations

import pytest

from harken.circuit_breaker import Health
from harken.errors import NotFound
from harken.event import Known
from harken.store import Stale
from harken.testing.store.leases import failure
from harken.testing.store.world import INBOX, INTERNAL_FEED, MAIL, Given, StoreWorld, definitions, feed

__all__ = ["MemoryContract"]

DAY = 86_400.0


async def a_day_later(given: Given, *listed: str, feed: str = "inbox") -> int:
    """Forget after a day in which complete reads listed only these. Return how many were dropped."""
    given.clock.advance(DAY + 1)
    await given.renew()
    return await given.store.forget(feed, given.lease.token, listed, given.now(-DAY))


class MemoryContract(StoreWorld):
    async def test_what_is_still_listed_is_never_forgotten(self, given: Given) -> None:
        await given.commit(given.entry("s", state="open"))
        gone = [await a_day_later(given, "s") for _ in range(4)]
        assert gone == [0, 0, 0, 0]
        assert await given.store.recall("inbox", ["s"]) == {"s": Known("open", 1)}

    async def test_what_is_absent_and_old_goes(self, given: Given) -> None:
        opened = await given.open(definitions(feeds=(INBOX, INTERNAL_FEED, feed("news"))))
        await given.commit(given.entry("s"), given.entry("t"), feed="news", revision=opened.feeds["news"].revision)
        assert await a_day_later(given, "t", feed="news") == 1
        assert set(await given.store.recall("news", ["s", "t"])) == {"t"}

    async def test_what_was_absent_and_comes_back_is_a_transition_with_a_count_of_its_own(self, given: Given) -> None:
        await given.commit(given.entry("s", given.intent("s#1"), state="open"))
        assert await a_day_later(given) == 1
        known = (await given.store.recall("inbox", ["s"]))["s"]
        assert (known.state == "open", known.seq) == (False, 1)
        back = given.entry("s", given.intent("s#2"), state="open", expect=known.seq, seq=known.seq + 1)
        assert (await given.commit(back)).verdicts[0][0].outcome == "fired"

    async def test_being_listed_counts_as_seen(self, given: Given) -> None:
        await given.commit(given.entry("s"))
        await a_day_later(given, "s")
        given.clock.advance(DAY / 2)
        await given.renew()
        assert await given.store.forget("inbox", given.lease.token, [], given.now(-DAY)) == 0

    async def test_a_long_list_is_given_in_portions_before_anything_is_forgotten(self, given: Given) -> None:
        opened = await given.open(definitions(feeds=(INBOX, INTERNAL_FEED, feed("news"))))
        entries = [given.entry(name) for name in ("a", "b", "c")]
        await given.commit(*entries, feed="news", revision=opened.feeds["news"].revision)
        given.clock.advance(DAY + 1)
        await given.renew()
        for name in ("a", "b"):
            assert await given.store.forget("news", given.lease.token, [name], None) == 0
        assert await given.store.forget("news", given.lease.token, [], given.now(-DAY)) == 1
        assert set(await given.store.recall("news", ["a", "b", "c"])) == {"a", "b"}

    async def test_each_feed_forgets_its_own(self, given: Given) -> None:
        await given.open(definitions(feeds=(INBOX, INTERNAL_FEED, feed("news"))))
        await given.commit(given.entry("s"), feed="news", revision=given.opened.feeds["news"].revision)
        assert await a_day_later(given) == 0
        assert "s" in await given.store.recall("news", ["s"])

    async def test_what_is_young_is_kept_however_often_it_was_absent(self, given: Given) -> None:
        await given.commit(given.entry("s"))
        for _ in range(4):
            assert await given.store.forget("inbox", given.lease.token, [], given.now(-DAY)) == 0
        assert "s" in await given.store.recall("inbox", ["s"])

    async def test_time_alone_forgets_nothing(self, given: Given) -> None:
        await given.commit(given.entry("s"))
        given.clock.advance(30 * DAY)
        assert "s" in await given.store.recall("inbox", ["s"])

    async def test_a_new_event_counts_as_seen(self, given: Given) -> None:
        await given.commit(given.entry("s", state="A"))
        given.clock.advance(DAY + 1)
        await given.renew()
        await given.commit(given.entry("s", state="B", expect=1, seq=2))
        assert await given.store.forget("inbox", given.lease.token, [], given.now(-DAY)) == 0

    async def test_pausing_raises_the_revision_and_says_why(self, given: Given) -> None:
        state = await given.store.pause("mail", "holiday")
        assert state.paused == "holiday"
        assert isinstance(await given.store.commit(given.page(given.entry("s"))), Stale)

    async def test_pausing_what_does_not_exist_is_not_found(self, given: Given) -> None:
        with pytest.raises(NotFound):
            await given.store.pause("nobody", "")

    async def test_resuming_releases_what_the_pause_held_oldest_first(self, given: Given) -> None:
        await given.store.pause("mail", "holiday")
        await given.refresh()
        run_ids = []
        for subject in "abc":
            run_ids += await given.fires(subject, hold="paused")
            given.clock.advance(1)
        assert await given.statuses(run_ids) == ["held", "held", "held"]
        assert (await given.store.resume("mail")).paused == ""
        assert [claim.id for claim in await given.claims()] == run_ids

    async def test_resuming_raises_the_revision(self, given: Given) -> None:
        await given.store.pause("mail", "holiday")
        paused = (await given.feed()).revision
        await given.store.resume("mail")
        assert (await given.feed()).revision > paused

    async def test_resuming_leaves_what_the_flood_guard_held(self, given: Given) -> None:
        [run_id] = await given.fires("s", hold="flood")
        await given.store.resume("mail")
        assert await given.status(run_id) == "held"

    async def test_resuming_leaves_what_another_trigger_holds(self, given: Given) -> None:
        [run_id] = await given.fires("s", trigger="other", hold="paused")
        await given.store.resume("mail")
        assert await given.status(run_id) == "held"

    async def test_resuming_forgets_the_feeds_errors_and_makes_it_due(self, given: Given) -> None:
        await given.store.fail(failure(given))
        await given.store.resume("mail")
        state = await given.feed()
        assert (state.health, state.next_due) == (Health(), given.now())

    async def test_reset_clears_errors_and_pause_and_keeps_cursor_and_memory(self, given: Given) -> None:
        await given.commit(given.entry("s"), cursor=[1], done=True)
        await given.store.fail(failure(given))
        await given.store.pause("mail", "holiday")
        before = given.trigger()
        after = await given.store.reset("mail", cursor=False)
        state = await given.feed()
        assert (after.paused, after.epoch, after.start_line) == ("", before.epoch, before.start_line)
        assert (state.health, state.cursor, state.baselined) == (Health(), [1], True)
        assert "s" in await given.store.recall("inbox", ["s"])

    async def test_reset_releases_what_the_pause_held(self, given: Given) -> None:
        [run_id] = await given.fires("s", hold="paused")
        await given.store.reset("mail", cursor=False)
        assert await given.status(run_id) == "ready"

    async def test_reset_of_the_cursor_starts_again_from_now(self, given: Given) -> None:
        await given.open(definitions(triggers=(MAIL,)))
        await given.refresh()
        await given.commit(given.entry("s"), cursor=[1], done=True)
        before = given.trigger()
        given.clock.advance(60)
        after = await given.store.reset("mail", cursor=True)
        state = await given.feed()
        assert (after.epoch, after.start_line) == (before.epoch + 1, given.now())
        assert (state.cursor, state.baselined, state.memory) == (None, False, 0)
        assert state.revision > given.revision

    async def test_reset_of_the_cursor_leaves_the_other_triggers_alone(self, given: Given) -> None:
        before = given.trigger("other")
        given.clock.advance(60)
        await given.store.reset("mail", cursor=True)
        [after] = [state for state in await given.store.triggers() if state.name == "other"]
        assert (after.epoch, after.start_line) == (before.epoch, before.start_line)

    async def test_reset_keeps_the_count_of_changes_that_another_trigger_relies_on(self, given: Given) -> None:
        await given.commit(given.entry("s"), cursor=[1], done=True)
        await given.store.reset("mail", cursor=True)
        state = await given.feed()
        assert (state.cursor, state.memory) == (None, 1)

    async def test_a_seek_back_keeps_memory_and_has_the_feed_read_from_there(self, given: Given) -> None:
        await given.commit(given.entry("s", given.intent("s")), cursor={"at": 5})
        before = await given.feed()
        line = given.now(-3600)
        assert await given.store.seek("mail", line, revision=before.revision + 1, back=True) is None
        assert (await given.feed()).cursor == {"at": 5}
        given.clock.advance(60)
        moved = await given.store.seek("mail", line, revision=before.revision, back=True)
        assert moved is not None
        assert (moved.start_line, moved.reads_from, moved.backfilling, moved.epoch) == (line, line, True, 1)
        after = await given.feed()
        assert (after.cursor, after.next_due, after.revision) == (None, given.now(), before.revision + 1)
        assert "s" in await given.store.recall("inbox", ["s"])
        assert await given.store.check() == []

    async def test_a_seek_forward_moves_the_start_line_alone(self, given: Given) -> None:
        await given.commit(given.entry("s", given.intent("s")), cursor={"at": 5})
        before = await given.feed()
        given.clock.advance(60)
        moved = await given.store.seek("mail", given.now(), revision=before.revision, back=False)
        assert moved is not None
        assert (moved.start_line, moved.backfilling) == (given.now(), False)
        assert ((await given.feed()).cursor, moved.reads_from) == ({"at": 5}, given.trigger().reads_from)

    async def test_a_seek_to_a_place_leaves_word_of_it_in_both_directions(self, given: Given) -> None:
        await given.commit(given.entry("s", given.intent("s")), cursor={"at": 5})
        for back in (True, False):
            before, place = await given.feed(), {"to": [back, "ü"]}
            assert await given.store.seek("mail", given.now(), revision=0, back=back, cursor=place) is None
            assert (await given.feed()).cursor == before.cursor
            moved = await given.store.seek("mail", given.now(), revision=before.revision, back=back, cursor=place)
            after = await given.feed()
            assert moved is not None
            assert (after.cursor, after.next_due, after.revision) == (place, given.now(), before.revision + 1)
            given.clock.advance(60)
        assert await given.store.check() == []

    async def test_after_a_reset_an_occurrence_fires_again_for_that_trigger_only(self, given: Given) -> None:
        await given.open(definitions(feeds=(feed("inbox", identity="once"), INTERNAL_FEED)))
        await given.refresh()
        decisions = (given.intent("s"), given.intent("s", trigger="other"))
        first = await given.commit(given.entry("s", *decisions))
        mail = await given.store.reset("mail", cursor=True)
        await given.refresh()
        again = await given.commit(given.entry("s", given.intent("s", epoch=mail.epoch), decisions[1]))
        assert [verdict.outcome for verdict in again.verdicts[0]] == ["fired", "duplicate"]
        assert again.verdicts[0][0].run_id != first.verdicts[0][0].run_id
        assert again.verdicts[0][1].run_id == first.verdicts[0][1].run_id
