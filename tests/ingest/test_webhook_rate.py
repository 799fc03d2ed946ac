"""A webhook takes what it may in a minute, and tells the rest when to come again."""

from __future__ import annotations

from typing import Any

import pytest
import structlog

from harken.errors import Unauthorized
from harken.ingest.webhook import Endpoint, Webhooks
from harken.ingest.webhook_rate import WebhookRate
from harken.testing import START, HandClock
from tests.ingest.test_webhook import NEW, Gate, Sender, ask


class AnyTimeGate(Gate):
    async def push(self, feed: str, events: Any, read: Any) -> Any:
        read = type(read)(now=START)
        return await super().push(feed, events, read)


def serving(clock: HandClock, limit: int, sender: Sender | None = None) -> Webhooks:
    gate: Any = AnyTimeGate([NEW])
    webhooks = Webhooks(gate, clock)
    serve(webhooks, limit, sender)
    return webhooks


def serve(webhooks: Webhooks, limit: int, sender: Sender | None = None) -> None:
    webhooks.serve({"shop/1": Endpoint(feed="hooks", source=sender or Sender(), max_per_minute=limit)})


async def statuses(webhooks: Webhooks, number: int) -> list[int]:
    with structlog.testing.capture_logs():
        return [(await ask(webhooks, b"a"))[0] for _ in range(number)]


async def test_more_than_a_minute_may_bring_is_told_to_come_again():
    clock = HandClock()
    webhooks = serving(clock, 2)
    assert await statuses(webhooks, 3) == [202, 202, 429]
    with structlog.testing.capture_logs():
        status, answer, headers = await ask(webhooks, b"a")
    assert (status, headers["retry-after"]) == (429, "30")
    assert "later" in answer["error"]
    clock.advance(30)
    assert await statuses(webhooks, 2) == [202, 429]
    assert [one.reason for one in webhooks.refusals.last("shop/1")] == ["too_many"] * 3


async def test_who_has_not_proven_himself_does_not_count():
    sender = Sender(Unauthorized("wrong"))
    webhooks = serving(HandClock(), 1, sender)
    assert await statuses(webhooks, 5) == [401] * 5
    sender.error = None
    assert await statuses(webhooks, 1) == [202]


async def test_a_reload_fills_the_bucket_only_if_the_limit_changed():
    webhooks = serving(HandClock(), 1)
    assert await statuses(webhooks, 1) == [202]
    serve(webhooks, 1)
    assert await statuses(webhooks, 1) == [429]
    serve(webhooks, 2)
    assert await statuses(webhooks, 3) == [202, 202, 429]


async def test_without_a_limit_everything_is_taken():
    assert await statuses(serving(HandClock(), 0), 50) == [202] * 50


@pytest.mark.parametrize("per_minute", [1, 7, 60, 600, 100_000])
def test_the_wait_is_long_enough_and_no_longer_than_needed(per_minute: int):
    rate = WebhookRate(per_minute, 0.0)
    assert {rate.take(0.0) for _ in range(per_minute)} == {0}
    wait = rate.take(0.0)
    assert 1 <= wait <= 60
    assert rate.take(float(wait)) == 0


def test_a_clock_that_goes_back_gives_nothing():
    rate = WebhookRate(1, 100.0)
    assert rate.take(100.0) == 0
    assert rate.take(50.0) > 0
