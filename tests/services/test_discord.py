"""Discord: a channel's webhook or a bot, and nobody is called by a mention."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic import ValidationError

from harken.errors import HarkenError, NeedsAttention, RetryLater
from harken.services.discord import Account, DiscordDestination, whoami
from harken.source import Host, Message
from harken.testing import HandClock
from harken.testing.fakes import Answer
from harken.testing.fakes.discord import HOOK_TOKEN, TOKEN, FakeDiscord
from tests.services.outlets import OnDiscord


@pytest.fixture
async def discord(clock: HandClock) -> AsyncIterator[FakeDiscord]:
    fake = FakeDiscord(clock)
    async with fake.serve():
        yield fake


async def send(fake: FakeDiscord, host: Host, to: str = "77", *, hook: bool = False, text: str = "hi") -> Any:
    outlet = OnDiscord(fake, host, hook=hook)
    return await outlet.destination.deliver(Message(to=to, text=text, idempotency_key="run-1/step"))


async def refused(fake: FakeDiscord, host: Host, **given: Any) -> HarkenError:
    with pytest.raises(HarkenError) as caught:
        await send(fake, host, **given)
    assert [secret for secret in (TOKEN, HOOK_TOKEN) if secret in f"{caught.value}{caught.value!r}"] == []
    return caught.value


@pytest.mark.parametrize("hook", [False, True])
async def test_nobody_is_called_by_a_mention(discord: FakeDiscord, host: Host, hook: bool):
    await send(discord, host, hook=hook, text="@everyone <@1>")
    assert discord.sent[0]["allowed_mentions"] == {"parse": []}


@pytest.mark.parametrize(("to", "where"), [("", "77"), ("78", "78")])
async def test_a_webhook_writes_into_its_channel_or_a_thread(discord: FakeDiscord, host: Host, to: str, where: str):
    assert await send(discord, host, to, hook=True) == {"channel": where, "message_id": "1001"}


async def test_a_bot_needs_a_channel(discord: FakeDiscord, host: Host):
    assert "id of a channel" in str(await refused(discord, host, to=""))


async def test_a_repeat_of_a_bot_is_answered_with_the_first_message(discord: FakeDiscord, host: Host):
    assert await send(discord, host) == await send(discord, host)


@pytest.mark.parametrize("code", [10003, 10015, 50001, 50007, 50013, 50027])
async def test_known_codes_say_what_to_do(discord: FakeDiscord, host: Host, code: int):
    discord.trouble.append((403, code, {}))
    error = await refused(discord, host)
    assert isinstance(error, NeedsAttention)
    assert str(code) in error.message
    assert error.fix


async def test_a_deleted_webhook_needs_attention(discord: FakeDiscord, host: Host):
    gone = Account.model_validate(
        {"webhook_url": f"https://discord.com/api/webhooks/8/{HOOK_TOKEN}", "base_url": discord.url}
    )
    with pytest.raises(NeedsAttention, match="deleted"):
        await DiscordDestination(gone, host).deliver(Message(to="", text="hi"))


@pytest.mark.parametrize("hook", [False, True])
async def test_a_fraction_of_a_second_is_a_wait(discord: FakeDiscord, host: Host, hook: bool):
    discord.trouble.append((429, 0, {"retry_after": 0.65, "global": True}))
    error = await refused(discord, host, hook=hook)
    assert isinstance(error, RetryLater)
    assert error.after == 0.65


async def test_the_gateways_own_limit_is_in_a_header(discord: FakeDiscord, host: Host):
    discord.answers.append(Answer(status=429, headers={"Retry-After": "40"}, body=b"error code: 1015"))
    error = await refused(discord, host)
    assert isinstance(error, RetryLater)
    assert (error.reason, error.after) == ("rate_limited", 40)


@pytest.mark.parametrize(("status", "kind"), [(502, RetryLater), (200, RetryLater), (301, NeedsAttention)])
async def test_a_page_that_is_not_discords_is_judged_by_its_status(
    discord: FakeDiscord, host: Host, status: int, kind: type
):
    discord.answers.append(Answer(status=status, headers={"Location": "http://127.0.0.1:1/"}, body=b"<html>"))
    assert isinstance(await refused(discord, host), kind)


@pytest.mark.parametrize(("hook", "name"), [(False, "harken"), (True, "Alerts")])
async def test_a_bot_and_a_webhook_say_who_they_are(discord: FakeDiscord, host: Host, hook: bool, name: str):
    who = await whoami(OnDiscord(discord, host, hook=hook).account, host)
    assert who["name"] == name
    assert HOOK_TOKEN not in str(who)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"token": TOKEN, "webhook_url": f"https://discord.com/api/webhooks/9/{HOOK_TOKEN}"},
        {"webhook_url": "https://discord.com/channels/1/2"},
        {"webhook_url": f"https://discord.com/api/webhooks/9/{HOOK_TOKEN}?x=1"},
        {"token": "a b"},
    ],
)
def test_an_account_is_one_of_both_and_is_not_shown(given: dict[str, str]):
    with pytest.raises(ValidationError) as caught:
        Account.model_validate(given)
    assert HOOK_TOKEN not in str(caught.value)
