"""Issues that are listed by their last change, whoever keeps them: since when each matches, and the event of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from harken.event import Event, Identity
from harken.http import Reply, Validators
from harken.kit.changed_lists import SETTLED, Page, Place
from harken.kit.conditional import expect_answer
from harken.kit.fields import Precision, instant, stamp
from harken.kit.histories import Histories, History
from harken.kit.rest_api import RestApi

__all__ = ["Issue", "Wanted", "ask", "history_of", "occurrence", "page_of", "since_when"]


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
    matched = stamp(at, precision)
    return Event(
        subject=f"{name}@{issue.id}",
        type=type,
        data=issue.data | {"matched_at": matched if wanted.identity != "change" else None},
        state=_state(issue, matched, stamp(issue.updated_at, precision), wanted),
        occurred_at=at,
    )


def _state(issue: Issue, matched: str | None, updated: str | None, wanted: Wanted) -> str:
    if wanted.identity == "change":
        return updated or issue.state
    if wanted.identity == "transition" and wanted.state != "all":
        # the other state is not listed: it may have been there since the last read, and be back
        return f"{issue.state} {matched or ''}".strip()
    return issue.state
