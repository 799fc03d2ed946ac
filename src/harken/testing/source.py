"""The contract of a PollSource: repeats are fine, gaps are not. Authors run it on a fake or a recording of theirs.

class TestTickets(SourceContract):
    @pytest.fixture
    async def service(self) -> Service: ...
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

import msgspec
import pytest

from harken.errors import CursorExpired
from harken.event import Event
from harken.source import Batch, Cursor, PollSource

__all__ = ["Service", "SourceContract"]

MOST_PAGES = 200


class Service(Protocol):
    """The source under test, and how to add items to the service that it reads."""

    source: PollSource
    since: datetime
    page_size: int

    async def put(self, count: int, *, tied: bool = False) -> Sequence[str]:
        """Add so many items after `since`, all with the same timestamp if `tied`; returns their subjects."""
        ...

    async def expire(self) -> bool:
        """Make the service refuse all cursors issued so far. False if its cursors cannot expire."""
        ...


async def read(service: Service, cursor: Cursor = None) -> list[Batch]:
    """Read to the last page, passing every cursor through JSON as the store does."""
    pages: list[Batch] = []
    while not pages or pages[-1].more:
        assert len(pages) < MOST_PAGES, "the source says `more` for ever"
        pages.append(await service.source.poll(stored(cursor), service.since))
        cursor = pages[-1].cursor
    return pages


def stored(cursor: Cursor) -> Cursor:
    return msgspec.json.decode(msgspec.json.encode(cursor))


def events(pages: Sequence[Batch]) -> list[Event]:
    return [event for page in pages for event in page.events]


def subjects(pages: Sequence[Batch]) -> set[str]:
    return {event.subject for event in events(pages)}


class SourceContract:
    """Subclass it and give a `service` fixture."""

    async def test_a_first_read_needs_no_cursor(self, service: Service) -> None:
        put = await service.put(1)
        assert subjects(await read(service)) >= set(put)

    async def test_a_read_of_nothing_ends(self, service: Service) -> None:
        assert (await read(service))[-1].more is False

    async def test_all_pages_are_read(self, service: Service) -> None:
        put = await service.put(3 * service.page_size + 1)
        assert subjects(await read(service)) >= set(put)

    async def test_a_full_last_page_ends_the_read(self, service: Service) -> None:
        put = await service.put(2 * service.page_size)
        assert subjects(await read(service)) >= set(put)

    async def test_nothing_falls_between_two_pages_of_one_timestamp(self, service: Service) -> None:
        put = await service.put(2 * service.page_size + 1, tied=True)
        assert subjects(await read(service)) >= set(put)

    async def test_what_came_later_is_shown_from_the_last_cursor(self, service: Service) -> None:
        await service.put(2)
        cursor = (await read(service))[-1].cursor
        put = await service.put(service.page_size + 1)
        assert subjects(await read(service, cursor)) >= set(put)

    async def test_a_twin_in_time_that_came_later_is_shown_too(self, service: Service) -> None:
        await service.put(service.page_size, tied=True)
        cursor = (await read(service))[-1].cursor
        put = await service.put(1, tied=True)
        assert subjects(await read(service, cursor)) >= set(put)

    async def test_a_read_resumes_from_the_cursor_of_every_page(self, service: Service) -> None:
        put = set(await service.put(3 * service.page_size))
        pages = await read(service)
        for count in range(1, len(pages) + 1):
            shown = subjects(pages[:count])
            rest = subjects(await read(service, pages[count - 1].cursor))
            assert shown | rest >= put, f"a stop after page {count} loses {sorted(put - shown - rest)}"

    async def test_a_page_read_twice_has_the_same_names(self, service: Service) -> None:
        await service.put(service.page_size + 1)
        first, again = events(await read(service)), events(await read(service))
        names = [{(event.subject, event.key, event.state) for event in seen} for seen in (first, again)]
        assert names[0] == names[1]

    async def test_keys_name_occurrences(self, service: Service) -> None:
        put = await service.put(service.page_size + 1)
        seen = events(await read(service))
        assert all(event.subject for event in seen)
        assert len({(event.subject, event.key, event.state) for event in seen}) >= len(put)

    async def test_a_cursor_is_json(self, service: Service) -> None:
        await service.put(service.page_size + 1)
        cursors = [page.cursor for page in await read(service)]
        assert [stored(cursor) for cursor in cursors] == cursors

    async def test_data_is_json_and_times_have_a_zone(self, service: Service) -> None:
        await service.put(2)
        seen = events(await read(service))
        assert all(msgspec.json.decode(event.payload()) is not None for event in seen)
        assert all(event.occurred_at is None or event.occurred_at.tzinfo is not None for event in seen)

    async def test_nothing_that_is_new_hides_behind_an_unchanged_answer(self, service: Service) -> None:
        await service.put(1)
        cursor = (await read(service))[-1].cursor
        quiet = await read(service, cursor)
        put = await service.put(1)
        pages = await read(service, quiet[-1].cursor)
        assert subjects(pages) >= set(put)
        assert not any(page.unchanged and page.events for page in [*quiet, *pages])

    async def test_an_expired_cursor_is_said_to_be_expired(self, service: Service) -> None:
        await service.put(1)
        cursor = (await read(service))[-1].cursor
        if not await service.expire():
            pytest.skip("cursors of this service do not expire")
        with pytest.raises(CursorExpired):
            await read(service, cursor)
