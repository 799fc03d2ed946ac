"""Nothing that is said in Slack is missed: bursts, late messages, wrong clocks, old threads."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from harken.errors import RetryLater
from harken.source import Host
from harken.testing import START, HandClock
from harken.testing.fakes.slack import FakeSlack
from harken.testing.source import Service, SourceContract
from tests.services.reading import events, page, read, subjects
from tests.services.slack_world import SINCE, OnSlack, cursor_after_read, read_events, source


class TestChannel(SourceContract):
    @pytest.fixture
    def service(self, clock: HandClock, host: Host, slack: FakeSlack) -> Service:
        slack.cap = 3
        return OnSlack(clock, slack, source(host, slack))


class TestNothingIsMissed:
    async def test_250_messages_between_two_reads_are_250_events(self, clock: HandClock, host: Host, slack: FakeSlack):
        reading = source(host, slack)
        cursor = await cursor_after_read(reading)
        said = []
        for _ in range(250):
            clock.advance(1)
            said.append(slack.say("C1"))
        found = await read_events(reading, cursor)
        assert sorted(event.data["ts"] for event in found) == said

    async def test_a_burst_on_top_of_a_busy_day_is_read_whole(self, clock: HandClock, host: Host, slack: FakeSlack):
        slack.cap = 3
        for number in range(20):
            slack.say("C1", age=3600 - number)
        reading = source(host, slack)
        cursor = await cursor_after_read(reading)
        clock.advance(60)
        said = {f"C1:{slack.say('C1')}" for _ in range(10)}
        assert set(subjects(await read(reading, cursor, SINCE))) == said

    async def test_a_read_that_was_interrupted_for_an_hour_misses_nothing_of_that_hour(
        self, clock: HandClock, host: Host, slack: FakeSlack
    ):
        slack.cap = 3
        for _ in range(9):
            clock.advance(1)
            slack.say("C1")
        reading = source(host, slack)
        listed = await page(reading, None, SINCE)
        begun = await page(reading, listed.cursor, SINCE)
        clock.advance(10)
        meanwhile = slack.say("C1")
        clock.advance(3600)
        ended = (await read(reading, begun.cursor, SINCE))[-1]
        assert f"C1:{meanwhile}" in subjects(await read(reading, ended.cursor, SINCE))

    async def test_a_message_that_shows_itself_late_is_seen(self, clock: HandClock, host: Host, slack: FakeSlack):
        reading = source(host, slack)
        late = slack.say("C1", "late", late=90)
        clock.advance(30)
        slack.say("C1", "on time")
        cursor = await cursor_after_read(reading)
        clock.advance(61)
        assert f"C1:{late}" in subjects(await read(reading, cursor, SINCE))

    async def test_what_is_said_while_reading_is_seen_by_this_read_or_the_next(
        self, clock: HandClock, host: Host, slack: FakeSlack
    ):
        slack.cap = 3
        reading = source(host, slack)
        for _ in range(9):
            clock.advance(1)
            slack.say("C1")
        slack.after = dict.fromkeys(range(1, 7), lambda: slack.say("C1", age=-1))
        batches = await read(reading, None, SINCE)
        batches += await read(reading, batches[-1].cursor, SINCE)
        assert len(set(subjects(batches))) == 15 == len(slack.channels["C1"].messages)

    async def test_a_deletion_while_reading_hides_nothing(self, clock: HandClock, host: Host, slack: FakeSlack):
        slack.cap = 3
        said = []
        for _ in range(9):
            clock.advance(1)
            said.append(slack.say("C1"))
        slack.after = {3: lambda: slack.delete("C1", said[-1])}
        assert {f"C1:{ts}" for ts in said[:-1]} <= set(subjects(await read(source(host, slack), None, SINCE)))

    async def test_since_moves_while_reading_and_the_channels_after_it_lose_nothing(
        self, clock: HandClock, host: Host, slack: FakeSlack
    ):
        slack.channel("ops", id="C2")
        slack.say("C2", "early")
        clock.advance(3600)
        slack.say("C1", "now")
        reading = source(host, slack)
        batches = [await page(reading, None, SINCE)]
        while batches[-1].more:
            batches.append(await page(reading, batches[-1].cursor, clock.now()))
        assert [event.data["text"] for event in events(batches)] == ["now", "early"]
        assert batches[-1].covered is not None
        assert batches[-1].covered.start == SINCE

    @pytest.mark.parametrize("skew", [-3000.0, 3000.0])
    async def test_a_clock_that_is_wrong_loses_nothing(
        self, clock: HandClock, host: Host, slack: FakeSlack, skew: float
    ):
        slack.skew = skew
        reading, said, seen = source(host, slack), set(), set()
        cursor = (await read(reading, None, START - timedelta(hours=2)))[-1].cursor
        for _ in range(20):
            clock.advance(200)
            said.add(f"C1:{slack.say('C1')}")
            batches = await read(reading, cursor, SINCE)
            cursor = batches[-1].cursor
            seen |= set(subjects(batches))
        assert said == seen

    async def test_a_quiet_channel_costs_one_call_a_read(self, clock: HandClock, host: Host, slack: FakeSlack):
        parent = slack.say("C1")
        slack.say("C1", thread=parent)
        reading = source(host, slack)
        cursor = await cursor_after_read(reading)
        clock.advance(200)
        cursor = (await read(reading, cursor, SINCE))[-1].cursor
        before = len(slack.seen)
        await read(reading, cursor, SINCE)
        assert [seen.path for seen in slack.seen[before:]] == ["/conversations.history"]

    async def test_timestamps_are_sent_as_text_with_six_decimals(self, host: Host, slack: FakeSlack):
        slack.say("C1")
        reading = source(host, slack)
        await read(reading, await cursor_after_read(reading), datetime(2026, 1, 5, 8, 0, 0, 123, tzinfo=UTC))
        sent = [seen.query[end] for seen in slack.seen if "oldest" in seen.query for end in ("oldest", "latest")]
        assert sent
        assert all(len(text.partition(".")[2]) == 6 for text in sent)

    async def test_a_page_that_slack_forgot_begins_the_channel_again(
        self, clock: HandClock, host: Host, slack: FakeSlack
    ):
        slack.cap = 3
        for _ in range(7):
            clock.advance(1)
            slack.say("C1")
        reading = source(host, slack)
        batches = [await page(reading, None, SINCE), await page(reading, None, SINCE)]
        batches.append(await page(reading, batches[-1].cursor, SINCE))
        slack.forgets_cursors = True
        batches.append(await page(reading, batches[-1].cursor, SINCE))
        slack.forgets_cursors = False
        batches += await read(reading, batches[-1].cursor, SINCE)
        assert len(set(subjects(batches))) == 7

    async def test_a_slack_that_forgets_every_page_is_a_failure(self, clock: HandClock, host: Host, slack: FakeSlack):
        slack.cap = 3
        for _ in range(7):
            clock.advance(1)
            slack.say("C1")
        slack.forgets_cursors = True
        with pytest.raises(RetryLater, match="refused its own page cursor for #eng"):
            await read_events(source(host, slack))

    async def test_a_read_says_what_time_it_covers(self, clock: HandClock, host: Host, slack: FakeSlack):
        clock.advance(60)
        *before, last = await read(source(host, slack), None, SINCE)
        assert last.covered is not None
        assert (last.covered.start, last.covered.end) == (SINCE, clock.now())
        assert [batch.covered for batch in before] == [None] * len(before)

    async def test_an_edit_is_not_another_message(self, host: Host, slack: FakeSlack):
        reading = source(host, slack)
        ts = slack.say("C1", "teh")
        cursor = await cursor_after_read(reading)
        slack.edit("C1", ts, "the")
        (again,) = await read_events(reading, cursor)
        assert (again.subject, again.state) == (f"C1:{ts}", None)
