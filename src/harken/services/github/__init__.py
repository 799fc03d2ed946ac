"""GitHub: issues and pull requests that match a query, from the moment they do.

https://docs.github.com/en/rest/issues/issues#list-repository-issues
"""

from __future__ import annotations

from datetime import UTC, timedelta
from functools import partial

from harken.kit.issue_source import IssueTracker, TrackerSource
from harken.kit.json_api import Params
from harken.kit.updated_at_cursor import ListCursor
from harken.kit.webhook_receiver import ReceiverQuery
from harken.services.github.actions import ACTIONS
from harken.services.github.api import Account, Api
from harken.services.github.check import check, whoami
from harken.services.github.events_from_issue_history import (
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
from harken.services.github.receiver import receiver, sample
from harken.services.github.tracker import GitHubTracker
from harken.services.github.tracker_webhooks import GitHubNotices
from harken.source import Delivery, Host, Plugin

__all__ = ["Account", "Query", "plugin", "source"]


def source(query: Query, account: Account, host: Host) -> TrackerSource[Issue]:
    api = Api(account, host)
    tracker = IssueTracker(
        api,
        filter_of(query, host.identity),
        page_of=partial(_page_of, api, query),
        parse=issue_of,
        matches=matches,
        needs_history=needs_history,
        read_history=partial(read_history, api),
        matched_at=matched_at,
        event_of=event_of,
    )
    return TrackerSource(tracker, names=query.repos, fingerprint=query.fingerprint())


def _page_of(api: Api, query: Query, cursor: ListCursor) -> tuple[str, Params]:
    assert cursor.start is not None
    # a second earlier: the documentation does not say whether `since` is included
    since = (cursor.start - timedelta(seconds=1)).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    order: list[tuple[str, str | int]] = [
        ("sort", "updated"),
        ("direction", "asc"),
        ("since", since),
        ("per_page", 100),
    ]
    return api.repo_url(cursor.name, "issues"), [*query.params(), *order]


plugin = Plugin(
    kind="github",
    summary="GitHub issues and pull requests: new, labelled, assigned or closed",
    docs="reference/services/github.md",
    account=Account,
    webhook_query=ReceiverQuery,
    webhook=receiver,
    webhook_sample=sample,
    query=Query,
    source=source,
    actions=ACTIONS,
    whoami=whoami,
    check=check,
    lookback_seconds=600.0,
    delivery=lambda query, integration: Delivery(template="[{repo}#{number}] {title} ({state})\n{html_url}"),
    environment={"GITHUB_TOKEN": "token"},
    tracker=GitHubTracker,
    notices=GitHubNotices,
)
