"""The contract of every poll source, on the listing in each way of paging, on its feed, and on time itself."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import count
from typing import Any

import pytest

from harken.services.cron import Activations
from harken.services.cron import Query as CronQuery
from harken.services.json import JsonListing
from harken.services.json import Query as JsonQuery
from harken.services.rss import NewsFeed
from harken.services.rss import Query as RssQuery
from harken.source import Host, PollSource
from harken.testing import START, HandClock
from harken.testing.fakes import Listing
from harken.testing.source import Service, SourceContract

OFFSET: Any = {"offset": {"size": 3}}
NEWEST: Any = {"order": "newest_first", "time_field": "created_at"}
WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "all": ("all", {"items_path": "items"}),
    "pages": ("pages", {"items_path": "items", "paging": {"page": {"size_param": "size", "size": 3}}}),
    "offsets": ("offsets", {"items_path": "items", "paging": OFFSET}),
    "offsets-more": ("offsets", {"items_path": "items", "paging": {**OFFSET, "more": "more"}}),
    "cursors": ("cursors", {"items_path": "items", "paging": {"cursor": {"path": "paging.next"}}}),
    "next": ("next", {"items_path": "items", "paging": {"next": "next"}}),
    "links": ("links", {"paging": {"next": "link"}}),
}


class OnListing:
    """Items of a listing; with one timestamp for all of them, or ten seconds apart."""

    page_size = 3
    since = START - timedelta(seconds=1)

    def __init__(self, clock: HandClock, listing: Listing, source: PollSource) -> None:
        self.source = source
        self._clock = clock
        self._listing = listing
        self._numbers = count(1)

    async def put(self, count: int, *, tied: bool = False) -> Sequence[str]:
        names = [f"i{next(self._numbers)}" for _ in range(count)]
        for name in names:
            self._clock.advance(0 if tied else 10)
            self._listing.add(name)
        return names

    async def expire(self) -> bool:
        return False


class OnTime:
    """Activations of a schedule, which time itself puts there; no two share an instant."""

    page_size = 1000
    since: datetime = START

    def __init__(self, clock: HandClock, source: PollSource) -> None:
        self.source = source
        self._clock = clock

    async def put(self, count: int, *, tied: bool = False) -> Sequence[str]:
        began = self._clock.now()
        self._clock.advance(60 * count)
        return [(began + timedelta(minutes=number)).isoformat() for number in range(1, count + 1)]

    async def expire(self) -> bool:
        return False


def json_source(host: Host, listing: Listing, way: str, **more: Any) -> JsonListing:
    path, query = WAYS[way]
    return JsonListing(JsonQuery.model_validate({"url": f"{listing.url}/{path}", **query, **more}), host)


class TestJson(SourceContract):
    @pytest.fixture(params=list(WAYS))
    def service(self, request: Any, clock: HandClock, host: Host, listing: Listing) -> Service:
        return OnListing(clock, listing, json_source(host, listing, request.param))


class TestJsonNewestFirst(SourceContract):
    @pytest.fixture(params=list(WAYS))
    def service(self, request: Any, clock: HandClock, host: Host, listing: Listing) -> Service:
        listing.newest_first = True
        return OnListing(clock, listing, json_source(host, listing, request.param, **NEWEST))


class TestRss(SourceContract):
    @pytest.fixture
    def service(self, clock: HandClock, host: Host, listing: Listing) -> Service:
        return OnListing(clock, listing, NewsFeed(RssQuery(feed_url=f"{listing.url}/feed.xml"), host))


class TestCron(SourceContract):
    @pytest.fixture
    def service(self, clock: HandClock, host: Host) -> Service:
        return OnTime(clock, Activations(CronQuery(cron="* * * * *", missed="all"), host))
