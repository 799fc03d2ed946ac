"""Replicas are notified of runs to claim, also after a restart of the server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from harken.backends.notify import RELEASED, Notifications
from harken.backends.postgres import PostgresStore
from harken.backends.redis import RedisStore
from harken.errors import StoreUnavailable
from harken.store import NewRun
from harken.testing import HandClock
from harken.testing.store.world import Given, definitions
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer

RUN = NewRun(trigger="mail", workflow_rev="r1", id_key="1")


class Ear:
    def __init__(self) -> None:
        self.heard = asyncio.Event()

    async def wait(self) -> None:
        async with asyncio.timeout(120):
            await self.heard.wait()
        self.heard.clear()


@pytest.fixture(params=["postgres", "redis"])
async def at(request: pytest.FixtureRequest) -> AsyncIterator[Callable[[], Any]]:
    """Opens one more store on the same server."""
    if request.param == "redis":
        with RedisServer() as server:
            yield lambda: RedisStore.at(server.url())
        return
    with PostgresServer() as server:
        url = server.url(await server.database())
        yield lambda: PostgresStore.at(url)


async def test_the_others_hear_of_a_run_and_who_made_it_does_not(at: Callable[[], Any]) -> None:
    one, two = at(), at()
    await one.open(definitions())
    ours, theirs = Ear(), Ear()
    one.listen(ours.heard.set)
    two.listen(theirs.heard.set)
    # a new listener is called at once, as it may have missed a notification
    await ours.wait()
    await theirs.wait()
    await asyncio.sleep(0.1)
    ours.heard.clear()
    theirs.heard.clear()
    await one.start(RUN)
    await theirs.wait()
    assert not ours.heard.is_set()
    for store in (one, two):
        await store.close()


async def test_the_others_hear_of_what_a_commit_did_not_hand_over(at: Callable[[], Any]) -> None:
    clock = HandClock()
    one, two = at(), at()
    opened = await one.open(definitions())
    lease = await one.lease(0, "a", 30)
    given = Given(one, clock, opened, lease)
    heard = Ear()
    one.listen(lambda: None)
    two.listen(heard.heard.set)
    await heard.wait()
    await given.commit(given.entry("a", given.intent("a")))
    await heard.wait()
    for store in (one, two):
        await store.close()


async def test_the_others_hear_that_a_lease_was_released(at: Callable[[], Any]) -> None:
    one, two = at(), at()
    await one.open(definitions())
    lease = await one.lease(0, "a", 30)
    ours, ready, released = Ear(), Ear(), Ear()
    one.listen(lambda: None, ours.heard.set)
    two.listen(ready.heard.set, released.heard.set)
    await ready.wait()
    await asyncio.sleep(0.1)
    ready.heard.clear()
    await one.release_lease(lease, "a")
    # also if whoever released it ends at once
    await one.close()
    await released.wait()
    assert not ready.heard.is_set()
    assert not ours.heard.is_set()
    await two.close()


class Line:
    """A connection that the test can break."""

    def __init__(self) -> None:
        self.hint: Callable[[str], None] = lambda name: None
        self.ended = asyncio.Event()
        self.begun = 0

    async def hear(self, hint: Callable[[str], None]) -> None:
        self.begun += 1
        self.hint = hint
        hint("")
        await self.ended.wait()
        self.ended.clear()
        raise ConnectionError("gone")


async def test_a_connection_that_ends_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harken.backends.notify.RETRY_SECONDS", (0.0, 0.0))

    async def tell(name: str) -> None:
        raise StoreUnavailable("nobody answers")

    line, ear = Line(), Ear()
    hints = Notifications(line.hear, tell)
    hints.listen(ear.heard.set)
    await ear.wait()
    line.ended.set()
    await ear.wait()
    assert line.begun == 2
    # a notification that cannot be sent raises nothing
    hints.give()
    await hints.close()


async def test_what_happens_at_the_same_time_is_told_each_once() -> None:
    line, told = Line(), list[str]()

    async def tell(message: str) -> None:
        told.append(message)

    hints = Notifications(line.hear, tell)
    hints.listen(lambda: None)
    for _ in range(3):
        hints.give()
        hints.give(RELEASED)
    await hints.close()
    (name, released) = told
    assert released == f"{name} {RELEASED}"
