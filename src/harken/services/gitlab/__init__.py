"""GitLab: issues that match a query, from the moment they do. On gitlab.com and on servers of one's own.

https://docs.gitlab.com/api/issues/#list-project-issues
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial

from harken.event import Event
from harken.kit.changed_lists import ListCursor, Page
from harken.kit.fields import rfc3339
from harken.kit.tracker import History, Issue, TrackerSource, is_settled, read_issues
from harken.services.gitlab.actions import ACTIONS
from harken.services.gitlab.api import Account, Api
from harken.services.gitlab.check import check, whoami
from harken.services.gitlab.event import event_of, filter_of, history_kinds, issue_of, matched_at, matches, read_history
from harken.services.gitlab.query import Query
from harken.source import Delivery, Host, Plugin

__all__ = ["Account", "Query", "plugin", "source"]


class Issues:
    """What GitLab adds to the tracker source."""

    def __init__(self, query: Query, account: Account, host: Host) -> None:
        self._api = Api(account, host)
        self._params = query.params()
        self._filter = filter_of(query, host.identity)

    async def read_page(self, cursor: ListCursor) -> Page[Issue]:
        assert cursor.start is not None
        # a millisecond earlier: the times that GitLab shows are cut, those that it compares are not
        after = rfc3339((cursor.start - timedelta(milliseconds=1)).astimezone(UTC), "milliseconds") or ""
        return await read_issues(
            self._api,
            cursor,
            self._api.project_url(cursor.name, "issues"),
            [*self._params, ("order_by", "updated_at"), ("sort", "asc"), ("updated_after", after), ("per_page", 100)],
            parse=partial(issue_of, project=cursor.name),
            matches=lambda issue: matches(issue, self._filter),
        )

    def needs_history(self, issue: Issue) -> bool:
        return bool(history_kinds(issue, self._filter))

    async def read_history(self, issue: Issue, project: str) -> History:
        return await read_history(self._api, issue, project, history_kinds(issue, self._filter))

    def is_settled(self, issue: Issue, history: History, now: datetime) -> bool:
        return is_settled(issue, now)

    def event_of(self, issue: Issue, history: History, project: str) -> Event:
        return event_of(issue, matched_at(issue, history, self._filter), self._filter, project)


def source(query: Query, account: Account, host: Host) -> TrackerSource[Issue]:
    return TrackerSource(Issues(query, account, host), names=query.projects, fingerprint=query.fingerprint())


plugin = Plugin(
    kind="gitlab",
    summary="GitLab issues: new, labelled, assigned or closed",
    docs="reference/services/gitlab.md",
    account=Account,
    query=Query,
    source=source,
    actions=ACTIONS,
    whoami=whoami,
    check=check,
    lookback_seconds=600.0,
    delivery=lambda query, integration: Delivery(template="[{project}#{iid}] {title} ({state})\n{web_url}"),
    environment={"GITLAB_TOKEN": "token"},
)
