"""A source for issue trackers whose lists can be read in the order of the last change: GitHub, GitLab, Azure DevOps.

A list says when an item changed, but a comment is a change too. Since when an item matches the query is told by its
history, so `TrackerSource` reads the history of the items that need it. A service implements `Tracker`; where its items
have the usual fields of issues, `Issue`, `IssueFilter`, `matched_since` and `issue_event` do most of that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import msgspec

from harken.event import Event, Identity
from harken.http import Validators
from harken.kit.changed_lists import (
    SETTLED,
    ListCursor,
    Page,
    advance,
    batch_at,
    events_in_read,
    resume,
    skip,
)
from harken.kit.conditional import expect_answer
from harken.kit.fields import Precision, instant, rfc3339
from harken.kit.gather import gather
from harken.kit.json_api import JsonApi, Params, server_time
from harken.source import Batch, Cursor

__all__ = [
    "Gone",
    "History",
    "Issue",
    "IssueFilter",
    "Tracker",
    "TrackerSource",
    "is_settled",
    "issue_event",
    "matched_since",
    "read_issues",
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


async def read_issues(
    api: JsonApi, cursor: ListCursor, url: str, params: Params, parse: Callable[[Any], S], matches: Callable[[S], bool]
) -> Page[S]:
    """Read one page of a list of issues, conditionally where the cursor has an ETag."""
    conditional = Validators(etag=cursor.etag) if cursor.etag and not cursor.link else None
    reply = await (api.get(cursor.link) if cursor.link else api.get(url, params, conditional=conditional))
    if not cursor.link:
        expect_answer(reply, conditional, api.name)
    now = server_time(reply, api.host.clock.now())
    if reply.not_modified:
        return Page(now=now, unchanged=True)
    issues = [parse(item) for item in api.expect_list(reply, f"the issues of {cursor.name}")]
    return Page(
        now=now,
        items=[issue for issue in issues if matches(issue)],
        times=[issue.updated_at for issue in issues],
        link=api.next_page(reply),
        etag=reply.headers.get("ETag", ""),
    )


def is_settled(issue: Issue, now: datetime) -> bool:
    """Whether the last change is old enough for the history to include it."""
    return issue.updated_at is not None and issue.updated_at <= now - SETTLED


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
