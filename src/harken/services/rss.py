"""News feeds: RSS, Atom, JSON Feed. Each read returns the whole feed; the engine knows which entries are new.

RSS 2.0: https://www.rssboard.org/rss-specification, Atom: RFC 4287, JSON Feed: https://www.jsonfeed.org/version/1.1/
"""

from __future__ import annotations

import asyncio
import re
from datetime import datetime, timedelta
from typing import Literal

import msgspec
from pydantic import Field

from harken.errors import Garbled, HarkenError, RetryLater
from harken.event import Event
from harken.http import Reply, raise_for
from harken.kit import QueryModel, dump_cursor, load_cursor
from harken.kit.conditional import WebAddress, expect_answer, host_of, validators_of
from harken.kit.digest import digest_of, digest_of_long
from harken.kit.syndication import Entry, NotAFeed, entries_of, feed_link, is_page, oldest_first
from harken.kit.timeout_without_own_work import OwnWork
from harken.source import Batch, Cursor, Delivery, Host, Plugin

__all__ = ["NewsFeed", "Query", "plugin"]

_ACCEPT = "application/atom+xml, application/rss+xml, application/feed+json, application/xml;q=0.9, */*;q=0.5"
_LARGEST = 32_000_000
_CHARSET = re.compile(r"""charset\s*=\s*["']?([\w.:-]+)""", re.IGNORECASE)
# larger feeds are parsed in a thread, so that the event loop is not blocked
_INLINE = 100_000
# so many entries are translated before everything else has a turn
_SLICE = 1_000
FIELDS = frozenset(Entry.__struct_fields__)
_BACKDATED = timedelta(days=2)


class Query(QueryModel):
    """Which feed to read."""

    feed_url: WebAddress = Field(description="address of the feed (http or https)")
    max_per_tick: int = Field(5, ge=0, description="runs that become due at once; the rest follow, spaced")
    type: Literal["rss.entry"] = Field("rss.entry", description="type of the events")
    allow_private_networks: bool = Field(False, description="allow addresses in private networks")


class Place(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Validators and digest of the last committed read. `of` is the digest of the address."""

    of: str
    etag: str | None = None
    last_modified: str | None = None
    digest: str = ""


class NewsFeed:
    def __init__(self, query: Query, host: Host) -> None:
        self._query = query
        self._host = host
        self._of = digest_of(query.feed_url.encode())
        self._server = host_of(query.feed_url)

    async def poll(self, cursor: Cursor, since: datetime) -> Batch:
        place = load_cursor(cursor, Place, of=self._of) or Place(of=self._of)
        conditional = validators_of(place.etag, place.last_modified)
        reply = await self._host.request(
            "GET",
            self._query.feed_url,
            headers={"Accept": _ACCEPT},
            conditional=conditional,
            max_bytes=_LARGEST,
            allow_private=self._query.allow_private_networks or self._host.allow_private,
        )
        expect_answer(reply, conditional, self._server)
        raise_for(reply)
        digest = "" if reply.not_modified else await digest_of_long(reply.body)
        if reply.not_modified or (place.digest and place.digest == digest):
            return Batch(cursor=cursor, unchanged=True)
        entries = await self._entries(reply, worked=bool(place.digest))
        got = reply.validators
        read = Place(of=self._of, etag=got.etag, last_modified=got.last_modified, digest=digest)
        # an entry dated shortly before `since` may still be new: backdated, or dated by a wrong clock
        late = since - _BACKDATED if place.digest else since
        events, work = list[Event](), OwnWork()
        for begin in range(0, len(entries), _SLICE):
            some = entries[begin : begin + _SLICE]
            events += [self._event(entry, undated=_is_between(late, entry.published, since)) for entry in some]
            if len(entries) > _SLICE:
                await work.pause()
        return Batch(events=events, cursor=dump_cursor(read))

    async def _entries(self, reply: Reply, *, worked: bool) -> list[Entry]:
        if is_page(reply.body):
            raise self._not_a_feed_error("answered with a web page", reply, worked)
        charset = _CHARSET.search(reply.headers.get("Content-Type", ""))
        arguments = (reply.body, str(reply.url), charset[1] if charset else "")
        try:
            if len(reply.body) <= _INLINE:
                return _sorted_entries(*arguments)
            return await asyncio.to_thread(_sorted_entries, *arguments)
        except NotAFeed:
            raise self._not_a_feed_error("answered with something that is not a feed", reply, worked) from None

    def _not_a_feed_error(self, what: str, reply: Reply, worked: bool) -> HarkenError:
        if worked:
            # a captive portal or a maintenance page: it was a feed before
            return RetryLater(f"{self._server} {what}, where a feed was before")
        found = feed_link(reply.text(), str(reply.url)).partition("?")[0]
        fix = f"Did you mean {found}?" if found else "Use the address of the feed itself"
        return Garbled(f"{self._server} {what}", fix=fix)

    def _event(self, entry: Entry, *, undated: bool) -> Event:
        data = msgspec.to_builtins(entry)
        at = None if undated else entry.published
        return Event(subject=entry.id, type=self._query.type, data=data, occurred_at=at)


def _sorted_entries(body: bytes, url: str, charset: str) -> list[Entry]:
    return oldest_first(entries_of(body, url, charset))


def _is_between(begin: datetime, moment: datetime | None, end: datetime) -> bool:
    return moment is not None and begin <= moment < end


plugin = Plugin(
    kind="rss",
    summary="RSS, Atom and JSON feeds",
    docs="reference/services/rss.md",
    query=Query,
    source=lambda query, account, host: NewsFeed(query, host),
    delivery=lambda query, integration: Delivery(template="{title}\n{link}", fields=FIELDS),
)
