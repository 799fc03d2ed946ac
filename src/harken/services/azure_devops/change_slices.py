"""Work items in the order of their last change, read in slices of time.

A query returns only ids, and a work item that changed again meanwhile shows a later time. So a page does not begin
where the last one ended: it is a slice of time, narrow enough for all of its work items to be listed.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from harken.errors import NeedsAttention
from harken.services.azure_devops.api import MAX_ITEMS, Api, QueryResult, TooManyItems
from harken.services.azure_devops.events_from_work_item_history import FIELDS, Item, item_of
from harken.services.azure_devops.query import changed_clause, whole_query

__all__ = ["find_slice", "read_items"]

NARROWEST = timedelta(milliseconds=1)
# work items that changed within one millisecond and are read at once
MAX_TIED = 1000


async def find_slice(
    api: Api, project: str, clauses: Sequence[str], start: datetime
) -> tuple[QueryResult, datetime | None]:
    """Return what the slice that begins at `start` holds, and its end; the last slice has no end."""
    end: datetime | None = None
    while True:
        tied = end is not None and end - start <= NARROWEST
        most = MAX_TIED if tied else MAX_ITEMS
        result = await _query(api, project, [*clauses, changed_clause(start, end)], most + 1)
        if result is not None and len(result.ids) <= most:
            return result, end
        if tied:
            message = f"more than {MAX_TIED:,} work items of {project} were changed within a millisecond"
            raise NeedsAttention(message, fix="Make the query narrower")
        last_change = await _changed_at(api, result.ids[-1]) if result else None
        top = end or max(api.host.clock.now(), start)
        # only a guess: the work item may have changed again since the query
        usable = last_change is not None and (end is None or last_change < end)
        end = max(last_change if last_change and usable else start + (top - start) / 2, start + NARROWEST)


async def read_items(api: Api, ids: Sequence[int], fields: Sequence[str] = FIELDS) -> list[Item]:
    """Read any number of work items, in this order, without those that were deleted meanwhile."""
    chunks = [ids[start : start + MAX_ITEMS] for start in range(0, len(ids), MAX_ITEMS)]
    return [item_of(found) for chunk in chunks for found in await api.read_items(chunk, fields)]


async def _query(api: Api, project: str, clauses: Sequence[str], max_ids: int) -> QueryResult | None:
    try:
        return await api.query_ids(project, whole_query(clauses), max_ids)
    except TooManyItems:
        return None


async def _changed_at(api: Api, id: int) -> datetime | None:
    found = await api.read_items([id], ["System.ChangedDate"])
    return item_of(found[0]).changed_at if found else None
