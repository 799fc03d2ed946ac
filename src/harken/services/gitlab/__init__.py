"""GitLab: issues that match a query, from the moment they do. On gitlab.com and on servers of one's own.

https://docs.gitlab.com/api/issues/#list-project-issues
"""

from __future__ import annotations

from datetime import UTC, timedelta
from functools import partial

from harken.kit.issue_source import Issue, IssueTracker, TrackerSource
from harken.kit.json_api import Params
from harken.kit.updated_at_cursor import ListCursor
from harken.kit.values_from_payload import rfc3339
from harken.kit.webhook_receiver import ReceiverQuery
from harken.services.gitlab.actions import ACTIONS
from harken.services.gitlab.api import Account, Api
from harken.services.gitlab.check import check, whoami
from harken.services.gitlab.events_from_issue_history import (
    event_of,
    filter_of,
    histories,
    issue_of,
    matched_at,
    matches,
    read_history,
)
from harken.services.gitlab.query import Query
from harken.services.gitlab.receiver import receiver, sample
from harken.services.gitlab.tracker import GitLabTracker
from harken.services.gitlab.tracker_webhooks import GitLabNotices
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
        needs_history=lambda issue, wanted: bool(histories(issue, wanted)),
        read_history=partial(read_history, api),
        matched_at=matched_at,
        event_of=event_of,
    )
    return TrackerSource(tracker, names=query.projects, fingerprint=query.fingerprint())


def _page_of(api: Api, query: Query, cursor: ListCursor) -> tuple[str, Params]:
    assert cursor.start is not None
    # a millisecond earlier: the times that GitLab shows are cut, those that it compares are not
    after = rfc3339((cursor.start - timedelta(milliseconds=1)).astimezone(UTC), "milliseconds") or ""
    order: list[tuple[str, str | int]] = [("order_by", "updated_at"), ("sort", "asc"), ("updated_after", after)]
    return api.project_url(cursor.name, "issues"), [*query.params(), *order, ("per_page", 100)]


plugin = Plugin(
    kind="gitlab",
    summary="GitLab issues: new, labelled, assigned or closed",
    docs="reference/services/gitlab.md",
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
    delivery=lambda query, integration: Delivery(template="[{project}#{iid}] {title} ({state})\n{web_url}"),
    environment={"GITLAB_TOKEN": "token"},
    tracker=GitLabTracker,
    notices=GitLabNotices,
)
