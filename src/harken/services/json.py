"""Any JSON listing over HTTP, read page by page. The query describes the API.

Every read goes through the whole listing (newest_first: as far as `since`), so an item that moves to another page
while others are inserted or deleted is found by the next read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec
from pydantic import Field, SecretStr, model_validator

from harken.errors import NeedsAttention
from harken.event import Event, Identity
from harken.http import Reply, Validators, raise_for
from harken.kit import QueryModel, dump_cursor, load_cursor
from harken.kit.conditional import WebAddress, expect_answer, host_of, validators_of
from harken.kit.digest import digest_of_json, digest_of_long
from harken.kit.events_by_field_paths import SLICE, Shape, kept_events, long_events_of
from harken.kit.lazy_json_list import items_in
from harken.kit.paging_declared_in_query import (
    Paging,
    PagingCursor,
    advance,
    first_position,
    has_slipped,
    next_position,
    page_url,
    restart,
)
from harken.kit.timeout_without_own_work import OwnWork
from harken.source import Batch, Cursor, Delivery, Host, Plugin

__all__ = ["JsonListing", "Query", "plugin"]

_SECRET_NAME = re.compile(r"auth|cookie|key|passw|secret|signature|token", re.IGNORECASE)
_SHORTEST_SECRET = 8


class Query(QueryModel):
    """What to ask, where the items are, and what identifies one."""

    url: WebAddress = Field(description="address of the listing (http or https)")
    method: Literal["GET", "POST"] = Field("GET", description="HTTP method")
    headers: dict[str, SecretStr] = Field(default_factory=dict, description="headers to send; never shown again")
    body: Any = Field(None, description="what to send with POST: text as it is, anything else as JSON")
    items_path: str = Field("", description="dotted path of the list in the answer; empty: the answer is the list")
    id_field: str = Field("id", description="dotted path of an item's id; empty: the item itself identifies it")
    time_field: str = Field("", description="dotted path of when it happened: RFC 3339, or epoch seconds or ms")
    state_field: str = Field("", description="dotted path of a status; goes with identity: transition")
    version_field: str = Field("", description="dotted path of a version or update time; goes with identity: change")
    type: str = Field("json.item", min_length=1, description="type of the events")
    order: Literal["oldest_first", "newest_first", "unknown"] = Field(
        "unknown", description="newest_first: sorted by time_field, so a read stops at what earlier ones have covered"
    )
    paging: Paging | None = Field(None, description="how the listing continues")
    max_per_tick: int = Field(20, ge=0, description="runs that become due at once; the rest follow, spaced")
    allow_private_networks: bool = Field(False, description="allow addresses in private networks")

    @model_validator(mode="after")
    def _is_consistent(self) -> Query:
        if self.state_field and self.version_field:
            raise ValueError("name state_field or version_field, not both")
        if self.body is not None and self.method != "POST":
            raise ValueError("a body needs method: POST")
        if self.order == "newest_first" and not self.time_field:
            raise ValueError("order: newest_first needs the time_field that the listing is sorted by")
        return self

    @property
    def identity(self) -> Identity:
        """The identity that the fields of the query imply."""
        return "transition" if self.state_field else "change" if self.version_field else "once"

    def fingerprint(self) -> str:
        """Changes with the listing and how it is read. Headers do not count: they hold tokens, which rotate."""
        content = self.model_dump(mode="json", exclude={"headers", "max_per_tick", "paging", "allow_private_networks"})
        paging = self.paging.model_dump(exclude={"max_pages"}) if self.paging else None
        return digest_of_json([content, paging])


class JsonListing:
    """Reads one page per call. Validators are kept only if a single page was the whole listing."""

    def __init__(self, query: Query, host: Host) -> None:
        self._query = query
        self._host = host
        self._of = query.fingerprint()
        headers = {name: value.get_secret_value() for name, value in query.headers.items()}
        self._secrets = _secrets(headers)
        self._headers = {"Accept": "application/json", **headers}
        self._server = host_of(query.url)
        self._shape = Shape(
            whose=self._server,
            id_field=query.id_field,
            type=query.type,
            time_field=query.time_field,
            state_field=query.state_field or query.version_field,
        )

    async def poll(self, cursor: Cursor, since: datetime) -> Batch:
        place = self._resume(cursor, since)
        reply = await self._fetch(place)
        if reply.not_modified:
            return Batch(cursor=cursor, unchanged=True)
        paging = self._query.paging
        if reply.status == 404 and place.pages and paging and paging.is_numbered:
            return await self._last_page(place, reply, ())  # some servers answer 404 after the last page
        raise_for(reply)
        _remove_secrets(self._secrets, reply)
        if place.digest and place.digest == await digest_of_long(reply.body):
            return Batch(cursor=cursor, unchanged=True)
        return await self._page(place, reply)

    def _resume(self, cursor: Cursor, since: datetime) -> PagingCursor:
        place, paging = load_cursor(cursor, PagingCursor) or PagingCursor(of=""), self._query.paging
        if place.of == self._of and (place.pages or place.restarts):
            if paging and place.pages >= paging.max_pages:
                fix = "Narrow the query, or raise paging.max_pages"
                raise NeedsAttention(f"the listing of {self._server} goes on after {place.pages} pages", fix=fix)
            return place
        # after an unfinished read or one with gaps, start no later than where it started
        oldest = min(since, place.since or since)
        if place.of != self._of:
            place = PagingCursor(of=self._of)
        return msgspec.structs.replace(place, at=first_position(paging), since=oldest, asked=since)

    async def _fetch(self, place: PagingCursor) -> Reply:
        query, body = self._query, self._query.body
        conditional = validators_of(place.etag, place.last_modified)
        reply = await self._host.request(
            query.method,
            page_url(query.paging, query.url, place.at),
            headers=self._headers,
            json=None if isinstance(body, str) else body,
            data=body.encode() if isinstance(body, str) else None,
            conditional=conditional,
            allow_private=query.allow_private_networks or self._host.allow_private,
        )
        expect_answer(reply, conditional, self._server)
        return reply

    async def _page(self, place: PagingCursor, reply: Reply) -> Batch:
        paging = self._query.paging
        document, items = await items_in(reply, self._query.items_path, self._server)
        events = await long_events_of(items, self._shape)
        ids = await _subjects(events) if paging else []
        if paging and has_slipped(place, ids):
            again = restart(place, paging)
            if again:
                return Batch(events=await self._ascending(events, place), cursor=dump_cursor(again), more=True)
            place = msgspec.structs.replace(place, partial=True)
        to = None if self._is_covered(events, place) else next_position(paging, reply, document, place, ids)
        if paging is None or to is None:
            return await self._last_page(place, reply, events)
        following = advance(place, paging, to, ids, self._server)
        more = await self._ascending(events, place)
        return Batch(events=more, cursor=dump_cursor(following), more=True, complete=not place.partial)

    async def _last_page(self, place: PagingCursor, reply: Reply, events: Sequence[Event]) -> Batch:
        paging, kept = self._query.paging, PagingCursor(of=self._of, since=place.asked if place.pages else None)
        # an unchanged first page proves nothing about the others, nor does a body whose Link header may have changed
        if not place.pages and not place.restarts and (paging is None or paging.is_in_body):
            got = reply.validators if self._query.method == "GET" else Validators()
            digest = await digest_of_long(reply.body)
            kept = PagingCursor(of=self._of, etag=got.etag, last_modified=got.last_modified, digest=digest)
        events = await self._ascending(events, place)
        return Batch(events=events, cursor=dump_cursor(kept), complete=not place.partial)

    def _is_covered(self, events: Sequence[Event], place: PagingCursor) -> bool:
        oldest = events[-1].occurred_at if events and self._query.order == "newest_first" else None
        return oldest is not None and place.since is not None and oldest < place.since

    async def _ascending(self, events: Sequence[Event], place: PagingCursor) -> Sequence[Event]:
        if self._query.order != "newest_first":
            return events
        # deleting newer items brings older ones onto the page: they were read before, and the engine's memory of them
        # may be gone
        since = place.since
        return await kept_events(
            events, lambda event: not (event.occurred_at and since and event.occurred_at < since), reverse=True
        )


async def _subjects(events: Sequence[Event]) -> list[str]:
    subjects, work = [], OwnWork()
    for begin in range(0, len(events), SLICE):
        subjects += [event.subject for event in events[begin : begin + SLICE]]
        if begin:
            await work.pause()
    return subjects


def _secrets(headers: Mapping[str, str]) -> list[bytes]:
    values = [value for name, value in headers.items() if _SECRET_NAME.search(name)]
    return [part.encode() for value in values for part in value.split() if len(part) >= _SHORTEST_SECRET]


def _remove_secrets(secrets: Iterable[bytes], reply: Reply) -> None:
    """Remove our credentials from the reply, in case the server echoes the request."""
    for secret in secrets:
        if secret in reply.body:
            reply.body = reply.body.replace(secret, b"***")


plugin = Plugin(
    kind="json",
    summary="Any JSON listing over HTTP",
    docs="reference/services/json.md",
    query=Query,
    source=lambda query, account, host: JsonListing(query, host),
    delivery=lambda query, integration: Delivery(template="{json}"),
    aliases=("webhook_poll",),
)
