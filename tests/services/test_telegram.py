"""Telegram: whom a bot can write to, and what its refusals mean."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from pydantic import ValidationError

from harken.errors import HarkenError, NeedsAttention, RetryLater
from harken.services.telegram import Account, plugin, whoami
from harken.source import Host, Message
from harken.testing import HandClock
from harken.testing.fakes import Answer
from harken.testing.fakes.telegram import TOKEN, FakeTelegram
from tests.services.outlets import OnTelegram


@pytest.fixture
async def telegram(clock: HandClock) -> AsyncIterator[FakeTelegram]:
    fake = FakeTelegram(clock)
    async with fake.serve():
        yield fake


async def send(
    telegram: FakeTelegram, host: Host, to: str = "42", text: str = "hi", **fields: Any
) -> Mapping[str, Any]:
    return await OnTelegram(telegram, host, **fields).destination.deliver(Message(to=to, text=text))


async def refused(telegram: FakeTelegram, host: Host, **given: Any) -> HarkenError:
    with pytest.raises(HarkenError) as caught:
        await send(telegram, host, **given)
    assert TOKEN.partition(":")[2] not in f"{caught.value}{caught.value!r}"
    return caught.value


@pytest.mark.parametrize(("to", "chat"), [("42", 42), (" -1001 ", -1001), ("@news", -1002)])
async def test_chats_groups_and_channels_are_written_to(telegram: FakeTelegram, host: Host, to: str, chat: int):
    assert await send(telegram, host, to) == {"chat": str(chat), "message_id": "1"}
    assert telegram.sent == [(chat, "hi")]


async def test_an_unknown_chat_needs_attention(telegram: FakeTelegram, host: Host):
    error = await refused(telegram, host, to="43")
    assert isinstance(error, NeedsAttention)
    assert "no chat 43" in str(error)


async def test_a_blocked_bot_needs_attention(telegram: FakeTelegram, host: Host):
    telegram.blocked.add("42")
    assert "blocked" in str(await refused(telegram, host))


async def test_a_group_that_moved_is_named_anew(telegram: FakeTelegram, host: Host):
    telegram.trouble.append((400, "Bad Request: group chat was upgraded", {"migrate_to_chat_id": -100777}))
    assert "-100777" in (await refused(telegram, host)).fix


async def test_a_wrong_token_needs_attention(telegram: FakeTelegram, host: Host):
    error = await refused(telegram, host, token="654321:AAotherotherotherother")
    assert isinstance(error, NeedsAttention)
    assert "BotFather" in error.fix


@pytest.mark.parametrize(("status", "kind"), [(502, RetryLater), (404, NeedsAttention), (302, NeedsAttention)])
async def test_a_gateways_page_is_judged_by_its_status(telegram: FakeTelegram, host: Host, status: int, kind: type):
    telegram.answers.append(Answer(status=status, headers={"Location": "http://127.0.0.1:1/"}, body=b"<html>"))
    assert isinstance(await refused(telegram, host), kind)


@pytest.mark.parametrize("body", [b"[]", b"{}", b'{"ok": "yes"}', b"<html>"])
async def test_an_answer_of_somebody_else_is_later(telegram: FakeTelegram, host: Host, body: bytes):
    telegram.answers.append(Answer(body=body))
    assert isinstance(await refused(telegram, host), RetryLater)


async def test_a_limit_without_a_time_is_still_a_limit(telegram: FakeTelegram, host: Host):
    telegram.trouble.append((429, "Too Many Requests", {"retry_after": "soon"}))
    error = await refused(telegram, host)
    assert isinstance(error, RetryLater)
    assert (error.reason, error.after) == ("rate_limited", None)


async def test_the_bot_says_who_it_is(telegram: FakeTelegram, host: Host):
    account = Account.model_validate({"token": f" {TOKEN}\n", "base_url": telegram.url + "/"})
    assert (await whoami(account, host))["name"] == "harken_bot"


@pytest.mark.parametrize("token", ["", "123456", "123456:a/../../x", "123456:AAAAAAAAAAAAAAAA?x=1", "xoxb-123"])
def test_what_is_no_token_is_refused_without_being_shown(token: str):
    with pytest.raises(ValidationError) as caught:
        Account.model_validate({"token": token})
    assert "BotFather" in str(caught.value)
    assert "AAAA" not in str(caught.value)


def test_the_token_may_come_from_the_environment():
    assert plugin.environment["TELEGRAM_BOT_TOKEN"] == "token"
