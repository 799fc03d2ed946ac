"""While a start waits for its store, it says so to whoever asks; then the same connections reach the application."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from harken.app.server import bind
from harken.app.startup_listener import StoreWait
from harken.testing import HandClock

REASON = "db.example does not answer; trying again until it answers"


async def application(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
async def waiting(said: list[str], clock: HandClock) -> AsyncIterator[StoreWait]:
    waiting = StoreWait("127.0.0.1", [bind("127.0.0.1", 0)], clock, said.append)
    yield waiting
    await waiting.close()


@pytest.fixture
def said() -> list[str]:
    return []


async def test_the_store_is_down_since_it_did_not_answer(waiting: StoreWait, clock: HandClock) -> None:
    clock.advance(3)
    began = clock.now()
    waiting.note(REASON)
    clock.advance(60)
    waiting.note(REASON)
    [part] = waiting.health()["subsystems"]
    assert part["since"] == began


async def test_a_start_that_waits_for_its_store_answers_health_and_refuses_the_rest(
    waiting: StoreWait, said: list[str], session: aiohttp.ClientSession
) -> None:
    waiting.note(REASON)
    assert said == [REASON]
    async with session.get(f"{waiting.url}/health") as reply:
        found = await reply.json()
        assert (reply.status, found["status"]) == (200, "down")
        assert [(part["name"], part["state"], part["reason"]) for part in found["subsystems"]] == [
            ("store", "down", REASON)
        ]
    async with session.get(f"{waiting.url}/health/ready") as reply:
        assert reply.status == 503
    async with session.post(f"{waiting.url}/webhooks/generic/hook", json={}) as reply:
        assert (reply.status, int(reply.headers["Retry-After"]) > 0) == (503, True)
    async with session.get(f"{waiting.url}/api/triggers") as reply:
        assert reply.status == 503
        assert REASON in await reply.text()


async def test_other_hosts_are_refused_while_it_waits(waiting: StoreWait, session: aiohttp.ClientSession) -> None:
    waiting.note(REASON)
    async with session.get(f"{waiting.url}/health", headers={"Host": "evil.example"}) as reply:
        assert reply.status == 421


@pytest.mark.parametrize("waits", [False, True])
async def test_the_application_takes_over_with_or_without_a_wait(
    waiting: StoreWait, session: aiohttp.ClientSession, waits: bool
) -> None:
    for reason in [REASON] * waits:
        waiting.note(reason)
        async with session.get(f"{waiting.url}/health") as reply:
            assert (await reply.json())["status"] == "down"
    listeners = await waiting.hand_over(application, application)
    for path in ("/health", "/webhooks/generic/hook"):
        async with session.get(waiting.url + path) as reply:
            assert await reply.text() == "ok"
    for listener in listeners:
        await listener.stop()
