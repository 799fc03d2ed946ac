"""WhatsApp: numbers, templates, and what Meta's codes mean."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic import ValidationError

from harken.errors import HarkenError, NeedsAttention, RetryLater
from harken.services.whatsapp import Account, whoami
from harken.source import Host, Message
from harken.testing import HandClock
from harken.testing.fakes import Answer
from harken.testing.fakes.whatsapp import NUMBER, TOKEN, FakeWhatsApp
from tests.services.outlets import OnWhatsApp

PHONE = "4915123456789"


@pytest.fixture
async def whatsapp(clock: HandClock) -> AsyncIterator[FakeWhatsApp]:
    fake = FakeWhatsApp(clock)
    async with fake.serve():
        yield fake


async def send(fake: FakeWhatsApp, host: Host, to: str = PHONE, data: Any = None, **fields: Any) -> Any:
    message = Message(to=to, text="the disk\n\nis full", title="Alert", data=data or {})
    return await OnWhatsApp(fake, host, **fields).destination.deliver(message)


async def refused(fake: FakeWhatsApp, host: Host, **given: Any) -> HarkenError:
    with pytest.raises(HarkenError) as caught:
        await send(fake, host, **given)
    assert TOKEN not in f"{caught.value}{caught.value!r}"
    return caught.value


@pytest.mark.parametrize(
    "to",
    [
        PHONE,
        f"+{PHONE}",
        "+49 151 234-56789",
        "0049 (151) 23456789",
        f"{PHONE}@s.whatsapp.net",
        f"{PHONE}:7@s.whatsapp.net",
    ],
)
async def test_every_way_to_write_a_number_is_understood(whatsapp: FakeWhatsApp, host: Host, to: str):
    await send(whatsapp, host, to)
    assert whatsapp.sent[0]["to"] == PHONE


async def test_a_group_is_refused_with_the_reason(whatsapp: FakeWhatsApp, host: Host):
    error = await refused(whatsapp, host, to="120363041234567890@g.us")
    assert isinstance(error, NeedsAttention)
    assert "group" in str(error)
    assert not whatsapp.seen


@pytest.mark.parametrize("to", ["ana", "12", "0151 2345678", "1234567890123456789", f"{PHONE}@lid", "@s.whatsapp.net"])
async def test_what_is_no_number_is_refused(whatsapp: FakeWhatsApp, host: Host, to: str):
    assert "phone number" in str(await refused(whatsapp, host, to=to))


async def test_after_a_day_of_silence_a_template_is_asked_for(whatsapp: FakeWhatsApp, host: Host, clock: HandClock):
    clock.advance(86_401)
    error = await refused(whatsapp, host)
    assert isinstance(error, NeedsAttention)
    assert "24 hours" in error.message
    assert "template" in error.fix


async def test_a_template_reaches_people_after_a_day(whatsapp: FakeWhatsApp, host: Host, clock: HandClock):
    clock.advance(86_401)
    await send(whatsapp, host, template="alert", language="pt_BR")
    sent = whatsapp.sent[0]["template"]
    assert (sent["name"], sent["language"]) == ("alert", {"code": "pt_BR"})
    assert sent["components"][0]["parameters"] == [{"type": "text", "text": "Alert the disk is full"}]


async def test_a_step_may_name_its_own_template(whatsapp: FakeWhatsApp, host: Host):
    await send(whatsapp, host, data={"template": "alert"})
    assert whatsapp.sent[0]["type"] == "template"


async def test_a_step_may_do_without_the_template(whatsapp: FakeWhatsApp, host: Host):
    await send(whatsapp, host, data={"template": ""}, template="alert")
    assert whatsapp.sent[0]["text"] == {"body": "Alert\n\nthe disk\n\nis full", "preview_url": False}


@pytest.mark.parametrize(
    "data", [{"template": "Not A Name"}, {"template": 7}, {"template": "alert", "language": "x y"}]
)
async def test_a_template_that_cannot_be_is_refused(whatsapp: FakeWhatsApp, host: Host, data: Any):
    assert isinstance(await refused(whatsapp, host, data=data), NeedsAttention)
    assert not whatsapp.seen


async def test_an_unknown_template_needs_attention(whatsapp: FakeWhatsApp, host: Host):
    assert "language" in str(await refused(whatsapp, host, data={"template": "other"}))


@pytest.mark.parametrize("code", [4, 80007, 130429, 131056])
@pytest.mark.parametrize("status", [400, 429])
async def test_too_much_is_later_whatever_the_status(whatsapp: FakeWhatsApp, host: Host, code: int, status: int):
    whatsapp.trouble.append((status, code, {}))
    error = await refused(whatsapp, host)
    assert isinstance(error, RetryLater)
    assert error.reason == "rate_limited"


@pytest.mark.parametrize("code", [1, 2, 131000, 131016, 131057, 133004])
async def test_what_passes_is_later(whatsapp: FakeWhatsApp, host: Host, code: int):
    whatsapp.trouble.append((400, code, {}))
    assert isinstance(await refused(whatsapp, host), RetryLater)


@pytest.mark.parametrize(("status", "code"), [(401, 0), (500, 3), (403, 10), (401, 190), (403, 200), (403, 299)])
async def test_a_credential_that_does_not_do_needs_attention(
    whatsapp: FakeWhatsApp, host: Host, status: int, code: int
):
    whatsapp.trouble.append((status, code, {}))
    assert "system user" in str(await refused(whatsapp, host))


@pytest.mark.parametrize("code", [100, 131026, 131030, 131048, 999_999])
async def test_other_codes_need_attention_and_are_named(whatsapp: FakeWhatsApp, host: Host, code: int):
    whatsapp.trouble.append((400, code, {}))
    error = await refused(whatsapp, host)
    assert isinstance(error, NeedsAttention)
    assert str(code) in error.message


@pytest.mark.parametrize(("status", "kind"), [(502, RetryLater), (200, RetryLater), (404, NeedsAttention)])
async def test_a_page_that_is_not_metas_is_judged_by_its_status(
    whatsapp: FakeWhatsApp, host: Host, status: int, kind: type
):
    whatsapp.answers.append(Answer(status=status, body=b"<html>"))
    assert isinstance(await refused(whatsapp, host), kind)


async def test_an_answer_without_an_id_is_no_delivery(whatsapp: FakeWhatsApp, host: Host):
    whatsapp.answers.append(Answer(body=b'{"messages": []}'))
    assert isinstance(await refused(whatsapp, host), RetryLater)


async def test_the_number_says_who_it_is(whatsapp: FakeWhatsApp, host: Host):
    who = await whoami(OnWhatsApp(whatsapp, host).account, host)
    assert who == {"id": NUMBER, "number": "+49 30 1234", "name": "Acme", "quality": "GREEN"}


@pytest.mark.parametrize("wrong", [{"phone_number_id": "+49 30"}, {"version": "../v1"}, {"template": "A B"}])
def test_an_account_with_a_slip_is_refused(wrong: dict[str, str]):
    with pytest.raises(ValidationError):
        Account.model_validate({"token": TOKEN, "phone_number_id": NUMBER, **wrong})
