"""A fake workspace with two people and a channel, and how it is read."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from harken.clock import Clock
from harken.event import Event
from harken.services.slack import Account, Conversations, Query
from harken.source import Host, PollSource
from harken.testing import START, HandClock
from harken.testing.fakes.slack import TOKEN, FakeSlack
from tests.services.reading import events, read

SINCE = START - timedelta(seconds=1)


@asynccontextmanager
async def workspace(clock: Clock) -> AsyncIterator[FakeSlack]:
    fake = FakeSlack(clock)
    fake.user("jsmith", id="U1", display_name="Jay", real_name="Jane Smith")
    fake.user("bob", id="U2", display_name="Bob")
    fake.channel("eng", id="C1")
    async with fake.serve():
        yield fake


def account(slack: FakeSlack) -> Account:
    return Account.model_validate({"token": TOKEN, "base_url": slack.url})


def source(host: Host, slack: FakeSlack, **query: Any) -> Conversations:
    return Conversations(Query.model_validate(query), account(slack), host)


async def read_events(source: Conversations, cursor: Any = None) -> list[Event]:
    return events(await read(source, cursor, SINCE))


async def cursor_after_read(source: Conversations) -> Any:
    """The cursor of a reading that has seen all there is."""
    return (await read(source, None, SINCE))[-1].cursor


class OnSlack:
    """Messages in one channel; a timestamp is unique there, so tied ones differ by a microsecond."""

    page_size = 3
    since = SINCE

    def __init__(self, clock: HandClock, slack: FakeSlack, source: PollSource) -> None:
        self.source = source
        self._clock = clock
        self._slack = slack

    async def put(self, count: int, *, tied: bool = False) -> Sequence[str]:
        names = []
        for _ in range(count):
            self._clock.advance(0 if tied else 10)
            names.append(f"C1:{self._say()}")
        return names

    def _say(self) -> str:
        return self._slack.say("C1")

    async def expire(self) -> bool:
        return False
