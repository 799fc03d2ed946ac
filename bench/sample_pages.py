"""The events of the poll flow, ready-made, so that only what Harken does with them is measured."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import msgspec

from bench.sample_event import sample
from harken.event import Event
from harken.source import Batch, Cursor

__all__ = ["Book", "PollFlow", "Used", "pages", "reached"]


class PollFlow(msgspec.Struct, frozen=True, kw_only=True):
    """How many feeds are read at once, and how many pages of how many events each shows."""

    feeds: int
    pages: int
    page: int
    directory: str

    @property
    def events(self) -> int:
        return self.feeds * self.pages * self.page


class Used(msgspec.Struct, frozen=True, kw_only=True):
    """What it took, from the first page until the last run was settled."""

    seconds: float
    cpu: float


def pages(feed: str, count: int, size: int) -> list[list[Event]]:
    """That many pages of new events, each about 400 bytes."""
    return [[_event(f"{feed}-{page}-{number}") for number in range(size)] for page in range(count)]


def _event(name: str) -> Event:
    data = sample(name, "x" * 200)
    return Event(subject=name, type="bench.item", data=data, occurred_at=datetime.now(UTC))


class Book:
    """A source that shows the pages it was given, one after the other, and then nothing."""

    def __init__(self) -> None:
        self._left: Iterator[list[Event]] = iter(())
        self._pages = 0

    def fill(self, shown: list[list[Event]]) -> None:
        self._left, self._pages = iter(shown), len(shown)

    async def poll(self, cursor: Cursor, since: datetime) -> Batch:
        page = next(self._left, ())
        self._pages -= 1
        return Batch(events=page, cursor=page[-1].key or page[-1].subject if page else cursor, more=self._pages > 0)


async def reached(count: Callable[[], int], target: int) -> None:
    """Wait until that many runs are settled; both sides wait alike, and look rarely enough not to matter."""
    while count() < target:  # noqa: ASYNC110
        await asyncio.sleep(0.002)
