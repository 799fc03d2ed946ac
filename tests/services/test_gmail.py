"""Gmail on a fake mailbox: what is listed, what is got, and what is told of it. Nothing twice, nothing never."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from harken.errors import NeedsAttention, RetryLater
from harken.services.gmail.cursor import MOST
from harken.source import Host
from harken.testing import START, HandClock
from harken.testing.fakes.gmail import FakeGmail
from harken.testing.fakes.google_oauth_base import CLIENT_SECRET, REFRESH_TOKEN
from harken.testing.fakes.server import Answer
from harken.testing.source import SourceContract
from tests.services.mailbox import DAY, mailbox, one
from tests.services.reading import events, read, subjects


@pytest.fixture
async def gmail(clock: HandClock) -> AsyncIterator[FakeGmail]:
    fake = FakeGmail(clock)
    async with fake.serve():
        yield fake


class OnGmail:
    page_size = 5

    def __init__(self, gmail: FakeGmail, host: Host, clock: HandClock) -> None:
        self.since = START
        self.source = mailbox(gmail, host)
        self._gmail = gmail
        self._clock = clock

    async def put(self, count: int, *, tied: bool = False) -> Sequence[str]:
        put = []
        for _ in range(count):
            put.append(self._gmail.receive())
            self._clock.advance(0.0 if tied else 1.0)
        return put

    async def expire(self) -> bool:
        return False


class TestContract(SourceContract):
    @pytest.fixture
    async def service(self, gmail: FakeGmail, host: Host, clock: HandClock) -> OnGmail:
        gmail.cap = 5
        return OnGmail(gmail, host, clock)


class TestListing:
    @pytest.mark.parametrize("token", [b"same", b"page-%d"])
    async def test_a_server_that_ignores_page_tokens_is_not_asked_for_ever(
        self, gmail: FakeGmail, host: Host, token: bytes
    ):
        source = mailbox(gmail, host)
        await read(source)
        bodies = [
            b'{"messages": [{"id": "m1"}], "nextPageToken": "' + token.replace(b"%d", b"%d" % n) + b'"}'
            for n in range(9)
        ]
        gmail.answers = [Answer(body=body) for body in bodies]
        with pytest.raises(RetryLater, match="the same page"):
            await read(source)
        assert len(gmail.answers) >= 6

    async def test_the_first_read_shows_what_newer_than_allows(self, gmail: FakeGmail, host: Host):
        gmail.receive(age=2 * DAY)
        young = [gmail.receive(age=20 * 3600), gmail.receive()]
        assert subjects(await read(mailbox(gmail, host))) == young

    async def test_a_longer_reach_shows_more(self, gmail: FakeGmail, host: Host):
        put = [gmail.receive(age=13 * DAY), gmail.receive()]
        assert subjects(await read(mailbox(gmail, host, newer_than="2w"))) == put

    async def test_a_burst_of_500_is_shown_oldest_first_and_got_once(
        self, gmail: FakeGmail, host: Host, clock: HandClock
    ):
        source = mailbox(gmail, host)
        cursor = (await read(source))[-1].cursor
        put = []
        for _ in range(500):
            put.append(gmail.receive())
            clock.advance(0.01)
        gmail.cap = 100
        pages = await read(source, cursor)
        assert subjects(pages) == put
        assert set(gmail.fetched.values()) == {1}

    async def test_a_quiet_read_costs_one_call_however_much_is_listed(self, gmail: FakeGmail, host: Host):
        for _ in range(300):
            gmail.receive()
        source = mailbox(gmail, host)
        cursor = (await read(source))[-1].cursor
        before = len(gmail.seen)
        pages = await read(source, cursor)
        assert (events(pages), len(gmail.seen) - before) == ([], 1)

    async def test_a_mail_that_stays_unread_is_shown_once(self, gmail: FakeGmail, host: Host, clock: HandClock):
        id, cursor, shown = gmail.receive(), None, []
        source = mailbox(gmail, host)
        for _ in range(40):
            pages = await read(source, cursor)
            cursor = pages[-1].cursor
            shown += subjects(pages)
            clock.advance(3600)
        assert shown == [id]

    async def test_what_is_listed_late_is_found(self, gmail: FakeGmail, host: Host, clock: HandClock):
        source = mailbox(gmail, host)
        late = gmail.receive(age=60, late=3 * 3600)
        prompt = gmail.receive()
        pages = await read(source)
        clock.advance(4 * 3600)
        assert (subjects(pages), subjects(await read(source, pages[-1].cursor))) == ([prompt], [late])

    async def test_a_label_that_comes_later_than_the_mail_is_noticed(
        self, gmail: FakeGmail, host: Host, clock: HandClock
    ):
        lead, id = gmail.label("lead"), gmail.receive()
        source = mailbox(gmail, host, "label:lead")
        cursor = (await read(source))[-1].cursor
        clock.advance(12 * 3600)
        gmail.mails[id].labels.add(lead)
        (event,) = events(await read(source, cursor))
        assert (event.subject, event.data["labels"]) == (id, ["INBOX", "lead", "UNREAD"])

    async def test_nothing_that_came_while_we_were_down_for_days_is_lost(
        self, gmail: FakeGmail, host: Host, clock: HandClock
    ):
        source = mailbox(gmail, host)
        cursor = (await read(source))[-1].cursor
        put = []
        for _ in range(10):
            clock.advance(DAY / 2)
            put.append(gmail.receive())
        assert subjects(await read(source, cursor)) == put

    async def test_an_old_mail_that_is_marked_unread_again_is_not_shown_again(
        self, gmail: FakeGmail, host: Host, clock: HandClock
    ):
        source, id, cursor = mailbox(gmail, host, newer_than="1y"), gmail.receive(), None
        for _ in range(4):
            cursor = (await read(source, cursor))[-1].cursor
            gmail.mails[id].labels.discard("UNREAD")
            clock.advance(DAY)
        gmail.mails[id].labels.add("UNREAD")
        assert events(await read(source, cursor)) == []

    async def test_what_slips_over_a_page_border_is_found_by_the_next_read(
        self, gmail: FakeGmail, host: Host, clock: HandClock
    ):
        gmail.cap = 5
        put = [gmail.receive(age=20 - number) for number in range(10)]
        # while the second page is asked for, the first five are read elsewhere, and the rest move up
        gmail.after[2] = lambda: gmail.mark_all_read(put[5:])
        source = mailbox(gmail, host)
        pages = await read(source)
        again = await read(source, pages[-1].cursor)
        assert set(subjects(pages)) | set(subjects(again)) == set(put)

    async def test_a_page_that_gmail_forgot_is_listed_again(self, gmail: FakeGmail, host: Host):
        gmail.cap = 5
        put = [gmail.receive(age=30 - number) for number in range(12)]
        gmail.after[2] = gmail.forget_pages
        assert subjects(await read(mailbox(gmail, host))) == put

    async def test_a_mailbox_that_always_forgets_is_tried_later(self, gmail: FakeGmail, host: Host):
        gmail.cap = 1
        for _ in range(3):
            gmail.receive()
        gmail.after = {number: gmail.forget_pages for number in range(2, 40)}
        with pytest.raises(RetryLater, match="again and again"):
            await read(mailbox(gmail, host))

    async def test_what_was_deleted_between_listing_and_getting_is_left_out(self, gmail: FakeGmail, host: Host):
        gone, there = gmail.receive(age=2), gmail.receive()
        gmail.after[2] = lambda: gmail.mails.pop(gone)
        assert subjects(await read(mailbox(gmail, host))) == [there]

    async def test_another_query_reads_the_last_day_again_and_not_all_of_history(
        self, gmail: FakeGmail, host: Host, clock: HandClock
    ):
        gmail.receive(age=20 * DAY, subject="lead")
        cursor = (await read(mailbox(gmail, host, newer_than="1y")))[-1].cursor
        clock.advance(3600)
        young = gmail.receive(subject="lead")
        assert subjects(await read(mailbox(gmail, host, "subject:lead", newer_than="1y"), cursor)) == [young]

    @pytest.mark.parametrize("broken", [7, "x", {"of": 3}, {"reading": "x"}, []])
    async def test_a_broken_cursor_starts_over(self, gmail: FakeGmail, host: Host, broken: Any):
        put = [gmail.receive()]
        assert subjects(await read(mailbox(gmail, host), broken)) == put

    async def test_who_looks_back_is_shown_what_lies_before_newer_than(
        self, gmail: FakeGmail, host: Host, clock: HandClock
    ):
        old, source = gmail.receive(age=5 * DAY), mailbox(gmail, host)
        cursor = (await read(source))[-1].cursor
        assert subjects(await read(source, cursor, since=START - timedelta(days=7))) == [old]

    async def test_the_cursor_stays_small_where_mail_comes_in_masses(
        self, gmail: FakeGmail, host: Host, clock: HandClock
    ):
        source, cursor = mailbox(gmail, host, "in:inbox"), None
        shown: list[str] = []
        put: list[str] = []
        for _ in range(5):
            for _ in range(200):
                put.append(gmail.receive())
                clock.advance(20)
            pages = await read(source, cursor)
            cursor, shown = pages[-1].cursor, shown + subjects(pages)
        assert shown == put
        assert len(msgspec.json.encode(cursor)) < 20 * MOST
        assert sum(gmail.fetched.values()) < len(put) + 20

    async def test_more_in_ten_minutes_than_can_be_noted_is_still_all_shown(
        self, gmail: FakeGmail, host: Host, clock: HandClock
    ):
        put = [gmail.receive(age=1) for _ in range(MOST + 100)]
        source = mailbox(gmail, host)
        pages = await read(source)
        clock.advance(60)
        more = gmail.receive()
        assert set(subjects(pages)) == set(put)
        assert more in subjects(await read(source, pages[-1].cursor))


class TestTrouble:
    async def test_one_refresh_serves_all_who_use_the_account(self, gmail: FakeGmail, host: Host):
        gmail.receive()
        for query in ("is:unread", "in:inbox", "from:ana"):
            await read(mailbox(gmail, host, query))
        assert gmail.refreshes == 1

    async def test_a_withdrawn_consent_needs_attention_and_says_what_to_do(self, gmail: FakeGmail, host: Host):
        gmail.revoke()
        with pytest.raises(NeedsAttention, match="harken integrations google configure") as caught:
            await read(mailbox(gmail, host))
        assert not any(secret in str(caught.value) for secret in (CLIENT_SECRET, REFRESH_TOKEN))

    async def test_a_token_that_ended_early_is_asked_for_again(self, gmail: FakeGmail, host: Host):
        put = [gmail.receive()]
        await read(mailbox(gmail, host, "in:sent"))
        gmail.expire_tokens()
        assert subjects(await read(mailbox(gmail, host))) == put

    async def test_a_rate_limit_within_a_read_loses_nothing(self, gmail: FakeGmail, host: Host, clock: HandClock):
        put = [gmail.receive(age=60 - number) for number in range(30)]
        source = mailbox(gmail, host)
        first = await source.poll(None, START)
        gmail.limit(30)
        with pytest.raises(RetryLater) as caught:
            await source.poll(first.cursor, START)
        clock.advance(31)
        assert caught.value.reason == "rate_limited"
        assert subjects([first, *await read(source, first.cursor)]) == put

    @pytest.mark.parametrize("status", [500, 503])
    async def test_a_server_in_trouble_is_asked_later_and_the_text_is_not_given_up(
        self, gmail: FakeGmail, host: Host, status: int
    ):
        gmail.receive(text="all of it")
        source = mailbox(gmail, host)
        gmail.after[2] = lambda: gmail.answers.append(Answer(status=status))
        with pytest.raises(RetryLater):
            await read(source)
        assert (await one(gmail, host)).data["body"] == "all of it"

    async def test_a_consent_without_gmail_names_the_scope(self, clock: HandClock, host: Host):
        fake = FakeGmail(clock, scopes=frozenset({"openid"}))
        async with fake.serve():
            with pytest.raises(NeedsAttention, match=r"gmail\.readonly"):
                await read(mailbox(fake, host))
