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

from harken.errors import NeedsAttention, RetryLater
from harken.event import Event, Identity
from harken.http import Reply
from harken.kit.fields import instant, text_of
from harken.kit.gather import gather
from harken.kit.json_api import server_time
from harken.services.jira.actions import COMMENT, TRANSITION
from harken.services.jira.api import Account, Site, find_person
from harken.services.jira.check import check, whoami
from harken.services.jira.cursor import Place, ended, place_at, restarted, slipped, turned
from harken.services.jira.event import FIELDS, Occurrence, data_of, history_since, mentions_since, occurrences
from harken.services.jira.query import Meant, Query, filter_of, jql_of
from harken.source import Batch, Cursor, Delivery, Host, Plugin

__all__ = ["Account", "Issues", "Query", "plugin"]

PAGE = 50
AT_ONCE = 5
KNOWN_SECONDS = 3600.0


class Issues:
    """Reads the issues that changed since the last read and shows what happened to each: see `issue`.

    Raw JQL may ask for anything, also for what the passing of time makes true. What it finds is read whole each time.
    """

    def __init__(self, query: Query, account: Account, host: Host) -> None:
        self._query = query
        self._site = Site(account, host)
        self._host = host
        self._of = query.fingerprint()
        self._meant: Meant | None = None
        self._met_at = 0.0
        self._busy = asyncio.Semaphore(AT_ONCE)

    async def poll(self, cursor: Cursor, since: datetime) -> Batch:
        place = place_at(cursor, self._of, since)
        begin, meant = place.since or since, await self._people()
        reply = await self._search(place, begin, meant)
        if reply.status == 400 and place.token and (again := restarted(place)):
            # a token lives for days only, and a read may be resumed after weeks
            return Batch(cursor=msgspec.to_builtins(again), more=True)
        self._site.check(reply)
        place = msgspec.structs.replace(place, began=place.began or server_time(reply, self._host.clock.now()))
        answer = reply.json()
        issues = self._issues(answer)
        events = await self._events(issues, begin, meant)
        return self._page(place, answer, [str(issue["id"]) for issue in issues], events, await self._site.cloud())

    def _page(
        self, place: Place, answer: Mapping[str, Any], ids: Sequence[str], events: list[Event], cloud: bool
    ) -> Batch:
        if slipped(place, ids):
            again = restarted(place)
            if again is not None:
                return Batch(events=events, cursor=msgspec.to_builtins(again), more=True)
            place = msgspec.structs.replace(place, partial=True)
        following = turned(place, answer, ids, cloud, self._site.name)
        cursor = msgspec.to_builtins(following or ended(place))
        return Batch(events=events, cursor=cursor, more=following is not None, complete=not place.partial)

    async def _people(self) -> Meant:
        """Whom the query means; asked again every hour, because accounts are renamed and closed."""
        now = self._host.clock.monotonic()
        if self._meant is None or now - self._met_at > KNOWN_SECONDS:
            assignees = [await find_person(self._site, name) for name in self._query.assignee]
            mentioned = [await find_person(self._site, name) for name in self._query.mentioned]
            self._meant, self._met_at = Meant(assignees=tuple(assignees), mentioned=tuple(mentioned)), now
        return self._meant

    async def _search(self, place: Place, since: datetime, meant: Meant) -> Reply:
        fields = [*FIELDS, *(["comment"] if self._query.mentioned else [])]
        asked: dict[str, Any] = {"jql": jql_of(self._query, meant, since), "maxResults": PAGE}
        if not self._query.jql and self._host.identity != "change":
            asked["expand"] = "changelog"
        if await self._site.cloud():
            token = {"nextPageToken": place.token} if place.token else {}
            return await self._site.reply("POST", "/rest/api/3/search/jql", json={**asked, **token, "fields": fields})
        params = {**asked, "startAt": place.start, "fields": ",".join(fields)}
        return await self._site.reply("GET", "/rest/api/2/search", params=params)

    def _issues(self, answer: Any) -> list[Mapping[str, Any]]:
        listed = answer.get("issues") if isinstance(answer, Mapping) else None
        if not isinstance(listed, list):
            raise RetryLater(f"{self._site.name} answered a search without a list of issues")
        for number, issue in enumerate(listed, 1):
            if not isinstance(issue, Mapping) or not text_of(issue, "id"):
                raise NeedsAttention(f"issue {number} of {self._site.name} has no id", fix="Check base_url")
        return listed

    async def _events(self, issues: Sequence[Mapping[str, Any]], since: datetime, meant: Meant) -> list[Event]:
        each = await gather(self._shown(issue, since, meant) for issue in issues)
        # what is older was read long ago, and may be forgotten
        shown = [event for one in each for event in one]
        events = [event for event in shown if event.occurred_at is None or event.occurred_at >= since]
        return sorted(events, key=lambda event: event.occurred_at.timestamp() if event.occurred_at else 0.0)

    async def _shown(self, issue: Mapping[str, Any], since: datetime, meant: Meant) -> list[Event]:
        data = data_of(issue, self._site.browse(text_of(issue, "key") or ""))
        if self._query.jql:
            return [_found(data, self._host.identity)]
        if self._host.identity == "change":
            return [_version(data)]
        async with self._busy:
            return [_event(data, one) for one in await self._happened(issue, since, meant)]

    async def _happened(self, issue: Mapping[str, Any], since: datetime, meant: Meant) -> list[Occurrence]:
        wanted, each = filter_of(self._query, meant), self._host.identity == "transition"
        history = await history_since(self._site, issue, since)
        if not self._query.mentioned:
            return occurrences(issue, history, wanted, statuses=each)
        written = occurrences(issue, history, wanted, statuses=False)
        named = [
            msgspec.structs.replace(one, type="jira.mention", name=f"d{one.name or issue['id']}") for one in written
        ]
        return [*named, *await mentions_since(self._site, issue, wanted.mentioned, since)]


def _event(data: Mapping[str, Any], one: Occurrence) -> Event:
    subject = f"{data['id']}:{one.name}" if one.name else str(data["id"])
    whole = {**data, **one.more}
    return Event(
        subject=subject,
        key=_key(data, one.name or subject),
        type=one.type,
        state=one.state,
        occurred_at=one.at,
        data=whole,
    )


def _version(data: Mapping[str, Any]) -> Event:
    """Each update of an issue, for `identity: change`."""
    id, updated = str(data["id"]), data["updated"]
    key = _key(data, f"{id}@{updated}")
    return Event(subject=id, key=key, type="jira.updated", state=updated, occurred_at=instant(updated), data=data)


def _found(data: Mapping[str, Any], identity: Identity) -> Event:
    """What raw JQL found. Nothing tells since when, so the event has no time and counts from when it was read."""
    id = str(data["id"])
    state = {"once": None, "transition": data["status"], "change": data["updated"]}[identity]
    key = _key(data, f"{id}@{state}" if state else id)
    return Event(subject=id, key=key, type="jira.found", state=state, data=data)


def _key(data: Mapping[str, Any], occurrence: str) -> str:
    # an issue's key changes when it moves, and may come back in a project that was made anew: the id does not
    return f"{data['key'] or 'issue'}#{occurrence}"


plugin = Plugin(
    kind="jira",
    summary="Jira issues, Cloud and Server / Data Center",
    docs="reference/services/jira.md",
    account=Account,
    query=Query,
    source=Issues,
    actions={"comment": COMMENT, "transition": TRANSITION},
    whoami=whoami,
    check=check,
    lookback_seconds=600.0,
    delivery=lambda query, integration: Delivery(template="[{key}] {summary} ({status})\n{url}"),
    environment={"JIRA_BASE_URL": "base_url", "JIRA_EMAIL": "email", "JIRA_API_TOKEN": "token"},
)
