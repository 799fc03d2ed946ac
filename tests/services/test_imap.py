"""IMAP on a real server: what comes into a folder is shown once, and reading it marks nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import timedelta
from typing import Any

import pytest

from harken.errors import NeedsAttention, Refused, RetryLater
from harken.event import Event
from harken.services.imap import Account, Folder, MarkParams, Query, check, mark_read, plugin, whoami
from harken.services.imap.api import LARGEST
from harken.source import Call, Host
from harken.testing import START, HandClock
from harken.testing.fakes.gmail import written
from harken.testing.source import SourceContract
from tests.services.dovecot import PASSWORD, Dovecot, serving
from tests.services.names import Names
from tests.services.reading import events, read, subjects

# its server is started once, and not by each worker
pytestmark = pytest.mark.worker_group("imap")

DAY = 86_400.0


@pytest.fixture(scope="module")
def server() -> Iterator[Dovecot]:
    with serving() as dovecot:
        yield dovecot


@pytest.fixture
async def mail(server: Dovecot) -> AsyncIterator[Dovecot]:
    server.clear()
    yield server


def folder(mail: Dovecot, host: Host, account: dict[str, Any] | None = None, **query: Any) -> Folder:
    return Folder(Query.model_validate(query), Account.model_validate(mail.account(**(account or {}))), host)


def letter(number: int, **more: Any) -> bytes:
    return written(subject=f"mail {number}", headers={"Message-ID": f"<{number}@x.org>"}, **more)


def numbers(found: Sequence[Event]) -> list[str]:
    return [event.data["subject"] for event in found]


class OnDovecot:
    page_size = 40

    def __init__(self, mail: Dovecot, host: Host, clock: HandClock) -> None:
        self.since = START
        self.source = folder(mail, host)
        self._mail = mail
        self._clock = clock
        self._count = 0

    async def put(self, count: int, *, tied: bool = False) -> Sequence[str]:
        known = set(subjects(await read(self.source)))
        first, self._count = self._count, self._count + count
        self._mail.receive(*(letter(number) for number in range(first, self._count)), came=self._clock.now())
        return [one for one in subjects(await read(self.source)) if one not in known]

    async def expire(self) -> bool:
        return False


class TestContract(SourceContract):
    @pytest.fixture
    async def service(self, mail: Dovecot, host: Host, clock: HandClock) -> OnDovecot:
        return OnDovecot(mail, host, clock)


class TestReading:
    async def test_the_first_read_shows_what_newer_than_allows(self, mail: Dovecot, host: Host, clock: HandClock):
        for number, age in enumerate((30 * DAY, 1.1 * DAY, 0.9 * DAY, 0)):
            mail.receive(letter(number), came=clock.now() - timedelta(seconds=age))
        assert numbers(events(await read(folder(mail, host)))) == ["mail 2", "mail 3"]

    async def test_reading_marks_nothing_as_read(self, mail: Dovecot, host: Host, clock: HandClock):
        mail.receive(letter(1), letter(2), came=clock.now())
        await read(folder(mail, host))
        assert mail.unseen() == 2

    async def test_what_stays_unread_is_shown_once(self, mail: Dovecot, host: Host, clock: HandClock):
        mail.receive(letter(1), came=clock.now())
        source = folder(mail, host)
        first = await read(source)
        again = await read(source, first[-1].cursor)
        assert (len(events(first)), events(again)) == (1, [])

    async def test_a_burst_of_500_is_shown_in_its_order(self, mail: Dovecot, host: Host, clock: HandClock):
        source = folder(mail, host)
        cursor = (await read(source))[-1].cursor
        mail.receive(*(letter(number) for number in range(500)), came=clock.now())
        assert numbers(events(await read(source, cursor))) == [f"mail {number}" for number in range(500)]

    async def test_only_what_the_search_finds_is_shown_and_the_rest_is_passed(
        self, mail: Dovecot, host: Host, clock: HandClock
    ):
        source = folder(mail, host, search='UNSEEN SUBJECT "mail 2"')
        mail.receive(*(letter(number) for number in range(1, 4)), came=clock.now())
        pages = await read(source)
        assert numbers(events(pages)) == ["mail 2"]
        assert events(await read(folder(mail, host, search="ALL"), pages[-1].cursor)) == []

    async def test_new_numbers_of_the_same_mails_deliver_nothing_twice_and_lose_nothing(
        self, mail: Dovecot, host: Host, clock: HandClock
    ):
        source = folder(mail, host)
        mail.receive(letter(1), letter(2), came=clock.now())
        first = await read(source)
        mail.renumber()
        clock.advance(60)
        mail.receive(letter(3), came=clock.now())
        again = await read(source, first[-1].cursor)
        assert numbers(events(again)) == ["mail 1", "mail 2", "mail 3"]
        assert subjects(first) == subjects(again)[:2]
        assert events(again)[0].data["uid_validity"] == mail.validity != events(first)[0].data["uid_validity"]
        assert events(await read(source, again[-1].cursor)) == []

    async def test_new_numbers_do_not_bring_back_what_is_older_than_the_memory(
        self, mail: Dovecot, host: Host, clock: HandClock
    ):
        mail.receive(letter(1), came=clock.now())
        source = folder(mail, host)
        cursor = (await read(source))[-1].cursor
        clock.advance(3 * DAY)
        cursor = (await read(source, cursor))[-1].cursor
        mail.renumber()
        mail.receive(letter(2), came=clock.now())
        assert numbers(events(await read(source, cursor))) == ["mail 2"]

    async def test_another_folder_is_read_like_a_new_one(self, mail: Dovecot, host: Host, clock: HandClock):
        cursor = (await read(folder(mail, host)))[-1].cursor
        mail.make("Leads")
        mail.receive(letter(7), came=clock.now(), folder="Leads")
        (event,) = events(await read(folder(mail, host, folder="Leads"), cursor))
        assert (event.data["subject"], event.data["folder"]) == ("mail 7", "Leads")

    async def test_a_folder_of_any_script_is_found(self, mail: Dovecot, host: Host, clock: HandClock):
        mail.make('"&ZeVnLIqe- & Gr&APw-n"'.replace(" & ", " &- "))
        mail.receive(letter(8), came=clock.now(), folder='"&ZeVnLIqe- &- Gr&APw-n"')
        assert numbers(events(await read(folder(mail, host, folder="日本語 & Grün")))) == ["mail 8"]

    async def test_who_looks_back_is_shown_older_mail(self, mail: Dovecot, host: Host, clock: HandClock):
        mail.receive(letter(1), came=clock.now() - timedelta(days=5))
        source = folder(mail, host)
        cursor = (await read(source))[-1].cursor
        assert numbers(events(await read(source, cursor, since=START - timedelta(days=7)))) == ["mail 1"]

    @pytest.mark.parametrize("broken", [7, "x", {"last": "x"}, []])
    async def test_a_broken_cursor_starts_over(self, mail: Dovecot, host: Host, clock: HandClock, broken: Any):
        mail.receive(letter(1), came=clock.now())
        assert len(events(await read(folder(mail, host), broken))) == 1


class TestEvent:
    async def test_it_has_the_fields_of_the_reference(self, mail: Dovecot, host: Host, clock: HandClock):
        headers = {"Date": "Mon, 05 Jan 2026 08:00:00 +0100", "Message-ID": "<1@x>"}
        raw = written(
            subject="Ärger 🚨 " + "lang " * 30,
            sender="José <Jose@Example.com>",
            text="Tel: +57\nüber",
            html="<b>no</b>",
            files=[("ré.pdf", b"x" * 700)],
            headers=headers,
        )
        mail.receive(raw, came=clock.now(), flags="\\Flagged")
        (event,) = events(await read(folder(mail, host, extract={"phone": r"Tel: (\S+)"})))
        uid, validity = event.data["uid"], event.data["uid_validity"]
        assert (event.occurred_at, event.type, event.subject) == (clock.now(), "imap.message", event.data["id"])
        assert event.data == {
            "id": event.subject,
            "uid": uid,
            "uid_validity": validity,
            "folder": "INBOX",
            "message_id": "<1@x>",
            "subject": ("Ärger 🚨 " + "lang " * 30).strip(),
            "from": "José <Jose@Example.com>",
            "sender": "jose@example.com",
            "sender_domain": "example.com",
            "to": "me@example.com",
            "cc": "",
            "date": "2026-01-05T07:00:00Z",
            "snippet": "Tel: +57 über",
            "body": "Tel: +57\nüber",
            "attachments": [{"name": "ré.pdf", "type": "application/octet-stream", "size": 700}],
            "phone": "+57",
            "labels": ["Flagged"],
        }

    async def test_of_a_large_mail_the_beginning_is_read(self, mail: Dovecot, host: Host, clock: HandClock):
        raw = letter(1, text="the text", files=[("big.bin", bytes(3_000_000)), ("later.txt", b"x")])
        mail.receive(raw, letter(2), came=clock.now())
        first, second = events(await read(folder(mail, host)))
        assert len(raw) > LARGEST
        assert (first.data["body"], second.data["subject"]) == ("the text", "mail 2")
        assert [(file["name"], file["size"]) for file in first.data["attachments"]] == [("big.bin", None)]

    async def test_two_mails_with_one_message_id_are_two_mails(self, mail: Dovecot, host: Host, clock: HandClock):
        same = {"Message-ID": "<always@the.same>"}
        mail.receive(written(subject="one", headers=same), written(subject="two", headers=same), came=clock.now())
        assert len(set(subjects(await read(folder(mail, host))))) == 2

    async def test_a_copy_of_a_mail_is_the_same_mail(self, mail: Dovecot, host: Host, clock: HandClock):
        mail.receive(letter(1), letter(1), came=clock.now())
        assert len(set(subjects(await read(folder(mail, host))))) == 1

    @pytest.mark.parametrize(
        "raw",
        [
            b"x",
            b"\xff\xfe\x80 no header\r\n",
            b"Subject: \xe4\xf6\r\nFrom: \xff@x\r\n\r\n\xff",
            b"Content-Type: multipart/mixed\r\n\r\nno boundary",
            b"Content-Type: multipart/mixed; boundary=a\n\n--a\nContent-Type: multipart/mixed; boundary=a\n\n--a",
            b"Content-Type: text/plain; charset=\"\xff\"; name*=utf-8''%ff%zz\nContent-Transfer-Encoding: base64\n\n!",
            b"Content-Type: text/plain; charset*0*=x'y'z; =;;\r\nContent-Transfer-Encoding: uuencode\r\n\r\nbegin 7",
            b"Content-Type: message/rfc822\r\n\r\nContent-Type: message/rfc822\r\n\r\n",
            b"Content-Disposition: attachment; filename==?utf-8?b?4p\r\nDate: 99 Foo 0000\r\n\r\n",
        ],
    )
    async def test_broken_mime_is_still_a_mail(self, mail: Dovecot, host: Host, clock: HandClock, raw: bytes):
        mail.receive(raw, letter(2), came=clock.now())
        found = events(await read(folder(mail, host)))
        assert (len(found), found[1].data["subject"]) == (2, "mail 2")
        assert all(event.payload() for event in found)


class TestMarking:
    async def test_a_mail_is_marked_by_its_uid_once_or_twice(self, mail: Dovecot, host: Host, clock: HandClock):
        mail.receive(letter(1), letter(2), came=clock.now())
        event = events(await read(folder(mail, host)))[0]
        for _ in range(2):
            await self._mark(mail, host, uid=event.data["uid"], uid_validity=event.data["uid_validity"])
        assert mail.unseen() == 1

    async def test_after_new_numbers_no_other_mail_is_marked(self, mail: Dovecot, host: Host, clock: HandClock):
        mail.receive(letter(1), came=clock.now())
        event = events(await read(folder(mail, host)))[0]
        mail.renumber()
        with pytest.raises(NeedsAttention, match="numbers its mails anew"):
            await self._mark(mail, host, uid=event.data["uid"], uid_validity=event.data["uid_validity"])
        assert mail.unseen() == 1

    async def test_a_mail_that_is_gone_is_no_trouble(self, mail: Dovecot, host: Host):
        assert await self._mark(mail, host, uid=4_000_000) == {"uid": 4_000_000, "folder": "INBOX"}

    async def _mark(self, mail: Dovecot, host: Host, **params: Any) -> Any:
        account = Account.model_validate(mail.account())
        return await mark_read(
            Call(params=MarkParams.model_validate(params), account=account, host=host, idempotency_key="k")
        )

    def test_a_job_marks_what_it_has_delivered(self):
        made = plugin.delivery
        assert made is not None
        assert list(made(Query(), "post").after) == [
            {
                "action": "post.mark_read",
                "uid": "{{.trigger.event.uid}}",
                "uid_validity": "{{.trigger.event.uid_validity}}",
                "folder": "{{.trigger.event.folder}}",
            }
        ]


class TestAccount:
    @pytest.mark.parametrize("tls", [True, "starttls", False])
    async def test_every_way_to_connect_works(self, mail: Dovecot, host: Host, tls: Any):
        port = mail.tls if tls is True else mail.plain
        account = Account.model_validate(mail.account(tls=tls, port=port))
        assert (await whoami(account, host))["inbox"] == 0

    async def test_a_wrong_password_needs_attention_and_is_not_repeated(self, mail: Dovecot, host: Host):
        with pytest.raises(NeedsAttention, match=r"AUTHENTICATIONFAILED.*harken integrations imap configure") as caught:
            await read(folder(mail, host, {"password": "wrong-password"}))
        assert "wrong-password" not in f"{caught.value}{caught.value!r}"

    async def test_a_certificate_that_nobody_vouches_for_needs_attention(self, mail: Dovecot, host: Host):
        for way in ({}, {"tls": "starttls", "port": mail.plain}):
            with pytest.raises(NeedsAttention, match="not trusted"):
                await read(folder(mail, host, {"ca_bundle": "", **way}))

    async def test_a_folder_that_is_not_there_needs_attention(self, mail: Dovecot, host: Host):
        with pytest.raises(NeedsAttention, match="refused the folder"):
            await read(folder(mail, host, folder="Nowhere"))

    async def test_a_private_address_needs_consent(self, mail: Dovecot, host: Host):
        guarded = Host(http=host.http, clock=host.clock, random=host.random)
        with pytest.raises(Refused, match="private address"):
            await read(folder(mail, guarded))

    async def test_a_name_that_leads_to_a_private_address_is_refused(
        self, mail: Dovecot, host: Host, monkeypatch: pytest.MonkeyPatch
    ):
        Names(monkeypatch, mail_example_com=[["93.184.215.14", "10.0.0.5"]])
        guarded = Host(http=host.http, clock=host.clock, random=host.random)
        with pytest.raises(Refused, match=r"mail\.example\.com is at 10\.0\.0\.5, a private address"):
            await read(folder(mail, guarded, {"host": "mail.example.com"}))

    async def test_a_name_that_leads_elsewhere_after_the_check_is_not_asked_again(
        self, mail: Dovecot, host: Host, monkeypatch: pytest.MonkeyPatch
    ):
        names = Names(monkeypatch, localhost=[["127.0.0.1"], ["169.254.169.254"]])
        plain = Account.model_validate(mail.account(host="localhost", tls=False, port=mail.plain))
        assert (await whoami(plain, host))["inbox"] == 0
        assert names.asked == ["localhost"]

    async def test_no_server_is_tried_later(self, mail: Dovecot, host: Host):
        with pytest.raises(RetryLater, match="failed"):
            await read(folder(mail, host, {"port": 1}))

    async def test_a_check_opens_the_folder_and_tries_the_search(self, mail: Dovecot, host: Host, clock: HandClock):
        mail.receive(letter(1), came=clock.now())
        account = Account.model_validate(mail.account())
        assert (await check(Query(search="UNSEEN LARGER 7"), account, host)).found == {"INBOX": "a folder with 1 mails"}
        with pytest.raises(NeedsAttention):
            await check(Query(search='X-GM-RAW "only gmail knows this"'), account, host)

    def test_the_password_is_shown_nowhere(self, server: Dovecot):
        account = Account.model_validate(server.account())
        assert PASSWORD not in f"{account}{account!r}"
