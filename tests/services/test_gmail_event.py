"""What Gmail's search is asked for, and what is told of a mail, however odd it is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic import ValidationError

from harken.http import HttpSettings
from harken.http.client import Client
from harken.services.gmail import Query, plugin
from harken.services.google.api import GoogleAccount
from harken.source import Host
from harken.testing import HandClock
from harken.testing.fakes.gmail import FakeGmail
from tests.services.mailbox import DAY, mailbox, one
from tests.services.reading import events, read, subjects


@pytest.fixture
async def gmail(clock: HandClock) -> AsyncIterator[FakeGmail]:
    fake = FakeGmail(clock)
    async with fake.serve():
        yield fake


class TestSearch:
    async def test_the_bound_holds_for_both_sides_of_an_or(self, gmail: FakeGmail, host: Host):
        gmail.receive(age=9 * DAY, subject="interesado")
        put = [gmail.receive(age=5, subject="a lead"), gmail.receive(subject="interesado")]
        gmail.receive(subject="else")
        assert subjects(await read(mailbox(gmail, host, "subject:lead OR subject:interesado"))) == put
        assert subjects(await read(mailbox(gmail, host, "is:unread subject:(lead OR interesado)"))) == put

    async def test_an_empty_search_finds_everything(self, gmail: FakeGmail, host: Host):
        put = [gmail.receive(labels=["SENT"])]
        assert subjects(await read(mailbox(gmail, host, ""))) == put

    async def test_drafts_are_no_mail(self, gmail: FakeGmail, host: Host):
        gmail.receive(labels=["DRAFT"], subject="lead")
        assert events(await read(mailbox(gmail, host, "subject:lead"))) == []

    @pytest.mark.parametrize("query", ['subject:"a', "(a", "a)", "a) OR (b", "{a)", "}{"])
    def test_a_search_that_could_reach_beyond_itself_is_refused(self, query: str):
        with pytest.raises(ValidationError, match="without its other half"):
            Query(query=query)

    @pytest.mark.parametrize("query", ['subject:"a) b"', "{from:a from:b} -(c d)", "is:unread label:lead"])
    def test_a_search_with_both_halves_is_taken(self, query: str):
        assert Query(query=query).query == query

    async def test_a_check_tells_which_labels_there_are(self, gmail: FakeGmail, host: Host):
        gmail.label("My leads")
        account, check = GoogleAccount.model_validate(gmail.account()), plugin.check
        assert check is not None
        checked = await check(Query(query="label:my-leads -label:nope is:unread"), account, host)
        assert checked.found == {"my-leads": "the label my leads (Label_1)"}
        assert [sentence for sentence in checked.unknown if "'nope'" in sentence] == list(checked.unknown) != []


class TestEvent:
    async def test_it_has_the_fields_of_the_reference(self, gmail: FakeGmail, host: Host, clock: HandClock):
        headers = {"Date": "Mon, 05 Jan 2026 08:00:00 +0100", "Message-ID": "<1@x>"}
        id = gmail.receive(
            subject="Ärger 🚨",
            sender="José <Jose@Example.com>",
            text="Tel: +57\nüber & 'so'",
            snippet="Tel: +57 über & 'so'",
            headers=headers,
            files=[("ré.pdf", b"x" * 700)],
        )
        event = await one(gmail, host, extract={"phone": r"Tel: (\S+)"})
        assert (event.subject, event.occurred_at, event.type) == (id, clock.now(), "gmail.message")
        assert event.data == {
            "id": id,
            "thread_id": id,
            "message_id": "<1@x>",
            "subject": "Ärger 🚨",
            "from": "José <Jose@Example.com>",
            "sender": "jose@example.com",
            "sender_domain": "example.com",
            "to": "me@example.com",
            "cc": "",
            "date": "2026-01-05T07:00:00Z",
            "snippet": "Tel: +57 über & 'so'",
            "body": "Tel: +57\nüber & 'so'",
            "attachments": [{"name": "ré.pdf", "type": "application/octet-stream", "size": 700}],
            "phone": "+57",
            "labels": ["INBOX", "UNREAD"],
        }

    async def test_html_is_read_where_there_is_no_text(self, gmail: FakeGmail, host: Host):
        gmail.receive(text=None, html="<p>Hallo <b>Ana</b></p><style>x</style>")
        assert (await one(gmail, host)).data["body"] == "Hallo Ana"

    @pytest.mark.parametrize(
        "raw",
        [
            b"",
            b"\xff\xfe\x00",
            b"no header at all",
            b"Content-Type: multipart/mixed; boundary=x\n\n--x\nContent-Type: multipart/mixed\n\n--",
            b"Content-Type: text/plain; charset=nope\nContent-Transfer-Encoding: base64\n\n!!!!",
            b"From: \xe4\xf6\xfc\nSubject: =?utf-8?b?\xff?=\n\nx",
            b"Content-Type: text/html\n\n<<<table><p",
        ],
    )
    async def test_broken_mime_is_still_a_mail(self, gmail: FakeGmail, host: Host, raw: bytes):
        id = gmail.receive(raw)
        assert (await one(gmail, host)).subject == id

    @pytest.mark.parametrize(
        "oddities",
        [
            {"payload": None, "internalDate": None, "labelIds": None, "snippet": None, "threadId": 7},
            {"payload": [], "internalDate": "soon", "labelIds": "INBOX", "snippet": {}},
            {"payload": {"headers": {}, "parts": {}, "body": []}, "internalDate": 10**30},
            {"payload": {"headers": [7, {"name": 1}, {"value": "x"}], "parts": [None, {"parts": [1]}]}},
            {"payload": {"mimeType": "text/plain", "body": {"data": "a_=-b***c", "size": "x"}}},
            {"labelIds": [7, None, "Label_404"]},
        ],
    )
    async def test_values_of_other_types_never_hide_a_mail(
        self, gmail: FakeGmail, host: Host, oddities: dict[str, Any]
    ):
        odd, plain = gmail.receive(age=1), gmail.receive()
        gmail.mails[odd].oddities = oddities
        assert subjects(await read(mailbox(gmail, host))) == [odd, plain]

    async def test_a_mail_that_is_too_large_to_be_had_does_not_stop_the_others(
        self, gmail: FakeGmail, clock: HandClock, host: Host
    ):
        small = Client(clock, settings=HttpSettings(max_bytes=12_000_000))
        own = Host(http=small, clock=clock, random=host.random, allow_private=True)
        large = gmail.receive(subject="huge", text="x" * 76 + "\n" + ("y" * 76 + "\n") * 140_000, age=1, snippet="xx")
        after = gmail.receive()
        shown = events(await read(mailbox(gmail, own)))
        await small.close()
        assert [event.subject for event in shown] == [large, after]
        assert (shown[0].data["subject"], shown[0].data["snippet"], shown[0].data["body"]) == ("huge", "xx", "")
