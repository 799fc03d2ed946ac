"""Rows of a SQL query, on PostgreSQL, MySQL, MariaDB and SQLite, in the order of a watermark column.

Each page has its own connection and read-only transaction. It begins with the last row of the page before, so that
no row is lost between two pages if the database orders it as equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

from harken.errors import CursorExpired, NeedsAttention
from harken.kit import load_cursor
from harken.services.sql.api import Account, Table
from harken.services.sql.check import check, whoami
from harken.services.sql.cursor import Place, stored
from harken.services.sql.drivers import Rows, Session
from harken.services.sql.event import comparable, higher_watermark, pack_ordered, page_events
from harken.services.sql.query import Query
from harken.services.sql.values import unpack
from harken.services.sql.watermark_times_and_bounds import is_time, lower_bound, parse_like, step_back
from harken.source import Batch, Cursor, Host, Plugin

__all__ = ["Account", "Query", "TableRows", "plugin"]


class TableRows:
    """Reads rows from `newest − overlap` upwards, one page per call."""

    def __init__(self, query: Query, account: Account, host: Host) -> None:
        self._query = query
        self._host = host
        self._of = query.fingerprint()
        self._table = Table(query, account)

    async def poll(self, cursor: Cursor, since: datetime) -> Batch:
        query, place = self._query, self._resume(cursor)
        if place is None and query.initial is not None:
            # the first read of a feed is its baseline, so the rows from `initial` on are left to the second
            return Batch(cursor=stored(Place(of=self._of)))
        async with self._table.session() as session:
            return await self._page(session, place, since)

    def _resume(self, cursor: Cursor) -> Place | None:
        if cursor is None:
            return None
        place = load_cursor(cursor, Place, of=self._of)
        if place is None:
            raise self._expired("it was made for another watermark, key or epoch")
        return place

    def _expired(self, why: str) -> CursorExpired:
        fix = "Begin anew with what is there now"
        return CursorExpired(f"the cursor of the query at {self._table.where} cannot be used: {why}", fix=fix)

    async def _page(self, session: Session, place: Place | None, since: datetime) -> Batch:
        border = place.border if place else None
        if place and border:
            sample, by = unpack(border[0]), place.by
            lower: Sequence[Any] = (sample, unpack(border[1]))
        else:
            sample = await self._table.newest(session)
            if sample is None:
                return Batch(cursor=stored(place or Place(of=self._of)))
            by = self._kind_of_watermark(sample, place)
            lower = self._lower_bound(sample, place, by, since)
        # one more than a page: the first row is the last of the page before
        limit = self._query.page_size + 1
        found = await self._table.page(session, lower, limit)
        return self._to_batch(found, place or Place(of=self._of), sample, by, len(found.rows) == limit or found.cut)

    def _kind_of_watermark(self, sample: Any, place: Place | None) -> Literal["time", "order"]:
        """Whether the watermarks are times or only an order; raises if the cursor was made for the other kind."""
        pack_ordered(sample, self._query.watermark)
        by: Literal["time", "order"] = "time" if is_time(sample, self._query.epoch) else "order"
        if by == "time" and self._query.initial is not None:
            fix = "Remove initial; for what happened earlier, backfill the trigger"
            raise NeedsAttention("initial is for watermarks that are not times", fix=fix)
        changed = place and place.top and not comparable(unpack(place.top), sample)
        if place and (changed or place.by not in ("", by)):
            raise self._expired("the watermarks now have another type")
        return by

    def _lower_bound(self, newest: Any, place: Place | None, by: str, since: datetime) -> Sequence[Any]:
        query = self._query
        if by == "time":
            return (lower_bound(since, self._host.clock.now(), newest, query.epoch, query.zone),)
        if place is None:
            return (step_back(newest, query.overlap),)
        if place.top:
            return (step_back(unpack(place.top), query.overlap),)
        # there were no rows at the first read, so all are new
        return () if query.initial is None else (parse_like(query.initial, newest),)

    def _to_batch(self, found: Rows, place: Place, sample: Any, by: Literal["", "time", "order"], more: bool) -> Batch:
        page = page_events(found, self._query, sample, by, place.border)
        top, last = place.top, page.last
        if by == "order" and last:
            top = higher_watermark(top, last[0])
        following = Place(of=self._of, by=by, top=top, border=last if more else None)
        return Batch(events=page.events, cursor=stored(following), more=more)


def _extra(query: Query, account: Account) -> str:
    return "" if account.address.engine == "sqlite" else "sql"


plugin = Plugin(
    kind="sql",
    summary="Rows of a query on PostgreSQL, MySQL, MariaDB or SQLite",
    docs="reference/services/sql.md",
    account=Account,
    query=Query,
    source=TableRows,
    whoami=whoami,
    check=check,
    extra=_extra,
    identity="change",
    environment={"HARKEN_SQL_URL": "url"},
)
