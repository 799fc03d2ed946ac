"""GitHub: issues and pull requests that match a query, from the moment they do.

https://docs.github.com/en/rest/issues/issues#list-repository-issues
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial

from harken.event import Event
from harken.kit.changed_lists import ListCursor, Page
from harken.kit.tracker import History, TrackerSource, is_settled, read_issues
from harken.services.github.actions import ACTIONS
from harken.services.github.api import Account, Api
from harken.services.github.check import check, whoami
from harken.services.github.event import (
    Issue,
    event_of,
    filter_of,
    issue_of,
    matched_at,
    matches,
    needs_history,
    read_history,
)
from harken.services.github.query import Query
from harken.source import Delivery, Host, Plugin

__all__ = ["Account", "Query", "plugin", "source"]


class Issues:
    """What GitHub adds to the tracker source."""

    def __init__(self, query: Query, account: Account, host: Host) -> None:
        self._api = Api(account, host)
        self._params = query.params()
        self._filter = filter_of(query, host.identity)

    async def read_page(self, cursor: ListCursor) -> Page[Issue]:
        assert cursor.start is not None
        # a second earlier: the documentation does not say whether `since` is included
        since = (cursor.start - timedelta(seconds=1)).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return await read_issues(
            self._api,
            cursor,
            self._api.repo_url(cursor.name, "issues"),
            [*self._params, ("sort", "updated"), ("direction", "asc"), ("since", since), ("per_page", 100)],
            parse=partial(issue_of, repo=cursor.name),
            matches=lambda issue: matches(issue, self._filter),
        )

    def needs_history(self, issue: Issue) -> bool:
        return needs_history(issue, self._filter)

    async def read_history(self, issue: Issue, repo: str) -> History:
        return await read_history(self._api, issue, repo)

    def is_settled(self, issue: Issue, history: History, now: datetime) -> bool:
        return is_settled(issue, now)

    def event_of(self, issue: Issue, history: History, repo: str) -> Event:
        return event_of(issue, matched_at(issue, history, self._filter), self._filter, repo)


def source(query: Query, account: Account, host: Host) -> TrackerSource[Issue]:
    return TrackerSource(Issues(query, account, host), names=query.repos, fingerprint=query.fingerprint())


plugin = Plugin(
    kind="github",
    summary="GitHub issues and pull requests: new, labelled, assigned or closed",
    docs="reference/services/github.md",
    account=Account,
    query=Query,
    source=source,
    actions=ACTIONS,
    whoami=whoami,
    check=check,
    lookback_seconds=600.0,
    delivery=lambda query, integration: Delivery(template="[{repo}#{number}] {title} ({state})\n{html_url}"),
    environment={"GITHUB_TOKEN": "token"},
)
