"""Who we are in the database, and whether a query has its columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harken.services.sql.api import Account, Table, database_of, open_session
from harken.services.sql.query import Query
from harken.services.sql.values import text_of
from harken.services.sql.watermark_times_and_bounds import is_time
from harken.source import Checked, Host

__all__ = ["check", "whoami"]

WHOAMI_SECONDS = 8.0
"""Seconds for a query that reads no rows."""


async def whoami(account: Account, host: Host) -> Mapping[str, Any]:
    async with open_session(database_of(account), account.address.label, WHOAMI_SECONDS) as session:
        return await session.whoami()


async def check(query: Query, account: Account, host: Host) -> Checked:
    """Fetch the names of the columns without reading a row, and the newest watermark."""
    table = Table(query, account)
    async with table.session() as session:
        names = await table.columns(session)
        unknown = [table.missing_column_text(name, names) for name in (query.watermark, query.key) if name not in names]
        if unknown:
            return Checked(unknown=unknown)
        newest = await table.newest(session)
    if newest is None:
        return Checked(found={query.watermark: "no rows now", query.key: "the key"})
    timed = is_time(newest, query.epoch)
    unknown = ["initial is for watermarks that are not times"] if timed and query.initial is not None else []
    kind = "a time" if timed else "an order"
    found = {query.watermark: f"{kind}; the newest is {text_of(newest)}", query.key: "the key"}
    return Checked(found=found, unknown=unknown)
