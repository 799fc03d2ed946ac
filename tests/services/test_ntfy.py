"""ntfy: topics, priorities and who may write."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic import ValidationError

from harken.errors import HarkenError, NeedsAttention, RetryLater
from harken.services.ntfy import Account, whoami
from harken.source import Host, Message
from harken.testing import HandClock
from harken.testing.fakes import Answer
from harken.testing.fakes.ntfy import PASSWORD, TOKEN, FakeNtfy
from tests.services.outlets import OnNtfy


@pytest.fixture
async def ntfy(clock: HandClock) -> AsyncIterator[FakeNtfy]:
    fake = FakeNtfy(clock)
    async with fake.serve():
        yield fake


async def send(fake: FakeNtfy, host: Host, to: str = "alerts", *, data: Any = None, **fields: Any) -> Any:
    message = Message(to=to, text="voll", title="Ärger", data=data or {})
    return await OnNtfy(fake, host, **(fields or {"topic": ""})).destination.deliver(message)


async def refused(fake: FakeNtfy, host: Host, **given: Any) -> HarkenError:
    with pytest.raises(HarkenError) as caught:
        await send(fake, host, **given)
    return caught.value


async def test_an_open_topic_needs_no_account(ntfy: FakeNtfy, host: Host):
    assert await send(ntfy, host) == {"id": "id1", "topic": "alerts"}
    assert "authorization" not in ntfy.seen[0].headers


async def test_a_title_in_any_script_stands_in_the_body(ntfy: FakeNtfy, host: Host):
    await send(ntfy, host)
    assert (ntfy.cached[0]["title"], ntfy.cached[0]["message"]) == ("Ärger", "voll")


@pytest.mark.parametrize("signed", [{"token": TOKEN}, {"username": "ana", "password": PASSWORD}])
async def test_a_token_or_a_password_opens_a_reserved_topic(ntfy: FakeNtfy, host: Host, signed: dict[str, str]):
    await send(ntfy, host, "private", **signed)
    assert len(ntfy.cached) == 1
    assert (await whoami(OnNtfy(ntfy, host, **signed).account, host))["name"] == "ana"


async def test_a_reserved_topic_needs_attention(ntfy: FakeNtfy, host: Host):
    error = await refused(ntfy, host, to="private")
    assert isinstance(error, NeedsAttention)
    assert "configure" in error.fix


async def test_a_message_without_a_topic_goes_to_that_of_the_account(ntfy: FakeNtfy, host: Host):
    assert (await send(ntfy, host, "", topic="mine"))["topic"] == "mine"


async def test_no_topic_at_all_needs_attention(ntfy: FakeNtfy, host: Host):
    assert "there is no topic" in str(await refused(ntfy, host, to=""))


@pytest.mark.parametrize(("written", "level"), [(1, 1), ("high", 4), ("Urgent", 5), (5, 5)])
async def test_a_step_may_choose_the_priority(ntfy: FakeNtfy, host: Host, written: Any, level: int):
    await send(ntfy, host, data={"priority": written}, priority="low")
    assert ntfy.cached[0]["priority"] == level


async def test_else_the_account_chooses_it(ntfy: FakeNtfy, host: Host):
    await send(ntfy, host, priority="low")
    assert ntfy.cached[0]["priority"] == 2


@pytest.mark.parametrize("written", [0, 6, "loud", True, None, 2.5])
async def test_a_priority_that_is_none_needs_attention(ntfy: FakeNtfy, host: Host, written: Any):
    assert isinstance(await refused(ntfy, host, data={"priority": written}), NeedsAttention)
    assert not ntfy.seen


@pytest.mark.parametrize("body", [b"{}", b"[]", b"<html>"])
async def test_an_answer_of_somebody_else_is_later(ntfy: FakeNtfy, host: Host, body: bytes):
    ntfy.answers.append(Answer(body=body))
    assert isinstance(await refused(ntfy, host), RetryLater)


@pytest.mark.parametrize(
    "given",
    [
        {"token": TOKEN, "username": "ana", "password": PASSWORD},
        {"username": "ana"},
        {"password": PASSWORD},
        {"priority": 9},
    ],
)
def test_an_account_with_a_slip_is_refused_without_being_shown(given: dict[str, Any]):
    with pytest.raises(ValidationError) as caught:
        Account.model_validate(given)
    assert PASSWORD not in str(caught.value)
