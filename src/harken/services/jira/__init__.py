"""Jira issues, Cloud and Server / Data Center, read in the order in which they changed.

Search: https://developer.atlassian.com/cloud/jira/platform/rest/v3/api-group-issue-search/ (Cloud) and
https://developer.atlassian.com/server/jira/platform/rest/v10002/api-group-search/ (Server).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from harken.event import Event
from harken.http import Reply
from harken.kit.concurrent_requests import gather
from harken.kit.cursor_codec import dump_cursor
from harken.kit.json_api import server_time
from harken.kit.values_from_payload import text_of
from harken.kit.webhook_receiver import ReceiverQuery
from harken.services.jira.actions import ACTIONS
from harken.services.jira.api import Account, Api, find_person
from harken.services.jira.check import check, whoami
from harken.services.jira.cursor import SearchCursor, end, has_slipped, next_page, restart, resume
from harken.services.jira.events_from_issue_history import (
    FIELDS,
    Occurrence,
    data_of,
    found_event,
    occurrence_event,
    occurrences,
    read_history,
    read_mentions,
    version_event,
)
from harken.services.jira.query import Query, QueryPeople, filter_of, jql_of
from harken.services.jira.receiver import receiver, sample
from harken.services.jira.search import listed_issues, search
from harken.services.jira.tracker import Tracker
from harken.services.jira.tracker_webhooks import JiraNotices
from harken.source import Batch, Cursor, Delivery, Host, Plugin

__all__ = ["Account", "Issues", "Query", "plugin"]

PARALLEL_READS = 5
PEOPLE_SECONDS = 3600.0


class Issues:
    """Reads the issues that changed since the last read, and returns what happened to each: see `event.occurrences`.

    Raw JQL may ask for something that becomes true as time passes, so all that it finds is read each time.
    """

    def __init__(self, query: Query, account: Account, host: Host) -> None:
        self._query = query
        self._api = Api(account, host)
        self._clock = host.clock
        self._identity = host.identity
        self._fingerprint = query.fingerprint()
        self._people: QueryPeople | None = None
        self._people_read_at = 0.0
        self._parallel_reads = asyncio.Semaphore(PARALLEL_READS)

    async def poll(self, cursor: Cursor, since: datetime) -> Batch:
        position = resume(cursor, self._fingerprint, since)
        begin, people = position.since or since, await self._find_people()
        reply = await self._search(position, begin, people)
        if reply.status == 400 and position.token and (again := restart(position)):
            # a page token is valid for some days, and a read may be resumed after weeks
            return Batch(cursor=dump_cursor(again), more=True)
        self._api.check(reply)
        began = position.began or server_time(reply, self._clock.now())
        position = msgspec.structs.replace(position, began=began)
        answer = reply.json()
        issues = listed_issues(answer, self._api.name)
        events = await self._events(issues, begin, people)
        return await self._batch(position, answer, [str(issue["id"]) for issue in issues], events)

    async def _batch(
        self, position: SearchCursor, answer: Mapping[str, Any], ids: Sequence[str], events: list[Event]
    ) -> Batch:
        if has_slipped(position, ids):
            again = restart(position)
            if again is not None:
                return Batch(events=events, cursor=dump_cursor(again), more=True)
            position = msgspec.structs.replace(position, partial=True)
        following = next_page(position, answer, ids, cloud=await self._api.is_cloud(), server=self._api.name)
        cursor = dump_cursor(following or end(position))
        return Batch(events=events, cursor=cursor, more=following is not None, complete=not position.partial)

    async def _find_people(self) -> QueryPeople:
        """Look up the users of the query; again every hour, because accounts are renamed and closed."""
        now = self._clock.monotonic()
        if self._people is None or now - self._people_read_at > PEOPLE_SECONDS:
            assignees = [await find_person(self._api, name) for name in self._query.assignee]
            mentioned = [await find_person(self._api, name) for name in self._query.mentioned]
            self._people = QueryPeople(assignees=tuple(assignees), mentioned=tuple(mentioned))
            self._people_read_at = now
        return self._people

    async def _search(self, position: SearchCursor, since: datetime, people: QueryPeople) -> Reply:
        fields = [*FIELDS, *(["comment"] if self._query.mentioned else [])]
        changelog = not self._query.jql and self._identity != "change"
        return await search(self._api, jql_of(self._query, people, since), position, fields, changelog=changelog)

    async def _events(self, issues: Sequence[Mapping[str, Any]], since: datetime, people: QueryPeople) -> list[Event]:
        lists = await gather(self._events_of(issue, since, people) for issue in issues)
        # older events were returned by an earlier read, and the engine may have forgotten them
        recent = [
            event for events in lists for event in events if event.occurred_at is None or event.occurred_at >= since
        ]
        return sorted(recent, key=lambda event: event.occurred_at.timestamp() if event.occurred_at else 0.0)

    async def _events_of(self, issue: Mapping[str, Any], since: datetime, people: QueryPeople) -> list[Event]:
        data = data_of(issue, self._api.browse_url(text_of(issue, "key") or ""))
        if self._query.jql:
            return [found_event(data, self._identity)]
        if self._identity == "change":
            return [version_event(data)]
        async with self._parallel_reads:
            return [occurrence_event(data, one) for one in await self._occurrences(issue, since, people)]

    async def _occurrences(self, issue: Mapping[str, Any], since: datetime, people: QueryPeople) -> list[Occurrence]:
        wanted = filter_of(self._query, people)
        history = await read_history(self._api, issue, since)
        if not self._query.mentioned:
            return occurrences(issue, history, wanted, statuses=self._identity == "transition")
        descriptions = [
            msgspec.structs.replace(one, type="jira.mention", name=f"d{one.name or issue['id']}")
            for one in occurrences(issue, history, wanted, statuses=False)
        ]
        return [*descriptions, *await read_mentions(self._api, issue, wanted.mentioned, since)]


plugin = Plugin(
    kind="jira",
    summary="Jira issues, Cloud and Server / Data Center",
    docs="reference/services/jira.md",
    account=Account,
    webhook_query=ReceiverQuery,
    webhook=receiver,
    webhook_sample=sample,
    query=Query,
    source=Issues,
    actions=ACTIONS,
    tracker=Tracker,
    notices=JiraNotices,
    whoami=whoami,
    check=check,
    lookback_seconds=600.0,
    delivery=lambda query, integration: Delivery(template="[{key}] {summary} ({status})\n{url}"),
    environment={"JIRA_BASE_URL": "base_url", "JIRA_EMAIL": "email", "JIRA_API_TOKEN": "token"},
)
