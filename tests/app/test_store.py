"""Waiting for the store: a server may still be starting, a file is there or it is not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from harken.app.store import OpenedStore, wait_for_store
from harken.errors import RetryLater, StoreUnavailable
from harken.testing.clock import VirtualClock, virtual


def opened(shared: bool) -> OpenedStore:
    unused: Any = None
    return OpenedStore(store=unused, shared=shared, connect=unused, listen=unused)


def failing(*errors: Exception) -> Callable[[], Awaitable[str]]:
    left = list(errors)

    async def call() -> str:
        for error in left[:1]:
            left.pop(0)
            raise error
        return "open"

    return call


@virtual
async def test_a_server_is_asked_again_until_it_answers_and_each_reason_is_said_once(clock: VirtualClock) -> None:
    lines: list[str] = []
    away, loading = StoreUnavailable("db is away"), StoreUnavailable("db is loading", after=30)
    answer = await wait_for_store(opened(True), clock, lines.append, failing(away, away, loading))
    assert answer == "open"
    assert [line.partition(";")[0] for line in lines] == ["db is away", "db is loading"]


@virtual
async def test_a_start_asks_more_often_than_the_server_wants_it_to(clock: VirtualClock) -> None:
    began = clock.monotonic()
    await wait_for_store(opened(True), clock, lambda line: None, failing(StoreUnavailable("away", after=30)))
    assert clock.monotonic() - began == pytest.approx(0.5)


@virtual
async def test_a_file_that_cannot_be_opened_is_not_waited_for(clock: VirtualClock) -> None:
    with pytest.raises(RetryLater):
        await wait_for_store(opened(False), clock, lambda line: None, failing(RetryLater("locked")))
