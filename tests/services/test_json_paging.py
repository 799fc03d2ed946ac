"""Listings in all their ways of paging: nothing between two pages may be lost, and no listing goes on for ever."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from harken.errors import NeedsAttention, Refused, RetryLater
from harken.kit.paging_declared_in_query import Paging
from harken.services.json import JsonListing, Query
from harken.source import Host
from harken.testing import START, HandClock
from harken.testing.fakes import Answer, Listing
from tests.services.reading import events, page, read, subjects

OFFSET = {"offset": {"param": "offset", "size_param": "limit", "size": 3}}
PAGE = {"page": {"param": "page", "size_param": "size", "size": 3}}
CURSOR = {"cursor": {"param": "cursor", "path": "paging.next"}}
NEXT = {"next": "next"}
LINK = {"next": "link"}

WAYS: list[tuple[str, str, dict[str, Any]]] = [
    ("pages", "items", PAGE),
    ("pages", "items", {"page": {"param": "page"}}),
    ("pages", "items", {**PAGE, "more": "more"}),
    ("offsets", "items", OFFSET),
    ("offsets", "items", {**OFFSET, "more": "more"}),
    ("cursors", "items", CURSOR),
    ("next", "items", NEXT),
    ("links", "", LINK),
]


def source(host: Host, listing: Listing, path: str, items: str, paging: Any, **more: Any) -> JsonListing:
    query = {"url": f"{listing.url}/{path}", "items_path": items, "paging": paging, **more}
    return JsonListing(Query.model_validate(query), host)


def fill(listing: Listing, count: int, *, step: float = 10.0) -> list[str]:
    names = [f"i{number}" for number in range(1, count + 1)]
    for number, name in enumerate(names):
        listing.add(name, age=(count - number) * step)
    return names


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 6, 7, 10])
@pytest.mark.parametrize("way", WAYS)
async def test_every_way_of_paging_reads_the_whole_listing(host: Host, listing: Listing, way: Any, count: int):
    names = fill(listing, count)
    batches = await read(source(host, listing, *way))
    assert list(dict.fromkeys(subjects(batches))) == names
    assert batches[-1].complete


@pytest.mark.parametrize("way", WAYS)
async def test_a_crash_after_a_page_costs_only_that_page(host: Host, listing: Listing, way: Any):
    names = fill(listing, 7)
    first = await page(source(host, listing, *way))
    rest = await read(source(host, listing, *way), first.cursor)
    assert set(subjects([first, *rest])) == set(names)
    assert names[0] not in subjects(rest)


@pytest.mark.parametrize("way", WAYS)
async def test_ties_at_a_page_border_are_all_read(host: Host, listing: Listing, way: Any):
    names = fill(listing, 8, step=0.0)
    assert set(subjects(await read(source(host, listing, *way)))) == set(names)


async def test_a_server_that_gives_smaller_pages_than_asked_for_is_read_to_its_end(host: Host, listing: Listing):
    names = fill(listing, 8)
    paging = {"offset": {"param": "offset", "size_param": "limit", "size": 100}}
    assert set(subjects(await read(source(host, listing, "offsets", "items", paging)))) == set(names)


async def test_an_item_deleted_between_offset_pages_hides_no_other(host: Host, listing: Listing):
    names = fill(listing, 9)
    listing.after[1] = lambda: listing.delete("i1", "i2")
    batches = await read(source(host, listing, "offsets", "items", OFFSET))
    assert set(subjects(batches)) == set(names)
    assert batches[-1].complete


async def test_the_item_at_the_border_may_be_the_one_that_goes(host: Host, listing: Listing):
    names = fill(listing, 9)
    listing.after[1] = lambda: listing.delete("i3")
    assert set(subjects(await read(source(host, listing, "offsets", "items", OFFSET)))) == set(names)


async def test_a_listing_that_shrinks_all_the_time_is_read_and_called_incomplete(host: Host, listing: Listing):
    fill(listing, 40)
    listing.after.update({number: partial(listing.delete, f"i{number}") for number in range(1, 40)})
    batches = await read(source(host, listing, "offsets", "items", OFFSET))
    assert not batches[-1].complete
    assert "i40" in subjects(batches)


async def test_what_slips_over_a_border_of_numbered_pages_is_found_by_the_next_read(host: Host, listing: Listing):
    names = fill(listing, 9)
    listing.after[1] = lambda: listing.delete("i1")
    listed = source(host, listing, "pages", "items", PAGE)
    first = await read(listed)
    second = await read(listed, first[-1].cursor)
    assert "i4" not in subjects(first)
    assert set(subjects([*first, *second])) == set(names)


@pytest.mark.parametrize("way", WAYS)
async def test_inserts_while_a_newest_first_listing_is_read_repeat_items_and_lose_none(
    host: Host, listing: Listing, way: Any
):
    listing.newest_first = True
    names = fill(listing, 8)
    listing.after[1] = lambda: [listing.add(f"new{number}") for number in range(3)]
    assert set(names) <= set(subjects(await read(source(host, listing, *way))))


@pytest.mark.parametrize("way", WAYS)
async def test_a_page_that_fails_is_asked_for_again_and_nothing_is_lost(host: Host, listing: Listing, way: Any):
    names = fill(listing, 7)
    listed = source(host, listing, *way)
    first = await page(listed)
    listing.answers.append(Answer(status=503))
    with pytest.raises(RetryLater):
        await page(listed, first.cursor)
    assert set(subjects([first, *await read(listed, first.cursor)])) == set(names)


class TestNewestFirst:
    """Sorted by time, a read stops where earlier ones were: `since`."""

    QUERY: Any = {"order": "newest_first", "time_field": "created_at"}  # noqa: RUF012

    async def test_events_of_a_page_come_oldest_first(self, host: Host, listing: Listing):
        listing.newest_first = True
        fill(listing, 3)
        batches = await read(source(host, listing, "all", "items", None, **self.QUERY), since=START - timedelta(days=1))
        assert subjects(batches) == ["i1", "i2", "i3"]

    async def test_a_burst_larger_than_a_page_is_read_although_its_first_page_moves_the_watermark(
        self, host: Host, listing: Listing
    ):
        listing.newest_first = True
        names = fill(listing, 10)
        listed = source(host, listing, "cursors", "items", CURSOR, **self.QUERY)
        since = START - timedelta(hours=1)
        batches = [await page(listed, None, since)]
        while batches[-1].more:
            # what the engine does: the newest committed event becomes the watermark
            since = max(since, *(event.occurred_at for event in batches[-1].events if event.occurred_at))
            batches.append(await page(listed, batches[-1].cursor, since))
        assert set(subjects(batches)) == set(names)

    async def test_pages_older_than_since_are_not_asked_for(self, host: Host, listing: Listing):
        listing.newest_first = True
        fill(listing, 30)
        listed = source(host, listing, "next", "items", NEXT, **self.QUERY)
        batches = await read(listed, since=START - timedelta(seconds=45))
        assert subjects(batches) == ["i28", "i29", "i30", "i27"]
        assert len(listing.seen) == 2

    async def test_an_edited_query_keeps_where_the_unfinished_read_began(self, host: Host, listing: Listing):
        listing.newest_first = True
        names = fill(listing, 9)
        began = START - timedelta(hours=1)
        first = await page(source(host, listing, "next", "items", NEXT, **self.QUERY), None, began)
        edited = source(host, listing, "next", "items", NEXT, type="other", **self.QUERY)
        rest = await read(edited, first.cursor, START - timedelta(seconds=5))
        assert set(subjects(rest)) == set(names)

    async def test_an_item_that_slipped_over_a_border_is_found_although_the_watermark_passed_it(
        self, host: Host, listing: Listing, clock: HandClock
    ):
        listing.newest_first = True
        names = fill(listing, 9)
        listed = source(host, listing, "pages", "items", PAGE, **self.QUERY)
        listing.after[1] = lambda: listing.delete("i9")
        first = await read(listed, since=START - timedelta(hours=1))
        second = await read(listed, first[-1].cursor, START - timedelta(seconds=5))
        assert set(subjects([*first, *second])) == set(names)

    async def test_a_future_item_is_passed_on_as_it_is(self, host: Host, listing: Listing):
        listing.newest_first = True
        listing.add("future", age=-86_400)
        listing.add("now", age=1)
        listed = source(host, listing, "all", "items", None, **self.QUERY)
        found = events(await read(listed, since=START - timedelta(minutes=2)))
        assert [event.subject for event in found] == ["now", "future"]
        assert found[1].occurred_at == START + timedelta(days=1)

    async def test_a_late_item_within_the_lookback_is_read(self, host: Host, listing: Listing, clock: HandClock):
        listing.newest_first = True
        fill(listing, 3)
        listing.add("late", age=60, late=30)
        listed = source(host, listing, "all", "items", None, **self.QUERY)
        first = await read(listed, since=START - timedelta(minutes=2))
        clock.advance(31)
        second = await read(listed, first[-1].cursor, START - timedelta(minutes=2))
        assert "late" not in subjects(first)
        assert "late" in subjects(second)


class TestLies:
    """A source that lies about paging gets a reason, never an endless read."""

    @pytest.mark.parametrize("way", [way for way in WAYS if way[0] != "pages" or "more" not in way[2]])
    async def test_a_page_parameter_that_is_ignored(self, host: Host, listing: Listing, way: Any):
        fill(listing, 3)
        listing.lie = "same_page"
        listing.cap = 2
        with pytest.raises(NeedsAttention, match=r"again and again|read already"):
            await read(source(host, listing, *way))

    @pytest.mark.parametrize("way", [("cursors", "items", CURSOR), ("next", "items", NEXT), ("links", "", LINK)])
    async def test_a_next_page_that_is_the_page_itself(self, host: Host, listing: Listing, way: Any):
        fill(listing, 7)
        listing.lie = "loop"
        with pytest.raises(NeedsAttention, match="read already"):
            await read(source(host, listing, *way))

    async def test_a_circle_of_several_pages(self, host: Host, listing: Listing):
        listing.answers = [
            Answer(body=b'{"items": [{"id": %d}], "next": "/next?cursor=%d"}' % (number, number % 5))
            for number in range(1, 40)
        ]
        with pytest.raises(NeedsAttention, match="read already"):
            await read(source(host, listing, "next", "items", NEXT))

    @pytest.mark.parametrize("way", [("offsets", "items", OFFSET), ("pages", "items", PAGE)])
    async def test_more_that_is_always_true(self, host: Host, listing: Listing, way: Any):
        fill(listing, 4)
        listing.lie = "always_more"
        with pytest.raises(NeedsAttention):
            await read(source(host, listing, way[0], way[1], {**way[2], "more": "more", "max_pages": 20}))

    @pytest.mark.parametrize("way", WAYS)
    async def test_a_listing_without_end_stops_at_max_pages_and_what_was_read_stays_read(
        self, host: Host, listing: Listing, way: Any
    ):
        listing.lie = "endless"
        listed = source(host, listing, way[0], way[1], {**way[2], "max_pages": 4})
        batches = [await page(listed)]
        for _ in range(3):
            batches.append(await page(listed, batches[-1].cursor))
        with pytest.raises(NeedsAttention, match="goes on after 4 pages"):
            await page(listed, batches[-1].cursor)
        assert len(set(subjects(batches))) >= 9

    async def test_a_next_url_on_another_host_is_refused_because_headers_would_go_along(
        self, host: Host, listing: Listing
    ):
        listing.answers = [Answer(body=b'{"items": [{"id": 1}], "next": "https://elsewhere.example/next"}')]
        with pytest.raises(Refused, match="another origin"):
            await read(source(host, listing, "next", "items", NEXT))

    async def test_a_304_to_an_unconditional_request_is_no_listing(self, host: Host, listing: Listing):
        listing.answers = [Answer(status=304)]
        with pytest.raises(RetryLater, match="304"):
            await read(source(host, listing, "all", "items", None))


@pytest.mark.parametrize("wrong", [{}, {"next": "link", "page": {}}, {"offset": {"size": 1}}, {"max_pages": 0}])
def test_paging_names_exactly_one_way(wrong: Any):
    with pytest.raises(ValueError):
        Paging.model_validate(wrong)


async def test_a_404_after_the_last_numbered_page_is_the_end(host: Host, listing: Listing):
    fill(listing, 3)
    listed = source(host, listing, "pages", "items", PAGE)
    first = await page(listed)
    listing.answers.append(Answer(status=404))
    last = await page(listed, first.cursor)
    assert (last.more, last.complete, list(last.events)) == (False, True, [])
