"""Azure DevOps: work items that match a query, from the moment they do.

https://learn.microsoft.com/en-us/rest/api/azure/devops/wit/wiql/query-by-wiql
https://learn.microsoft.com/en-us/rest/api/azure/devops/wit/work-items/list
"""

from __future__ import annotations

from datetime import datetime, timedelta

from harken.errors import NeedsAttention
from harken.event import Event
from harken.kit.changed_lists import ListCursor, Page
from harken.kit.tracker import History, TrackerSource
from harken.services.azure_devops.actions import ACTIONS
from harken.services.azure_devops.api import MAX_ITEMS, Account, Api, QueryResult, TooManyItems
from harken.services.azure_devops.check import check, whoami
from harken.services.azure_devops.event import (
    FIELDS,
    Item,
    event_of,
    filter_of,
    includes_last_change,
    item_of,
    matched_at,
    needs_history,
    no_longer_matches,
    read_history,
)
from harken.services.azure_devops.query import Query, changed_clause, whole_query
from harken.source import Delivery, Host, Plugin

__all__ = ["Account", "Query", "plugin", "source"]

NARROWEST = timedelta(milliseconds=1)
# work items that changed within one millisecond and are read at once
MAX_TIED = 1000


class WorkItems:
    """What Azure DevOps adds to the tracker source.

    A query returns only ids, and a work item that changed again meanwhile shows a later time. So a page does not begin
    where the last one ended: it is a slice of time, narrow enough for all of its work items to be listed.
    """

    def __init__(self, query: Query, account: Account, host: Host) -> None:
        self._api = Api(account, host)
        self._clock = host.clock
        self._projects = query.projects
        self._clauses = query.clauses()
        self._filter = filter_of(query, host.identity)

    async def read_page(self, cursor: ListCursor) -> Page[Item]:
        result, end = await self._find_slice(cursor)
        chunks = [result.ids[start : start + MAX_ITEMS] for start in range(0, len(result.ids), MAX_ITEMS)]
        items = [item_of(found) for ids in chunks for found in await self._api.read_items(ids, FIELDS)]
        # `end` is a time that we chose, so whatever changes meanwhile is in a later slice
        return Page(
            now=result.at,
            items=[item for item in items if not no_longer_matches(item, self._filter)],
            times=[end],
            link="next slice" if end else None,
        )

    async def _find_slice(self, cursor: ListCursor) -> tuple[QueryResult, datetime | None]:
        """Return what the next slice holds, and its end; the last slice has no end."""
        start, end = cursor.start, None
        assert start is not None
        while True:
            tied = end is not None and end - start <= NARROWEST
            most = MAX_TIED if tied else MAX_ITEMS
            result = await self._query(cursor.name, start, end, most + 1)
            if result is not None and len(result.ids) <= most:
                return result, end
            if tied:
                message = f"more than {MAX_TIED:,} work items of {cursor.name} were changed within a millisecond"
                raise NeedsAttention(message, fix="Make the query narrower")
            last_change = await self._changed_at(result.ids[-1]) if result else None
            top = end or max(self._clock.now(), start)
            # only a guess: the work item may have changed again since the query
            usable = last_change is not None and (end is None or last_change < end)
            end = max(last_change if last_change and usable else start + (top - start) / 2, start + NARROWEST)

    async def _query(self, project: str, start: datetime, end: datetime | None, max_ids: int) -> QueryResult | None:
        wiql = whole_query([*self._clauses, changed_clause(start, end)])
        try:
            return await self._api.query_ids(project, wiql, max_ids)
        except TooManyItems:
            return None

    async def _changed_at(self, id: int) -> datetime | None:
        found = await self._api.read_items([id], ["System.ChangedDate"])
        return item_of(found[0]).changed_at if found else None

    def needs_history(self, item: Item) -> bool:
        return needs_history(item, self._filter)

    async def read_history(self, item: Item, project: str) -> History:
        return await read_history(self._api, item)

    def is_settled(self, item: Item, history: History, now: datetime) -> bool:
        return includes_last_change(item, history)

    def event_of(self, item: Item, history: History, project: str) -> Event:
        own_project = str(item.fields.get("System.TeamProject") or self._projects[0])
        url = self._api.url(own_project, "_workitems", "edit", item.name)
        return event_of(item, matched_at(item, history, self._filter), self._filter, url)


def source(query: Query, account: Account, host: Host) -> TrackerSource[Item]:
    return TrackerSource(WorkItems(query, account, host), names=query.projects, fingerprint=query.fingerprint())


plugin = Plugin(
    kind="azure_devops",
    summary="Azure DevOps work items: new, tagged, assigned or in a state",
    docs="reference/services/azure_devops.md",
    account=Account,
    query=Query,
    source=source,
    actions=ACTIONS,
    whoami=whoami,
    check=check,
    lookback_seconds=600.0,
    delivery=lambda query, integration: Delivery(template="[{type} {id}] {title} ({state})\n{url}"),
    environment={"AZURE_DEVOPS_ORGANIZATION": "organization", "AZURE_DEVOPS_TOKEN": "token"},
)
