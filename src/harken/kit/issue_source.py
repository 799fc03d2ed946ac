"""A source for issue trackers whose lists can be read in the order of the last change: GitHub, GitLab, Azure DevOps.

A list says when an item changed, but a comment is a change too. Since when an item matches the query is told by its
history, so `TrackerSource` reads the history of the items that need it. A service implements `Tracker`; one that lists
issues as GitHub does gives its functions to `IssueTracker` instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import msgspec

from harken.event import Event, Identity
from harken.http import Reply, Validators
from harken.kit.concurrent_requests import gather
from harken.kit.conditional import expect_answer
from harken.kit.json_api import JsonApi, Params, server_time
from harken.kit.updated_at_cursor import (
    SETTLED,
    ListCursor,
    Page,
    advance,
    batch_at,
    events_in_read,
    resume,
    skip,
)
from harken.kit.values_from_payload import Precision, instant, rfc3339
from harken.source import Batch, Cursor

__all__ = [
    "Gone",
    "History",
    "Issue",
    "IssueFilter",
    "IssueTracker",
    "Tracker",
    "TrackerSource",
    "issue_event",
    "matched_since",
]

History: TypeAlias = Sequence[Any] | None
"""What happened to one item; None when it is too long to read."""

PARALLEL_READS = 5
MAX_HISTORIES = 5000


class Gone(Exception):
    """The item was deleted after it was listed."""


class Item(Protocol):
    """`version` changes with every change of the item; None: unknown."""

    @property
    def id(self) -> str | int | None: ...

    @property
    def version(self) -> object: ...


I = TypeVar("I", bound=Item)  # noqa: E741


class Tracker(Protocol[I]):
    """What one service adds to `TrackerSource`. `name` is the list (a repository, a project) that is being read."""

    async def read_page(self, cursor: ListCursor) -> Page[I]:
        """Read the page at the cursor: items changed at `cursor.start` or later, oldest change first."""
        ...

    def needs_history(self, item: I) -> bool:
        """Whether the item alone does not tell since when it matches."""
        ...

    async def read_history(self, item: I, name: str) -> History:
        """Read what happened to the item. Raise Gone if it was deleted meanwhile."""
        ...

    def is_settled(self, item: I, history: History, now: datetime) -> bool:
        """Whether the history certainly includes the last change of the item, so that it can be kept."""
        ...

    def event_of(self, item: I, history: History, name: str) -> Event: ...


class TrackerSource(Generic[I]):
    """Reads one page per call, one list after the other, and returns each item from the moment it matches."""

    def __init__(self, tracker: Tracker[I], *, names: Sequence[str], fingerprint: str) -> None:
        self._tracker = tracker
        self._names = names
        self._fingerprint = fingerprint
        self._histories: dict[str | int, tuple[object, History]] = {}
        self._parallel_reads = asyncio.Semaphore(PARALLEL_READS)

    async def poll(self, cursor: Cursor, since: datetime) -> Batch:
        position = resume(cursor, self._fingerprint, since, self._names)
        page = await self._tracker.read_page(position)
        if page.unchanged:
            return batch_at(skip(position, page.now, self._names), unchanged=True)
        events = await gather(self._event(item, position.name, page.now) for item in page.items)
        return batch_at(advance(position, page, self._names), events_in_read(events, position, page.now))

    async def _event(self, item: I, name: str, now: datetime) -> Event | None:
        try:
            history = await self._history(item, name, now) if self._tracker.needs_history(item) else ()
        except Gone:
            return None
        return self._tracker.event_of(item, history, name)

    async def _history(self, item: I, name: str, now: datetime) -> History:
        assert item.id is not None
        version, history = self._histories.get(item.id, (None, None))
        if version is not None and version == item.version:
            return history
        async with self._parallel_reads:
            history = await self._tracker.read_history(item, name)
        if item.version is not None and self._tracker.is_settled(item, history, now):
            while len(self._histories) >= MAX_HISTORIES:
                del self._histories[next(iter(self._histories))]
            self._histories[item.id] = (item.version, history)
        return history


class Issue(msgspec.Struct, frozen=True, kw_only=True):
    """What matters of an issue. `number` is what people call it within its project."""

    id: str
    number: int | None
    state: str
    created_at: datetime | None
    updated_at: datetime | None
    closed_at: datetime | None
    data: dict[str, Any]

    @property
    def version(self) -> datetime | None:
        return self.updated_at


class IssueFilter(msgspec.Struct, frozen=True, kw_only=True):
    """What an issue has to be. An empty field matches everything. People and the milestone are in lower case."""

    state: str
    labels: frozenset[str] = frozenset()
    assignee: str = ""
    authors: frozenset[str] = frozenset()
    milestone: str = ""
    identity: Identity = "once"


S = TypeVar("S", bound=Issue)
F = TypeVar("F", bound=IssueFilter)


class IssueTracker(Generic[S, F]):
    """A `Tracker` for APIs that list issues as GitHub and GitLab do, made of functions of the service.

    `page_of(cursor)` returns the URL and the parameters of a page. `parse(item, name)` reads one item of it,
    `matches(issue, filter)` compares what the service did not filter by. The others are as in `Tracker`.
    """

    def __init__(
        self,
        api: JsonApi,
        filter: F,
        *,
        page_of: Callable[[ListCursor], tuple[str, Params]],
        parse: Callable[[Any, str], S],
        matches: Callable[[S, F], bool],
        needs_history: Callable[[S, F], bool],
        read_history: Callable[[S, F, str], Awaitable[History]],
        matched_at: Callable[[S, History, F], datetime | None],
        event_of: Callable[[S, datetime | None, F, str], Event],
    ) -> None:
        self._api = api
        self._filter = filter
        self._page_of = page_of
        self._parse = parse
        self._matches = matches
        self._needs_history = needs_history
        self._read_history = read_history
        self._matched_at = matched_at
        self._event_of = event_of

    async def read_page(self, cursor: ListCursor) -> Page[S]:
        reply = await self._request(cursor)
        now = server_time(reply, self._api.host.clock.now())
        if reply.not_modified:
            return Page(now=now, unchanged=True)
        items = self._api.expect_list(reply, f"the issues of {cursor.name}")
        issues = [self._parse(item, cursor.name) for item in items]
        return Page(
            now=now,
            items=[issue for issue in issues if self._matches(issue, self._filter)],
            times=[issue.updated_at for issue in issues],
            link=self._api.next_page(reply),
            etag=reply.headers.get("ETag", ""),
        )

    async def _request(self, cursor: ListCursor) -> Reply:
        if cursor.link:
            return await self._api.get(cursor.link)
        url, params = self._page_of(cursor)
        conditional = Validators(etag=cursor.etag) if cursor.etag else None
        reply = await self._api.get(url, params, conditional=conditional)
        expect_answer(reply, conditional, self._api.name)
        return reply

    def needs_history(self, issue: S) -> bool:
        return self._needs_history(issue, self._filter)

    async def read_history(self, issue: S, name: str) -> History:
        return await self._read_history(issue, self._filter, name)

    def is_settled(self, issue: S, history: History, now: datetime) -> bool:
        return issue.updated_at is not None and issue.updated_at <= now - SETTLED

    def event_of(self, issue: S, history: History, name: str) -> Event:
        return self._event_of(issue, self._matched_at(issue, history, self._filter), self._filter, name)


def matched_since(
    issue: Issue, history: History, wanted: F, makes_it_match: Callable[[Any, F], bool]
) -> datetime | None:
    """Return since when the issue matches without a break; its last change if the history is too long to tell."""
    if wanted.identity == "change" or history is None:
        return issue.updated_at or issue.created_at
    times = [issue.created_at] if issue.created_at else []
    if issue.closed_at and issue.state == "closed" and (wanted.state == "closed" or wanted.identity == "transition"):
        times.append(issue.closed_at)
    matched = (instant(event.get("created_at")) for event in history if makes_it_match(event, wanted))
    return max([*times, *(at for at in matched if at)], default=issue.updated_at)


def issue_event(
    issue: Issue, at: datetime | None, wanted: IssueFilter, project: str, *, type: str, precision: Precision = "auto"
) -> Event:
    """Return the event. Its subject begins with what people call the issue, and is never given to another issue."""
    name = project if issue.number is None else f"{project}#{issue.number}"
    matched = rfc3339(at, precision)
    return Event(
        subject=f"{name}@{issue.id}",
        type=type,
        data=issue.data | {"matched_at": matched if wanted.identity != "change" else None},
        state=_state(issue, matched, rfc3339(issue.updated_at, precision), wanted),
        occurred_at=at,
    )


def _state(issue: Issue, matched: str | None, updated: str | None, wanted: IssueFilter) -> str:
    if wanted.identity == "change":
        return updated or issue.state
    if wanted.identity == "transition" and wanted.state != "all":
        # issues in the other state are not listed: it may have been there and come back since the last read
        return f"{issue.state} {matched or ''}".strip()
    return issue.state
