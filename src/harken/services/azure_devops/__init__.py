"""Azure DevOps: work items that match a query, from the moment they do.

https://learn.microsoft.com/en-us/rest/api/azure/devops/wit/wiql/query-by-wiql
https://learn.microsoft.com/en-us/rest/api/azure/devops/wit/work-items/list
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from harken.errors import NeedsAttention
from harken.event import Event
from harken.kit.changed_lists import Page, Place, batch_at, following, fresh, resume
from harken.kit.tracker import Gone, Histories, History, gather
from harken.services.azure_devops.actions import ACTIONS
from harken.services.azure_devops.api import MOST, Account, Api, Found, TooMany
from harken.services.azure_devops.check import check, whoami
from harken.services.azure_devops.event import (
    FIELDS,
    Item,
    event_of,
    has_left,
    history_of,
    item_of,
    matched_at,
    needs_history,
    wanted_by,
)
from harken.services.azure_devops.query import Query
from harken.services.azure_devops.wiql import changed, whole
from harken.source import Batch, Cursor, Delivery, Host, Plugin

__all__ = ["Account", "Query", "WorkItems", "plugin"]

NARROWEST = timedelta(milliseconds=1)
TIED = 1000
"""So many work items that were changed within a millisecond are read at once."""


class WorkItems:
    """Reads one slice of time a call, one project after the other, and shows since when each work item matches.

    A query tells only ids, and a work item that was changed again since tells a later time. So a page does not begin
    where the last one ended: it is a slice that is narrow enough for all of its work items to be listed.
    """

    def __init__(self, query: Query, account: Account, host: Host) -> None:
        self._api = Api(account, host)
        self._clock = host.clock
        self._projects = query.projects
        self._clauses = query.clauses()
        self._of = query.fingerprint()
        self._wanted = wanted_by(query, host.identity)
        self._histories = Histories()

    async def poll(self, cursor: Cursor, since: datetime) -> Batch:
        place = resume(cursor, self._of, since, self._projects)
        found, end = await self._slice(place)
        items = [item for batch in _batches(found.ids) for item in await self._api.items(batch, FIELDS)]
        # what was changed since the query may not match any more
        wanted = [item for item in map(item_of, items) if not has_left(item, self._wanted)]
        events = fresh(await gather(map(self._event, wanted)), place, self._clock.now())
        # the slice ends at a time of ours, so whatever changes meanwhile is in a later one
        page = Page(times=[end], link="further" if end else None, etag="", now=found.at)
        return batch_at(following(place, page, self._projects), events)

    async def _slice(self, place: Place) -> tuple[Found, datetime | None]:
        """What the next slice holds, and its end; a slice without an end is the last one."""
        start, end = place.start, None
        assert start is not None
        while True:
            tied = end is not None and end - start <= NARROWEST
            most = TIED if tied else MOST
            found = await self._find(place.name, start, end, most + 1)
            if found is not None and len(found.ids) <= most:
                return found, end
            if tied:
                message = f"more than {TIED:,} work items of {place.name} were changed within a millisecond"
                raise NeedsAttention(message, fix="Make the query narrower")
            cut = await self._changed_at(found.ids[-1]) if found else None
            top = end or max(self._clock.now(), start)
            # a time that was told is only a guess: the work item may have been changed again
            end = max(cut if cut and (end is None or cut < end) else start + (top - start) / 2, start + NARROWEST)

    async def _find(self, project: str, start: datetime, end: datetime | None, most: int) -> Found | None:
        try:
            return await self._api.find(project, whole([*self._clauses, changed(start, end)]), most)
        except TooMany:
            return None

    async def _changed_at(self, id: int) -> datetime | None:
        found = await self._api.items([id], ["System.ChangedDate"])
        return item_of(found[0]).changed_at if found else None

    async def _event(self, item: Item) -> Event | None:
        history: History = ()
        if needs_history(item, self._wanted):
            try:
                history = await history_of(item, self._histories, self._api)
            except Gone:
                return None
        project = str(item.fields.get("System.TeamProject") or self._projects[0])
        url = self._api.address(project, "_workitems", "edit", item.name)
        return event_of(item, matched_at(item, history, self._wanted), self._wanted, url)


def _batches(ids: Sequence[int]) -> list[Sequence[int]]:
    return [ids[place : place + MOST] for place in range(0, len(ids), MOST)]


plugin = Plugin(
    kind="azure_devops",
    summary="Azure DevOps work items: new, tagged, assigned or in a state",
    docs="reference/services/azure_devops.md",
    account=Account,
    query=Query,
    source=WorkItems,
    actions=ACTIONS,
    whoami=whoami,
    check=check,
    lookback_seconds=600.0,
    delivery=lambda query, integration: Delivery(template="[{type} {id}] {title} ({state})\n{url}"),
    environment={"AZURE_DEVOPS_ORGANIZATION": "organization", "AZURE_DEVOPS_TOKEN": "token"},
)
