"""E-mail: what a letter holds, and what a mail server's codes mean. The server is a real one."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from harken.errors import HarkenError, NeedsAttention, Refused, RetryLater
from harken.services.email import Account, EmailDestination, whoami
from harken.source import Host, Message
from harken.testing.fakes.smtp_server import PASSWORD, FakeMail
from tests.services.names import Names
from tests.services.outlets import OnMail

SERVER = {"host": "mail.example.com", "sender": "harken@example.com"}


@pytest.fixture
async def mail(tmp_path: Path) -> AsyncIterator[FakeMail]:
    fake = FakeMail(tmp_path)
    async with fake.serve():
        yield fake


async def send(fake: FakeMail, host: Host, to: str = "ana@example.com", **given: Any) -> EmailMessage:
    message = Message(**{"to": to, "text": "voll 🔥", "title": "Ärger", "idempotency_key": "run-1/step", **given})
    await OnMail(fake, host).destination.deliver(message)
    return fake.mails[-1][1]


async def refused(fake: FakeMail, host: Host, **given: Any) -> HarkenError:
    with pytest.raises(HarkenError) as caught:
        await send(fake, host, **given)
    assert PASSWORD not in f"{caught.value}{caught.value!r}"
    return caught.value


class TestLetter:
    async def test_it_has_a_sender_a_subject_and_a_text_of_any_script(self, mail: FakeMail, host: Host):
        letter = await send(mail, host)
        assert (letter["From"], letter["To"]) == ("Harken <harken@example.com>", "ana@example.com")
        assert (letter["Subject"], letter.get_content().strip()) == ("Ärger", "voll 🔥")

    async def test_its_id_is_that_of_the_step_and_at_the_senders_domain(self, mail: FakeMail, host: Host):
        first, again = await send(mail, host), await send(mail, host, text="reworded")
        other = await send(mail, host, idempotency_key="run-2/step")
        assert first["Message-ID"] == again["Message-ID"] != other["Message-ID"]
        assert first["Message-ID"].endswith("@example.com>")

    async def test_without_a_title_the_first_line_is_the_subject(self, mail: FakeMail, host: Host):
        letter = await send(mail, host, title="", text="\n  disk 7\nis full")
        assert letter["Subject"] == "disk 7"

    async def test_a_long_subject_is_cut_and_the_text_is_not(self, mail: FakeMail, host: Host):
        letter = await send(mail, host, title="", text="word " * 20_000)
        assert len(letter["Subject"]) <= 150
        assert len(letter.get_content().split()) == 20_000

    async def test_a_title_makes_no_header(self, mail: FakeMail, host: Host):
        letter = await send(mail, host, title="hi\r\nBcc: eve@example.com\r\n\r\nbody")
        assert letter["Bcc"] is None
        assert letter["Subject"] == "hi Bcc: eve@example.com body"
        assert mail.mails[0][0] == ["ana@example.com"]

    async def test_a_line_with_a_dot_does_not_end_it(self, mail: FakeMail, host: Host):
        letter = await send(mail, host, text="one\n.\nRCPT TO:<eve@example.com>\ntwo")
        assert letter.get_content().split()[-1] == "two"

    async def test_no_machine_answers_it(self, mail: FakeMail, host: Host):
        assert (await send(mail, host))["Auto-Submitted"] == "auto-generated"

    async def test_several_are_written_to_once_each(self, mail: FakeMail, host: Host):
        await send(mail, host, "Ana <ana@example.com>, bob@bücher.example; ana@example.com")
        assert mail.mails[0][0] == ["ana@example.com", "bob@xn--bcher-kva.example"]

    @pytest.mark.parametrize(
        "to",
        [
            *(
                "",
                "ana",
                "ana@",
                "@example.com",
                "a b@example.com",
                "ana@exa mple.com",
                "a..b@example.com",
                "ä@example.com",
            ),
            *(
                "ana@example.com\r\nBcc: eve@example.com",
                "ana@example.com>\nDATA",
                "<script>@example.com",
                "<a@example.com",
            ),
            *("Ana\x00 <ana@example.com>", "x@" + "a" * 64, ", ".join(f"a{n}@example.com" for n in range(51))),
        ],
    )
    async def test_what_is_no_address_is_not_written_to(self, mail: FakeMail, host: Host, to: str):
        assert isinstance(await refused(mail, host, to=to), NeedsAttention)
        assert not mail.mails


class TestServer:
    @pytest.mark.parametrize("command", ["AUTH", "MAIL", "RCPT", "DATA"])
    @pytest.mark.parametrize(("code", "kind"), [("450 4.2.0", RetryLater), ("550 5.7.1", NeedsAttention)])
    async def test_4xx_is_later_and_5xx_needs_attention(
        self, mail: FakeMail, host: Host, command: str, code: str, kind: type
    ):
        mail.refusals[command] = f"{code} because {PASSWORD}"
        error = await refused(mail, host)
        assert isinstance(error, kind)
        assert code in error.message
        assert not mail.mails

    async def test_one_wrong_recipient_stops_the_letter_for_all(self, mail: FakeMail, host: Host):
        mail.refusals["RCPT"] = "550 5.1.1 nobody"
        error = await refused(mail, host, to="gone@example.com, ana@example.com")
        assert "gone@example.com" in str(error)
        assert not mail.mails

    async def test_a_wrong_password_needs_attention(self, mail: FakeMail, host: Host):
        fields = {"username": "ana", "password": "wrong-password", "ca_bundle": str(mail.ca_bundle)}
        with pytest.raises(NeedsAttention, match="signing in") as caught:
            await whoami(OnMail(mail, host, **fields).account, host)
        assert "wrong-password" not in str(caught.value)

    async def test_whoami_signs_in_and_sends_nothing(self, mail: FakeMail, host: Host):
        assert (await whoami(OnMail(mail, host).account, host))["user"] == "ana"
        assert not mail.mails

    async def test_a_certificate_that_nobody_vouches_for_needs_attention(self, mail: FakeMail, host: Host):
        with pytest.raises(NeedsAttention, match="not trusted"):
            await whoami(OnMail(mail, host, username="ana", password=PASSWORD).account, host)

    async def test_a_server_that_says_nothing_is_later(self, mail: FakeMail, host: Host):
        mail.silent = True
        fields = {"username": "ana", "password": PASSWORD, "ca_bundle": str(mail.ca_bundle), "timeout": 0.5}
        with pytest.raises(RetryLater) as caught:
            await OnMail(mail, host, **fields).destination.deliver(Message(to="ana@example.com", text="hi"))
        assert caught.value.reason == "timeout"

    async def test_a_server_that_is_not_there_is_later(self, host: Host):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
        account = Account.model_validate({**SERVER, "host": "127.0.0.1", "port": port})
        with pytest.raises(RetryLater):
            await whoami(account, host)

    async def test_a_private_address_is_dialled_only_when_that_is_allowed(self, mail: FakeMail, host: Host):
        account = OnMail(mail, host).account
        with pytest.raises(Refused, match="private address"):
            await EmailDestination(account, replace(host, allow_private=False)).deliver(
                Message(to="a@example.com", text="hi")
            )
        assert not mail.mails

    async def test_a_name_that_leads_to_a_private_address_is_refused(
        self, mail: FakeMail, host: Host, monkeypatch: pytest.MonkeyPatch
    ):
        Names(monkeypatch, mail_example_com=[["93.184.215.14", "10.0.0.5"]])
        account = Account.model_validate(SERVER)
        with pytest.raises(Refused, match=r"mail\.example\.com is at 10\.0\.0\.5, a private address"):
            await whoami(account, replace(host, allow_private=False))

    async def test_a_name_that_leads_elsewhere_after_the_check_is_not_asked_again(
        self, tmp_path: Path, host: Host, monkeypatch: pytest.MonkeyPatch
    ):
        names = Names(monkeypatch, mail_example_com=[["127.0.0.1"], ["169.254.169.254"]])
        fake = FakeMail(tmp_path, security="none")
        async with fake.serve():
            account = Account.model_validate({**SERVER, "port": fake.port, "security": "none"})
            await EmailDestination(account, host).deliver(Message(to="ana@example.com", text="hi"))
        assert (len(fake.mails), names.asked) == (1, ["mail.example.com"])

    async def test_tls_from_the_first_byte(self, tmp_path: Path, host: Host):
        fake = FakeMail(tmp_path, security="ssl")
        async with fake.serve():
            fields = {"security": "ssl", "username": "ana", "password": PASSWORD, "ca_bundle": str(fake.ca_bundle)}
            await OnMail(fake, host, **fields).destination.deliver(Message(to="ana@example.com", text="hi"))
        assert len(fake.mails) == 1

    async def test_no_tls_and_nobody_signed_in(self, tmp_path: Path, host: Host):
        fake = FakeMail(tmp_path, security="none")
        async with fake.serve():
            await OnMail(fake, host, security="none").destination.deliver(Message(to="ana@example.com", text="hi"))
        assert len(fake.mails) == 1

    async def test_a_server_without_tls_gets_no_password(self, tmp_path: Path, host: Host):
        fake = FakeMail(tmp_path, security="none")
        async with fake.serve():
            with pytest.raises(NeedsAttention, match="security: starttls"):
                await whoami(OnMail(fake, host, username="ana", password=PASSWORD).account, host)


class TestAccount:
    @pytest.mark.parametrize(
        "wrong",
        [
            {"username": "ana"},
            {"password": PASSWORD},
            {"username": "ana", "password": PASSWORD, "security": "none"},
            {"sender": "nobody"},
            {"sender": "a@example.com\r\nBcc: b@example.com"},
            {"host": "mail.example.com/x"},
        ],
    )
    def test_one_with_a_slip_is_refused_without_being_shown(self, wrong: dict[str, str]):
        with pytest.raises(ValidationError) as caught:
            Account.model_validate({**SERVER, **wrong})
        assert PASSWORD not in str(caught.value)

    @pytest.mark.parametrize(("security", "port"), [("starttls", 587), ("ssl", 465), ("none", 25)])
    def test_the_port_follows_the_security(self, security: str, port: int):
        assert Account.model_validate({**SERVER, "security": security}).effective_port == port
