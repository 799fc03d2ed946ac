"""The contract of startup modes: where triggers start, and how stored events are decided again for them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec

from harken.event import Verdict
from harken.feed import Trigger, TriggerState
from harken.store import Definitions, Intent, Stale
from harken.testing.store.world import (
    INBOX,
    INTERNAL_FEED,
    MAIL,
    OTHER,
    Given,
    Reopen,
    StoreWorld,
    definitions,
    trigger,
)

__all__ = ["StartupModeContract"]

HOUR = 3600.0
DAY = 86_400.0


def starting(*triggers: Trigger, **changes: Any) -> Definitions:
    """The definitions of a process that starts with these triggers."""
    return msgspec.structs.replace(definitions(triggers=triggers or (MAIL, OTHER)), **{"starting": True, **changes})


def mode(startup: str, backfill: float = 0.0) -> Trigger:
    return msgspec.structs.replace(MAIL, startup=startup, backfill=backfill)


def early(given: Given) -> Verdict:
    return Verdict(trigger="mail", outcome="before_start", reason="too early")


async def begins(given: Given, *triggers: Trigger) -> TriggerState:
    """Start with these triggers. Return the state of the first."""
    opened = await given.open(starting(*triggers))
    await given.refresh()
    return opened.triggers["mail"]


class StartupModeContract(StoreWorld):
    async def test_since_last_begins_where_it_was(self, given: Given) -> None:
        before = given.trigger()
        given.clock.advance(HOUR)
        assert await begins(given, MAIL, OTHER) == before

    async def test_a_trigger_may_wait_for_a_person_at_every_start(self, given: Given, reopen: Reopen) -> None:
        before = given.opened.feeds["inbox"].revision
        opened = await given.open(starting(pause={"mail": "at start"}))
        assert (opened.triggers["mail"].paused, opened.triggers["other"].paused) == ("at start", "")
        assert opened.feeds["inbox"].revision > before
        await given.store.resume("mail")
        store = await reopen(given.store)
        assert (await store.open(starting(pause={"mail": "at start"}))).triggers["mail"].paused == "at start"

    async def test_a_trigger_that_is_new_may_wait_for_a_person_too(self, given: Given) -> None:
        new = trigger("new")
        opened = await given.open(starting(MAIL, new, pause={"new": "at start"}))
        assert opened.triggers["new"].paused == "at start"

    async def test_a_pause_at_start_keeps_the_reason_of_one_that_is_there(self, given: Given) -> None:
        await given.store.pause("mail", "holiday")
        opened = await given.open(starting(pause={"mail": "at start"}))
        assert opened.triggers["mail"].paused == "holiday"

    async def test_a_reload_pauses_nothing_that_was_there(self, given: Given) -> None:
        opened = await given.open(starting(pause={"mail": "at start"}, starting=False))
        assert opened.triggers["mail"].paused == ""

    async def test_a_trigger_that_arrives_by_reload_may_wait_for_a_person_too(self, given: Given) -> None:
        new, pause = trigger("new"), {"new": "at start", "mail": "at start"}
        opened = await given.open(starting(MAIL, new, pause=pause, starting=False))
        assert (opened.triggers["new"].paused, opened.triggers["mail"].paused) == ("at start", "")
        await given.store.resume("new")
        again = await given.open(starting(MAIL, new, pause=pause, starting=False))
        assert again.triggers["new"].paused == ""

    async def test_a_trigger_that_comes_back_by_reload_may_wait_for_a_person_too(self, given: Given) -> None:
        await given.open(starting(OTHER, starting=False))
        opened = await given.open(starting(pause={"mail": "at start"}, starting=False))
        assert opened.triggers["mail"].paused == "at start"

    async def test_ignore_historical_begins_now_and_reads_what_happened_meanwhile(self, given: Given) -> None:
        before = given.trigger()
        given.clock.advance(HOUR)
        state = await begins(given, mode("ignore_historical"))
        assert (state.start_line, state.reads_from) == (given.now(), before.start_line)
        assert not state.backfilling

    async def test_backfill_begins_so_long_ago_at_every_start(self, given: Given) -> None:
        given.clock.advance(10 * HOUR)
        first = await begins(given, mode("backfill", 4 * HOUR))
        assert (first.start_line, first.reads_from) == (given.now(-4 * HOUR), given.now(-4 * HOUR))
        assert first.backfilling
        given.clock.advance(HOUR)
        assert (await begins(given, mode("backfill", 4 * HOUR))).start_line == given.now(-4 * HOUR)

    async def test_a_backfill_does_not_go_back_behind_a_reset(self, given: Given) -> None:
        await given.store.reset("mail", cursor=True)
        reset = given.now()
        given.clock.advance(HOUR)
        assert (await begins(given, mode("backfill", 4 * HOUR))).start_line == reset

    async def test_a_reload_applies_no_startup_mode(self, given: Given) -> None:
        before = given.trigger()
        given.clock.advance(HOUR)
        after = await given.open(definitions(triggers=(mode("backfill", 4 * HOUR), OTHER)))
        assert after.triggers["mail"] == before

    async def test_a_new_trigger_may_look_back_when_it_begins(self, given: Given) -> None:
        late = msgspec.structs.replace(MAIL, name="late", backfill=HOUR)
        opened = await given.open(definitions(triggers=(MAIL, OTHER, late)))
        state = opened.triggers["late"]
        assert (state.start_line, state.backfilling) == (given.now(-HOUR), True)

    async def test_a_page_matched_with_the_old_start_line_is_stale(self, given: Given) -> None:
        page = given.page(given.entry("s"))
        given.clock.advance(1)
        await given.open(starting(mode("ignore_historical"), OTHER))
        assert isinstance(await given.store.commit(page), Stale)

    async def test_a_commit_says_that_the_backfill_is_over(self, given: Given, reopen: Reopen) -> None:
        state = await begins(given, mode("backfill", HOUR))
        await given.commit(backfilled=[state.uid])
        store = await reopen(given.store)
        assert not (await store.triggers())[0].backfilling
        assert (await store.state("inbox")).revision > given.revision

    async def test_an_event_before_the_start_fires_once_when_it_is_decided_again(self, given: Given) -> None:
        [event_id] = (await given.commit(given.entry("s", early(given)))).event_ids
        again = given.entry("s", given.intent("s"), memory_id="", again=event_id)
        [first] = (await given.commit(again)).verdicts[0]
        assert first.outcome == "fired"
        [second] = (await given.commit(again)).verdicts[0]
        assert second == first
        assert [claim.id for claim in await given.claims()] == [first.run_id]
        assert [event.verdicts for event in await given.events()] == [(first,)]

    async def test_what_was_decided_otherwise_is_not_decided_again(self, given: Given) -> None:
        no = Verdict(trigger="mail", outcome="filtered", reason="not urgent")
        [event_id] = (await given.commit(given.entry("s", no))).event_ids
        committed = await given.commit(given.entry("s", given.intent("s"), memory_id="", again=event_id))
        assert committed.verdicts[0] == (no,)
        assert await given.claims() == []

    async def test_a_trigger_that_was_not_there_decides_for_the_first_time(self, given: Given) -> None:
        fired = (await given.commit(given.entry("s", given.intent("s")))).event_ids[0]
        decision: Intent = given.intent("s", trigger="other")
        committed = await given.commit(given.entry("s", decision, memory_id="", again=fired))
        assert [verdict.trigger for verdict in committed.verdicts[0]] == ["mail", "other"]
        assert sorted(claim.trigger for claim in await given.claims()) == ["mail", "other"]

    async def test_deciding_again_is_not_a_read(self, given: Given) -> None:
        [event_id] = (await given.commit(given.entry("s", early(given)))).event_ids
        before = await given.feed()
        given.clock.advance(10)
        await given.commit(given.entry("s", given.intent("s"), memory_id="", again=event_id))
        assert await given.feed() == before

    async def test_an_event_that_is_gone_is_left_alone(self, given: Given) -> None:
        committed = await given.commit(given.entry("s", given.intent("s"), memory_id="", again=7))
        assert committed.verdicts == [()]

    async def test_another_identity_begins_anew_after_what_was_read(self, given: Given) -> None:
        await given.commit(given.entry("s", given.intent("s")), cursor=[1], done=True)
        read = given.now()
        given.clock.advance(60)
        edited = msgspec.structs.replace(INBOX, identity="once")
        opened = await given.open(definitions(feeds=(edited, INTERNAL_FEED)))
        state, feed = opened.triggers["mail"], opened.feeds["inbox"]
        assert (state.start_line, state.epoch) == (read, 2)
        assert (feed.cursor, feed.baselined) == ([1], False)
        assert await given.store.recall("inbox", ["s"]) == {}

    async def test_a_feed_that_inherits_with_another_identity_takes_the_cursor_alone(self, given: Given) -> None:
        await given.commit(given.entry("s"), cursor=[1], done=True)
        given.clock.advance(60)
        heir = msgspec.structs.replace(INBOX, name="mailbox", identity="once", inherits="inbox")
        moved = msgspec.structs.replace(MAIL, feed="mailbox")
        opened = await given.open(definitions(feeds=(heir, INTERNAL_FEED), triggers=(moved,)))
        assert (opened.feeds["mailbox"].cursor, opened.feeds["mailbox"].baselined) == ([1], False)
        assert opened.triggers["mail"].start_line == given.now(-60)
        assert await given.store.recall("mailbox", ["s"]) == {}

    async def test_a_start_line_in_the_future_is_moved_back_and_its_trigger_looks_back(self, given: Given) -> None:
        """The clock was a day ahead and was set back ten minutes after the trigger came."""
        revision = given.opened.feeds["inbox"].revision
        was = given.trigger().start_line
        given.clock.advance(600)
        given.clock.jump(-DAY)
        really = was - timedelta(seconds=DAY)
        [moved] = await given.store.move_start_lines({"mail": really, "nobody": really})
        assert (moved.trigger, moved.feed, moved.was, moved.start_line) == ("mail", "inbox", was, really)
        state = await stored(given)
        assert (state.start_line, state.reads_from, state.created_at) == (really, really, really)
        assert state.backfilling
        assert (await given.store.state("inbox")).revision > revision
        assert await given.store.move_start_lines({"mail": really}) == []
        assert (await stored(given, "other")).start_line == was

    async def test_a_start_line_is_never_moved_into_the_future(self, given: Given) -> None:
        given.clock.jump(-DAY)
        [moved] = await given.store.move_start_lines({"mail": given.now(HOUR)})
        assert moved.start_line == (await stored(given)).start_line == given.now()

    async def test_start_lines_that_are_over_or_hardly_ahead_stay(self, given: Given) -> None:
        revision = given.opened.feeds["inbox"].revision
        before = await given.store.triggers()
        for jump in (0.0, -59.0):
            given.clock.jump(jump)
            assert await given.store.move_start_lines({"mail": given.now(-HOUR)}) == []
        assert await given.store.triggers() == before
        assert (await given.store.state("inbox")).revision == revision

    async def test_a_removed_trigger_keeps_its_start_line(self, given: Given) -> None:
        await given.open(definitions(triggers=(OTHER,)))
        given.clock.jump(-DAY)
        moved = await given.store.move_start_lines({"mail": given.now(), "other": given.now()})
        assert [one.trigger for one in moved] == ["other"]

    async def test_a_reset_by_a_clock_that_was_ahead_does_not_bind_a_later_backfill(self, given: Given) -> None:
        await given.store.reset("mail", cursor=True)
        given.clock.jump(-DAY)
        await given.store.move_start_lines({"mail": given.now()})
        given.clock.advance(HOUR)
        assert (await begins(given, mode("backfill", HOUR / 2), OTHER)).start_line == given.now(-HOUR / 2)


async def stored(given: Given, name: str = "mail") -> TriggerState:
    [state] = [one for one in await given.store.triggers() if one.name == name]
    return state
