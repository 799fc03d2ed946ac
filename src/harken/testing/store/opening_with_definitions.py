"""The contract of `open`: what it keeps, which revisions rise, and how removed definitions come back."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from harken.circuit_breaker import Health
from harken.errors import NotFound
from harken.feed import Feed, Trigger
from harken.schedule import Cron, Every
from harken.store import Definitions, Part, Stale, Store
from harken.testing.clock import HandClock
from harken.testing.store.world import (
    INBOX,
    INTERNAL_FEED,
    MAIL,
    OTHER,
    Given,
    Reopen,
    StoreWorld,
    definitions,
    feed,
    trigger,
)

__all__ = ["OpenContract"]


class OpenContract(StoreWorld):
    async def test_a_new_feed_has_read_nothing(self, given: Given) -> None:
        state = await given.feed()
        assert (state.cursor, state.reads, state.baselined, state.memory) == (None, 0, False, 0)
        assert state.created_at == given.now()

    async def test_a_new_trigger_starts_now_with_a_uid_of_its_own(self, given: Given) -> None:
        mail, other = given.trigger("mail"), given.trigger("other")
        assert mail.start_line == mail.created_at == given.now()
        assert mail.uid != other.uid
        assert mail.paused == ""

    async def test_state_of_an_unknown_feed_is_not_found(self, given: Given) -> None:
        with pytest.raises(NotFound):
            await given.store.state("nowhere")

    async def test_opening_the_same_again_changes_nothing(self, given: Given) -> None:
        before = given.opened
        given.clock.advance(60)
        after = await given.open(definitions(generation="g2"))
        assert after.triggers == before.triggers
        assert after.feeds["inbox"].revision == before.feeds["inbox"].revision

    async def test_open_returns_the_states_that_listeners_shows(self, given: Given) -> None:
        await given.store.pause("other", "by hand")
        changed = msgspec.structs.replace(MAIL, condition="true", backfill=3600.0)
        opened = await given.open(definitions(triggers=(OTHER, changed), generation="g2"))
        listeners = await given.store.listeners("inbox")
        assert listeners.revision == opened.feeds["inbox"].revision
        assert list(listeners.triggers) == [(changed, opened.triggers["mail"]), (OTHER, opened.triggers["other"])]
        assert opened.triggers["other"].paused == "by hand"

    async def test_definitions_survive_a_crash(self, given: Given, reopen: Reopen) -> None:
        before = given.opened
        store = await reopen(given.store)
        after = await store.open(definitions())
        assert after.triggers == before.triggers
        assert after.feeds["inbox"].revision == before.feeds["inbox"].revision

    async def test_what_was_due_by_another_kind_of_schedule_is_not_due_any_more(self, given: Given) -> None:
        await given.commit(next_due=given.now(60), done=True)
        by_cron = msgspec.structs.replace(INBOX, schedule=Cron(expression="0 0 * * *"))
        opened = await given.open(definitions(feeds=(by_cron, INTERNAL_FEED)))
        assert opened.feeds["inbox"].next_due is None

    async def test_another_interval_leaves_what_is_due(self, given: Given) -> None:
        await given.commit(next_due=given.now(60), done=True)
        slower = msgspec.structs.replace(INBOX, schedule=Every(seconds=600))
        opened = await given.open(definitions(feeds=(slower, INTERNAL_FEED)))
        assert opened.feeds["inbox"].next_due == given.now(60)

    async def test_a_wait_after_failures_outlasts_another_schedule(self, given: Given) -> None:
        health = Health(failures=1, blocked_until=given.now(600).timestamp())
        await given.commit(next_due=given.now(600), health=health)
        by_cron = msgspec.structs.replace(INBOX, schedule=Cron(expression="0 0 * * *"))
        opened = await given.open(definitions(feeds=(by_cron, INTERNAL_FEED)))
        assert opened.feeds["inbox"].next_due == given.now(600)

    async def test_editing_a_feed_raises_its_revision_and_keeps_cursor_and_memory(self, given: Given) -> None:
        await given.commit(given.entry("s"), cursor={"at": 7})
        edited = msgspec.structs.replace(INBOX, query={"q": "new"})
        after = await given.open(definitions(feeds=(edited, INTERNAL_FEED)))
        assert after.feeds["inbox"].revision > given.revision
        assert after.feeds["inbox"].cursor == {"at": 7}
        assert "s" in await given.store.recall("inbox", ["s"])

    async def test_another_label_changes_nothing_but_what_people_see(self, given: Given) -> None:
        await given.commit(given.entry("s"), cursor={"at": 7})
        before = await given.store.state("inbox")
        labelled = msgspec.structs.replace(INBOX, label="mail")
        await given.open(definitions(feeds=(labelled, INTERNAL_FEED)))
        after = await given.store.state("inbox")
        assert msgspec.structs.replace(after, revision=before.revision) == before
        assert "s" in await given.store.recall("inbox", ["s"])
        assert (await given.store.listeners("inbox")).feed.display_name == "mail"

    async def test_editing_a_trigger_raises_its_feeds_revision_and_keeps_who_it_is(self, given: Given) -> None:
        before = given.trigger("mail")
        given.clock.advance(60)
        edited = msgspec.structs.replace(MAIL, condition="event.urgent")
        after = await given.open(definitions(triggers=(edited, OTHER)))
        assert after.triggers["mail"] == before
        assert after.feeds["inbox"].revision > given.revision

    async def test_a_new_listener_raises_the_revision_and_starts_at_its_own_line(self, given: Given) -> None:
        before = given.trigger("mail")
        given.clock.advance(60)
        after = await given.open(definitions(triggers=(MAIL, OTHER, trigger("late"))))
        assert after.triggers["late"].start_line == given.now()
        assert after.triggers["mail"].start_line == before.start_line
        assert after.feeds["inbox"].revision > given.revision

    async def test_a_page_matched_before_a_listener_came_is_stale(self, given: Given) -> None:
        page = given.page(given.entry("s"))
        after = await given.open(definitions(triggers=(MAIL, OTHER, trigger("late"))))
        assert await given.store.commit(page) == Stale(after.feeds["inbox"].revision)

    async def test_editing_one_feed_leaves_the_others_revision_alone(self, given: Given) -> None:
        await given.open(definitions(feeds=(INBOX, INTERNAL_FEED, feed("news"))))
        edited = feed("news", query={"q": "new"})
        after = await given.open(definitions(feeds=(INBOX, INTERNAL_FEED, edited)))
        assert after.feeds["inbox"].revision == given.revision

    async def test_a_removed_trigger_is_shown_as_removed(self, given: Given) -> None:
        after = await given.open(definitions(triggers=(MAIL,)))
        assert set(after.triggers) == {"mail"}
        assert after.feeds["inbox"].revision > given.revision

    async def test_a_removed_trigger_comes_back_as_it_was(self, given: Given) -> None:
        before = given.trigger("other")
        await given.open(definitions(triggers=(MAIL,)))
        given.clock.advance(60)
        after = await given.open(definitions())
        assert after.triggers["other"] == before

    async def test_a_paused_trigger_is_still_paused_after_a_crash(self, given: Given, reopen: Reopen) -> None:
        await given.store.pause("mail", "holiday")
        store = await reopen(given.store)
        assert (await store.open(definitions())).triggers["mail"].paused == "holiday"

    async def test_a_removed_feed_refuses_pages_matched_before(self, given: Given) -> None:
        page = given.page(given.entry("s"))
        await given.open(definitions(feeds=(INTERNAL_FEED,), triggers=()))
        assert isinstance(await given.store.commit(page), Stale)

    async def test_a_removed_feed_comes_back_with_its_cursor_and_memory(self, given: Given) -> None:
        await given.commit(given.entry("s"), cursor=[1])
        await given.open(definitions(feeds=(INTERNAL_FEED,), triggers=()))
        after = await given.open(definitions())
        assert after.feeds["inbox"].cursor == [1]
        assert "s" in await given.store.recall("inbox", ["s"])

    async def test_a_new_feed_inherits_cursor_and_memory(self, given: Given) -> None:
        await given.commit(given.entry("s"), cursor=[1], done=True)
        heir = feed("mailbox", identity="transition", inherits="inbox")
        after = await given.open(definitions(feeds=(heir, INTERNAL_FEED), triggers=(trigger("mail", on="mailbox"),)))
        assert (after.feeds["mailbox"].cursor, after.feeds["mailbox"].baselined) == ([1], True)
        assert "s" in await given.store.recall("mailbox", ["s"])

    async def test_a_known_feed_does_not_inherit_again(self, given: Given) -> None:
        heir = feed("mailbox", identity="transition", inherits="inbox")
        await given.open(definitions(feeds=(INBOX, heir, INTERNAL_FEED)))
        await given.commit(given.entry("s"), cursor=[1])
        after = await given.open(definitions(feeds=(INBOX, heir, INTERNAL_FEED), generation="g3"))
        assert after.feeds["mailbox"].cursor is None

    async def test_waking_a_feed_makes_it_due_now(self, given: Given) -> None:
        await given.commit(next_due=given.now(600))
        assert (await given.store.wake("inbox")).next_due == given.now()

    async def test_waking_an_unknown_feed_is_not_found(self, given: Given) -> None:
        with pytest.raises(NotFound):
            await given.store.wake("nowhere")

    async def test_a_feed_remembers_when_it_is_due_across_a_crash(
        self, given: Given, reopen: Reopen, clock: HandClock
    ) -> None:
        due = given.now(600)
        await given.commit(next_due=due)
        store: Store = await reopen(given.store)
        assert (await store.state("inbox")).next_due == due

    async def test_a_part_changes_what_it_names_and_nothing_else(self, given: Given) -> None:
        before = await given.store.generation()
        news, mine = feed("news"), trigger("mine", on="news")
        opened = await given.open(_part((news,), (mine,), {"news"}, {"mine"}))
        assert (set(opened.feeds), set(opened.triggers)) == ({"news"}, {"mine"})
        assert await given.store.generation() == before
        assert {state.name for state in await given.store.triggers()} == {"mail", "mine", "other"}
        assert (await given.feed()).revision == given.revision

    async def test_what_a_part_names_and_does_not_define_is_removed(self, given: Given) -> None:
        news, mine = feed("news"), trigger("mine", on="news")
        await given.open(_part((news,), (mine,), {"news"}, {"mine"}))
        opened = await given.open(_part((), (), {"news"}, {"mine"}))
        assert (opened.feeds, opened.triggers) == ({}, {})
        assert {state.name for state in await given.store.triggers()} == {"mail", "other"}
        assert "news" not in {state.name for state in await given.store.feeds()}

    async def test_a_part_that_comes_back_keeps_its_state(self, given: Given) -> None:
        news, mine = feed("news"), trigger("mine", on="news")
        first = await given.open(_part((news,), (mine,), {"news"}, {"mine"}))
        await given.open(_part((), (), {"news"}, {"mine"}))
        again = await given.open(_part((news,), (mine,), {"news"}, {"mine"}))
        assert again.triggers["mine"].uid == first.triggers["mine"].uid
        assert again.feeds["news"].revision > first.feeds["news"].revision

    async def test_a_trigger_of_a_part_on_a_known_feed_raises_its_revision(self, given: Given) -> None:
        opened = await given.open(_part((INBOX,), (trigger("mine"),), {"inbox"}, {"mine"}))
        listeners = await given.store.listeners("inbox")
        assert opened.feeds["inbox"].revision == listeners.revision > given.revision
        assert [found.name for found, _ in listeners.triggers] == ["mail", "mine", "other"]

    async def test_a_feed_of_a_part_inherits_a_cursor(self, given: Given) -> None:
        await given.commit(cursor={"at": 7})
        heir = feed("heir", identity="transition", inherits="inbox")
        opened = await given.open(_part((heir, INBOX), (trigger("mail", on="heir"),), {"heir", "inbox"}, {"mail"}))
        assert opened.feeds["heir"].cursor == {"at": 7}

    async def test_a_part_that_is_opened_again_changes_nothing(self, given: Given) -> None:
        part = _part((feed("news"),), (trigger("mine", on="news"),), {"news"}, {"mine"})
        assert (await given.open(part)).feeds == (await given.open(part)).feeds


def _part(feeds: Sequence[Feed], triggers: Sequence[Trigger], names: set[str], of: set[str]) -> Definitions:
    only = Part(feeds=frozenset(names), triggers=frozenset(of))
    return msgspec.structs.replace(definitions(feeds, triggers), only=only)
