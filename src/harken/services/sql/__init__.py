"""Rows of a SQL query, on PostgreSQL, MySQL, MariaDB and SQLite, in the order of a watermark column.

Each page is a connection and a read-only transaction of its own. It begins with the last row of the page before, so
rows that the database takes for equal there are not lost between the two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec

from harken.errors import CursorExpired, NeedsAttention
from harken.services.sql.account import Account
from harken.services.sql.drivers import Rows, Session
from harken.services.sql.event import Border, alike, higher, orderly, shown_of
from harken.services.sql.query import Query
from harken.services.sql.table import Table, database_of, opened
from harken.services.sql.values import Packed, as_like, back, is_time, lower_bound, text_of, unpack
from harken.source import Batch, Checked, Cursor, Host, Plugin

__all__ = ["Account", "Query", "TableRows", "plugin"]

SHORT = 8.0
"""Seconds for a question that needs no rows."""


class Place(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a read stands, as a cursor. `border` is the watermark and key of the last row, within a read.

    `by`: whether watermarks are times, once there were any. `top` is the highest that was seen of those that are not.
    """

    of: str
    by: Literal["", "time", "order"] = ""
    top: Packed | None = None
    border: Border | None = None


class TableRows:
    """Shows every row from some way before the newest on, a page a call."""

    def __init__(self, query: Query, account: Account, host: Host) -> None:
        self._query = query
        self._host = host
        self._of = query.fingerprint()
        self._table = Table(query, account)

    async def poll(self, cursor: Cursor, since: datetime) -> Batch:
        query, place = self._query, self._resume(cursor)
        if place is None and query.initial is not None:
            # the first read of a feed is its baseline; what is asked for is read by the second
            return Batch(cursor=_kept(Place(of=self._of)))
        async with self._table.session() as session:
            return await self._page(session, place, since)

    def _resume(self, cursor: Cursor) -> Place | None:
        if cursor is None:
            return None
        try:
            place = msgspec.convert(cursor, Place)
        except msgspec.ValidationError:
            place = Place(of="")
        if place.of != self._of:
            raise self._expired("it was made for another watermark, key or epoch")
        return place

    def _expired(self, why: str) -> CursorExpired:
        fix = "Start from what is there now with: harken triggers reset NAME --cursor"
        return CursorExpired(f"the cursor of the query at {self._table.where} is of no use: {why}", fix=fix)

    async def _page(self, session: Session, place: Place | None, since: datetime) -> Batch:
        border = place.border if place else None
        if place and border:
            like, by = unpack(border[0]), place.by
            lower: Sequence[Any] = (like, unpack(border[1]))
        else:
            like = await self._table.newest(session)
            if like is None:
                return Batch(cursor=_kept(place or Place(of=self._of)))
            by = self._meaning(like, place)
            lower = self._begin(like, place, by, since)
        # one more than a page: the first is the last of the page before
        limit = self._query.page_size + 1
        found = await self._table.page(session, lower, limit)
        return self._shown(found, place or Place(of=self._of), like, by, len(found.rows) == limit or found.cut)

    def _meaning(self, like: Any, place: Place | None) -> Literal["time", "order"]:
        """Whether watermarks such as this one are times; they must be what the cursor takes them for."""
        orderly(like, self._query.watermark)
        by: Literal["time", "order"] = "time" if is_time(like, self._query.epoch) else "order"
        if by == "time" and self._query.initial is not None:
            fix = "Remove initial; for what happened earlier, backfill the trigger"
            raise NeedsAttention("initial is for watermarks that are no times", fix=fix)
        changed = place and place.top and not alike(unpack(place.top), like)
        if place and (changed or place.by not in ("", by)):
            raise self._expired("the watermarks now have another type")
        return by

    def _begin(self, newest: Any, place: Place | None, by: str, since: datetime) -> Sequence[Any]:
        query = self._query
        if by == "time":
            return (lower_bound(since, self._host.clock.now(), newest, query.epoch, query.zone),)
        if place is None:
            return (back(newest, query.overlap),)
        if place.top:
            return (back(unpack(place.top), query.overlap),)
        # nothing was there at the first read, so all of it is new
        return () if query.initial is None else (as_like(query.initial, newest),)

    def _shown(self, found: Rows, place: Place, like: Any, by: Literal["", "time", "order"], more: bool) -> Batch:
        shown = shown_of(found, self._query, like, by, place.border)
        top, last = place.top, shown.last
        if by == "order" and last:
            top = higher(top, last[0])
        turned = Place(of=self._of, by=by, top=top, border=last if more else None)
        return Batch(events=shown.events, cursor=_kept(turned), more=more)


def _kept(place: Place) -> Cursor:
    """As the store gives it back: JSON has no tuples."""
    return msgspec.json.decode(msgspec.json.encode(place))


async def _whoami(account: Account, host: Host) -> Mapping[str, Any]:
    async with opened(database_of(account), account.address.shown, SHORT) as session:
        return await session.whoami()


async def _check(query: Query, account: Account, host: Host) -> Checked:
    """Ask for the columns without reading a row, and for the newest watermark."""
    table = Table(query, account)
    async with table.session() as session:
        names = await table.columns(session)
        unknown = [table.lacks(name, names) for name in (query.watermark, query.key) if name not in names]
        if unknown:
            return Checked(unknown=unknown)
        newest = await table.newest(session)
    if newest is None:
        return Checked(found={query.watermark: "no rows now", query.key: "the key"})
    timed = is_time(newest, query.epoch)
    unknown = ["initial is for watermarks that are no times"] if timed and query.initial is not None else []
    kind = "a time" if timed else "an order"
    found = {query.watermark: f"{kind}; the newest is {text_of(newest)}", query.key: "the key"}
    return Checked(found=found, unknown=unknown)


plugin = Plugin(
    kind="sql",
    summary="Rows of a query on PostgreSQL, MySQL, MariaDB or SQLite",
    docs="reference/services/sql.md",
    account=Account,
    query=Query,
    source=TableRows,
    whoami=_whoami,
    check=_check,
    identity="change",
    environment={"HARKEN_SQL_URL": "url"},
)
