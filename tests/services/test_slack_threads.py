"""Replies: a thread shows itself only in its parent, so old parents are looked at again and again."""

from __future__ import annotations

import pytest

from harken.source import Host, PollSource
from harken.testing import HandClock
from harken.testing.fakes.slack import FakeSlack
from harken.testing.source import Service, SourceContract
from tests.services.reading import read, subjects
from tests.services.slack_world import SINCE, OnSlack, cursor_after_read, read_events, source


class InThread(OnSlack):
    """The same, as replies to one old message."""

    def __init__(self, clock: HandClock, slack: FakeSlack, source: PollSource) -> None:
        super().__init__(clock, slack, source)
        self._parent = slack.say("C1", age=5 * 3600)

    def _say(self) -> str:
        return self._slack.say("C1", thread=self._parent)


class TestThread(SourceContract):
    @pytest.fixture
    def service(self, clock: HandClock, host: Host, slack: FakeSlack) -> Service:
        slack.cap = 3
        return InThread(clock, slack, source(host, slack, channels="eng"))


class TestThreads:
    async def test_a_reply_to_an_old_message_is_seen(self, clock: HandClock, host: Host, slack: FakeSlack):
        parent = slack.say("C1", age=6 * 86_400)
        reading = source(host, slack)
        cursor = await cursor_after_read(reading)
        clock.advance(400)
        reply = slack.say("C1", "<@U1>", thread=parent)
        assert subjects(await read(reading, cursor, SINCE)) == [f"C1:{reply}"]

    async def test_a_reply_to_a_message_of_today_is_seen_at_the_next_read(
        self, clock: HandClock, host: Host, slack: FakeSlack
    ):
        parent = slack.say("C1", age=20 * 3600)
        reading = source(host, slack)
        cursor = await cursor_after_read(reading)
        clock.advance(30)
        reply = slack.say("C1", "<@U1>", thread=parent)
        assert subjects(await read(reading, cursor, SINCE)) == [f"C1:{reply}"]

    async def test_threads_of_the_whole_week_are_looked_at_on_many_pages(
        self, clock: HandClock, host: Host, slack: FakeSlack
    ):
        slack.cap = 10
        parents = [slack.say("C1", age=600_000 - number) for number in range(95)]
        reading = source(host, slack)
        cursor = await cursor_after_read(reading)
        clock.advance(400)
        replies = {f"C1:{slack.say('C1', thread=parent)}" for parent in parents[::10]}
        assert set(subjects(await read(reading, cursor, SINCE))) == replies

    async def test_a_message_of_more_than_a_week_ago_is_not_looked_at(
        self, clock: HandClock, host: Host, slack: FakeSlack
    ):
        parent = slack.say("C1", age=8 * 86_400)
        reading = source(host, slack)
        cursor = await cursor_after_read(reading)
        clock.advance(400)
        slack.say("C1", thread=parent)
        assert await read_events(reading, cursor) == []

    async def test_every_reply_is_read_over_many_polls_and_pages(self, clock: HandClock, host: Host, slack: FakeSlack):
        slack.cap = 3
        parents = [slack.say("C1", age=age) for age in (3600, 2 * 86_400, 5 * 86_400)]
        reading, seen, said = source(host, slack), set(), set()
        cursor = await cursor_after_read(reading)
        for number in range(60):
            clock.advance(45)
            said |= {f"C1:{slack.say('C1', thread=parents[number % 3])}" for _ in range(number % 5)}
            batches = await read(reading, cursor, SINCE)
            cursor = batches[-1].cursor
            seen |= set(subjects(batches))
        clock.advance(400)
        assert said == seen | set(subjects(await read(reading, cursor, SINCE)))

    async def test_a_reply_that_comes_while_other_threads_are_read_is_seen(
        self, clock: HandClock, host: Host, slack: FakeSlack
    ):
        parents = [slack.say("C1", age=3600 - number) for number in range(3)]
        reading = source(host, slack)
        cursor = await cursor_after_read(reading)
        clock.advance(60)
        for parent in parents:
            slack.say("C1", thread=parent)
        meanwhile: list[str] = []
        slack.after = {len(slack.seen) + 3: lambda: meanwhile.append(slack.say("C1", thread=parents[0]))}
        batches = await read(reading, cursor, SINCE)
        clock.advance(30)
        batches += await read(reading, batches[-1].cursor, SINCE)
        assert f"C1:{meanwhile[0]}" in subjects(batches)

    async def test_a_broadcast_is_one_message(self, host: Host, slack: FakeSlack):
        parent = slack.say("C1")
        ts = slack.broadcast("C1", "look", thread=parent)
        found = [event for event in await read_events(source(host, slack)) if event.data["ts"] == ts]
        assert {event.subject for event in found} == {f"C1:{ts}"}
        assert len({event.payload() for event in found}) == 1
        assert found[0].data["is_thread_reply"]

    async def test_replies_to_a_deleted_message_are_seen(self, host: Host, slack: FakeSlack):
        parent = slack.say("C1")
        reply = slack.say("C1", thread=parent)
        slack.delete("C1", parent)
        assert [event.data["ts"] for event in await read_events(source(host, slack))] == [reply]

    async def test_a_thread_that_is_gone_when_it_is_read_stops_nothing(self, host: Host, slack: FakeSlack):
        parent = slack.say("C1")
        slack.say("C1", thread=parent)
        slack.after = {3: lambda: slack.channels["C1"].messages.pop(parent)}
        assert [event.data["ts"] for event in await read_events(source(host, slack))] == [parent]

    async def test_replies_from_before_they_were_wanted_do_not_come_up(
        self, clock: HandClock, host: Host, slack: FakeSlack
    ):
        parent = slack.say("C1", age=3600)
        cursor = await cursor_after_read(source(host, slack, include_threads=False))
        slack.say("C1", "unwanted", thread=parent)
        clock.advance(900)
        cursor = (await read(source(host, slack, include_threads=False), cursor, SINCE))[-1].cursor
        slack.say("C1", "wanted", thread=parent)
        found = await read_events(source(host, slack), cursor)
        assert [event.data["text"] for event in found] == ["wanted"]

    async def test_threads_can_be_left_out(self, host: Host, slack: FakeSlack):
        parent = slack.say("C1")
        slack.say("C1", thread=parent)
        shown = slack.broadcast("C1", "for all", thread=parent)
        found = await read_events(source(host, slack, include_threads=False))
        assert [event.data["ts"] for event in found] == [parent, shown]
        assert slack.calls("conversations.replies") == 0
