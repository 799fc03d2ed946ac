"""Azure DevOps: work items that match a query, from the moment they do.

https://learn.microsoft.com/en-us/rest/api/azure/devops/wit/wiql/query-by-wiql
https://learn.microsoft.com/en-us/rest/api/azure/devops/wit/work-items/list
"""

from __future__ import annotations

from datetime import datetime

from harken.event import Event
from harken.kit.issue_source import History, TrackerSource
from harken.kit.updated_at_cursor import ListCursor, Page
from harken.kit.webhook_receiver import ReceiverQuery
from harken.services.azure_devops.actions import ACTIONS
from harken.services.azure_devops.api import Account, Api
from harken.services.azure_devops.change_slices import find_slice, read_items
from harken.services.azure_devops.check import check, whoami
from harken.services.azure_devops.events_from_work_item_history import (
    Item,
    event_of,
    filter_of,
    includes_last_change,
    matched_at,
    needs_history,
    no_longer_matches,
    read_history,
)
from harken.services.azure_devops.query import Query
from harken.services.azure_devops.receiver import receiver, sample
from harken.services.azure_devops.tracker import make_tracker
from harken.services.azure_devops.tracker_webhooks import WorkItemNotices
from harken.source import Delivery, Host, Plugin

__all__ = ["Account", "Query", "plugin", "source"]


class WorkItems:
    """What Azure DevOps adds to the tracker source.

    A page is a slice of time; `slices` says why.
    """

    def __init__(self, query: Query, account: Account, host: Host) -> None:
        self._api = Api(account, host)
        self._projects = query.projects
        self._clauses = query.clauses()
        self._filter = filter_of(query, host.identity)

    async def read_page(self, cursor: ListCursor) -> Page[Item]:
        assert cursor.start is not None
        result, end = await find_slice(self._api, cursor.name, self._clauses, cursor.start)
        items = await read_items(self._api, result.ids)
        # `end` is a time that we chose, so whatever changes meanwhile is in a later slice
        return Page(
            now=result.at,
            items=[item for item in items if not no_longer_matches(item, self._filter)],
            times=[end],
            link="next slice" if end else None,
        )

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
    webhook_query=ReceiverQuery,
    webhook=receiver,
    webhook_sample=sample,
    query=Query,
    source=source,
    actions=ACTIONS,
    whoami=whoami,
    check=check,
    tracker=make_tracker,
    notices=WorkItemNotices,
    lookback_seconds=600.0,
    delivery=lambda query, integration: Delivery(template="[{type} {id}] {title} ({state})\n{url}"),
    environment={"AZURE_DEVOPS_ORGANIZATION": "organization", "AZURE_DEVOPS_TOKEN": "token"},
)
