"""Issues that are listed by their last change, whoever keeps them: since when each matches, and the event of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from datetime import datetime
from typing import Any, TypeAlias, TypeVar

import msgspec

from harken.event import Event, Identity
from harken.http import Reply, Validators
from harken.kit.changed_lists import SETTLED, Page, Place
from harken.kit.conditional import expect_answer
from harken.kit.fields import Precision, instant, rfc3339
from harken.kit.json_api import RestApi

__all__ = [
    "Gone",
    "Histories",
    "History",
    "Issue",
    "Wanted",
    "ask",
    "gather",
    "history_of",
    "occurrence",
    "page_of",
    "since_when",
]


T = TypeVar("T")

History: TypeAlias = Sequence[Any] | None

"""What happened to one item; None when it is too much to read."""

AT_ONCE = 5

KEPT = 5000


class Gone(Exception):
    """The item was deleted after it was listed."""


class Histories:
    """Histories by the id of their item and the version that they belong to. A few are read at once."""

    def __init__(self) -> None:
        self._known: dict[str | int, tuple[object, History]] = {}
        self._busy = asyncio.Semaphore(AT_ONCE)

    async def of(
        self,
        id: str | int,
        version: object,
        read: Callable[[], Awaitable[History]],
        settled: Callable[[History], bool],
    ) -> History:
        """The history, read if it is not known; remembered only if it is settled, and the version is not None."""
        known = self._known.get(id)
        if known is not None and known[0] == version:
            return known[1]
        async with self._busy:
            history = await read()
        if version is not None and settled(history):
            self._keep(id, version, history)
        return history

    def _keep(self, id: str | int, version: object, history: History) -> None:
        while len(self._known) >= KEPT:
            del self._known[next(iter(self._known))]
        self._known[id] = (version, history)


async def gather(each: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """What each of them returns, in their order. The first error ends the others, and is raised as it is."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one) for one in each]
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


class Issue(msgspec.Struct, frozen=True, kw_only=True):
    """What matters of an issue. `number` is what people call it within its project."""

    id: str
    number: int | None
    state: str
    created_at: datetime | None
    updated_at: datetime | None
    closed_at: datetime | None
    data: dict[str, Any]


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What an issue has to be; what is empty is not asked for. Names of people and the milestone are in lower case."""

    state: str
    labels: frozenset[str] = frozenset()
    assignee: str = ""
    authors: frozenset[str] = frozenset()
    milestone: str = ""
    identity: Identity = "once"


W = TypeVar("W", bound=Wanted)


async def ask(api: RestApi, place: Place, url: str, params: Sequence[tuple[str, str | int]]) -> Reply:
    """The page where the read stands: behind its link, or else the list, unless that is as it was."""
    if place.link:
        return await api.ask(place.link)
    conditional = Validators(etag=place.etag) if place.etag else None
    reply = await api.ask(url, params, conditional)
    expect_answer(reply, conditional, api.name)
    return reply


def page_of(api: RestApi, reply: Reply, issues: Sequence[Issue], now: datetime) -> Page:
    return Page(
        times=[issue.updated_at for issue in issues],
        link=api.next_page(reply),
        etag=reply.headers.get("ETag", ""),
        now=now,
    )


async def history_of(
    issue: Issue, histories: Histories, now: datetime, read: Callable[[], Awaitable[History]]
) -> History:
    """What happened to it. A history that may still be behind the list is not remembered."""
    at = issue.updated_at
    return await histories.of(issue.id, at, read, lambda _: at is not None and at <= now - SETTLED)


def since_when(issue: Issue, history: History, wanted: W, made_it_fit: Callable[[Any, W], bool]) -> datetime | None:
    """Since when it matches without a break. Without a history that can be read: its last change."""
    if wanted.identity == "change" or history is None:
        return issue.updated_at or issue.created_at
    times = [issue.created_at] if issue.created_at else []
    if issue.closed_at and issue.state == "closed" and (wanted.state == "closed" or wanted.identity == "transition"):
        times.append(issue.closed_at)
    made = (instant(event.get("created_at")) for event in history if made_it_fit(event, wanted))
    return max([*times, *(at for at in made if at)], default=issue.updated_at)


def occurrence(
    issue: Issue, at: datetime | None, wanted: Wanted, project: str, *, type: str, precision: Precision = "auto"
) -> Event:
    """The event; its subject begins with what people call the issue, and is never given to another."""
    name = project if issue.number is None else f"{project}#{issue.number}"
    matched = rfc3339(at, precision)
    return Event(
        subject=f"{name}@{issue.id}",
        type=type,
        data=issue.data | {"matched_at": matched if wanted.identity != "change" else None},
        state=_state(issue, matched, rfc3339(issue.updated_at, precision), wanted),
        occurred_at=at,
    )


def _state(issue: Issue, matched: str | None, updated: str | None, wanted: Wanted) -> str:
    if wanted.identity == "change":
        return updated or issue.state
    if wanted.identity == "transition" and wanted.state != "all":
        # the other state is not listed: it may have been there since the last read, and be back
        return f"{issue.state} {matched or ''}".strip()
    return issue.state
