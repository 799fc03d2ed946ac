"""A bucket on a server of loopback, written to by HTTP and read by a source from the cursor of its last read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from itertools import count
from typing import Any

from harken.event import Event
from harken.kit.object_listing import BucketListing
from harken.source import Cursor, Host, PollSource
from harken.testing import START
from harken.testing.source import stored


class Bucket:
    """`address(key)` is the address and method that write an object, `build(**query)` makes a source."""

    page_size = 3
    since: datetime = START

    def __init__(
        self,
        host: Host,
        build: Callable[..., BucketListing],
        put: Callable[[str], tuple[str, Any]],
        delete: Callable[[str], tuple[str, Any]],
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._host, self._build, self._put, self._delete = host, build, put, delete
        self._headers = headers
        self._numbers = count(1)
        self.cursor: Cursor = None
        self.restart()

    def restart(self, **query: Any) -> None:
        """A new process, which has nothing but the cursor; perhaps with another query."""
        self.source: PollSource = self._build(**query)

    async def write(self, key: str, data: bytes = b"x") -> None:
        method, url = self._put(key)
        reply = await self._host.request(method, url, data=data, headers=self._headers)
        assert reply.status == 200, reply

    async def delete(self, key: str) -> None:
        method, url = self._delete(key)
        reply = await self._host.request(method, url, headers=self._headers)
        assert reply.status in (200, 204), reply

    async def put(self, count: int, *, tied: bool = False) -> Sequence[str]:
        names = [f"i{next(self._numbers)}" for _ in range(count)]
        for name in names:
            await self.write(name)
        return names

    async def expire(self) -> bool:
        return False

    async def read(self) -> list[Event]:
        events, more = list[Event](), True
        while more:
            batch = await self.source.poll(stored(self.cursor), START)
            self.cursor, more = batch.cursor, batch.more
            events += batch.events
        return events

    async def names(self) -> list[str]:
        return sorted(f"{event.type.removeprefix('object.')} {event.subject}" for event in await self.read())


async def goes_through_its_life(bucket: Bucket) -> list[Event]:
    """Create, change and delete objects, also while nothing reads. Return all events."""
    for key in ("in/a.csv", "b", "stays"):
        await bucket.write(key)
    events = await bucket.read()
    assert sorted(event.subject for event in events) == ["b", "in/a.csv", "stays"]
    assert await bucket.names() == []
    await bucket.write("b", b"other")
    await bucket.delete("in/a.csv")
    bucket.restart()
    await bucket.write("new")
    later = await bucket.read()
    shown = sorted(f"{event.type} {event.subject}" for event in later)
    assert shown == ["object.changed b", "object.created new", "object.deleted in/a.csv"]
    assert await bucket.names() == []
    return [*events, *later]
