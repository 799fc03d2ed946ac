"""GitLab: issues that match a query, from the moment they do. On gitlab.com and on servers of one's own.

https://docs.gitlab.com/api/issues/#list-project-issues
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from harken.errors import RetryLater
from harken.event import Event
from harken.http import Reply, Validators
from harken.services.gitlab.actions import ACTIONS
from harken.services.gitlab.api import Account, Api, following_page, listed
from harken.services.gitlab.check import check, whoami
from harken.services.gitlab.history import Gone, Histories
from harken.services.gitlab.issue import Issue, event_of, fits, issue_of, matched_at, needed, wanted_by
from harken.services.gitlab.query import Query
from harken.services.updates import Page, Place, following, resume, server_time, unchanged
from harken.source import Batch, Cursor, Delivery, Host, Plugin

__all__ = ["Account", "Issues", "Query", "plugin"]

AT_ONCE = 5


class Issues:
    """Reads one page a call, one project after the other, and shows since when each issue matches: see `issue`."""

    def __init__(self, query: Query, account: Account, host: Host) -> None:
        self._api = Api(account, host)
        self._clock = host.clock
        self._projects = query.projects
        self._filters = query.filters()
        self._of = query.fingerprint()
        self._wanted = wanted_by(query, host.identity)
        self._histories = Histories(self._api)
        self._busy = asyncio.Semaphore(AT_ONCE)

    async def poll(self, cursor: Cursor, since: datetime) -> Batch:
        place = resume(cursor, self._of, since, self._projects)
        reply = await self._ask(place)
        now = server_time(reply, self._clock.now())
        if reply.not_modified:
            return self._batch(unchanged(place, now, self._projects), unchanged=True)
        issues = [issue_of(item, place.name) for item in listed(reply, f"the issues of {place.name}")]
        events = await self._events(issues, place, now)
        page = Page(
            times=[issue.updated_at for issue in issues],
            link=following_page(reply),
            etag=reply.headers.get("ETag", ""),
            now=now,
        )
        return self._batch(following(place, page, self._projects), events)

    async def _ask(self, place: Place) -> Reply:
        if place.link:
            return await self._api.ask(place.link)
        conditional = Validators(etag=place.etag) if place.etag else None
        params = [*self._filters, *_in_order(place)]
        reply = await self._api.ask(self._api.project(place.name, "issues"), params, conditional)
        if reply.not_modified and conditional is None:
            raise RetryLater(f"{self._api.name} answered 304 to a request for everything")
        return reply

    def _batch(self, to: Place, events: Sequence[Event] = (), *, unchanged: bool = False) -> Batch:
        return Batch(events=events, cursor=msgspec.to_builtins(to), more=bool(to.name), unchanged=unchanged)

    async def _events(self, issues: Sequence[Issue], place: Place, now: datetime) -> list[Event]:
        wanted = [issue for issue in issues if fits(issue, self._wanted)]
        try:
            async with asyncio.TaskGroup() as group:
                each = [group.create_task(self._event(issue, place.name, now)) for issue in wanted]
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        shown = [event for one in each if (event := one.result()) is not None]
        # what came to match earlier was shown by an earlier read, or lies before it all; it was only changed since
        fresh = [one for one in shown if one.occurred_at is None or not place.begin or one.occurred_at >= place.begin]
        return sorted(fresh, key=lambda event: event.occurred_at or now)

    async def _event(self, issue: Issue, project: str, now: datetime) -> Event | None:
        history: Sequence[object] | None = ()
        if kinds := needed(issue, self._wanted):
            try:
                async with self._busy:
                    history = await self._histories.of(issue, project, kinds, now)
            except Gone:
                return None
        return event_of(issue, matched_at(issue, history, self._wanted), self._wanted, project)


def _in_order(place: Place) -> list[tuple[str, str | int]]:
    assert place.start is not None
    # a little earlier: what is shown has thousandths of a second, and what is compared may have more
    since = (place.start - timedelta(milliseconds=1)).astimezone(UTC).isoformat(timespec="milliseconds")
    after = since.replace("+00:00", "Z")
    return [("order_by", "updated_at"), ("sort", "asc"), ("updated_after", after), ("per_page", 100)]


plugin = Plugin(
    kind="gitlab",
    summary="GitLab issues: new, labelled, assigned or closed",
    docs="reference/services/gitlab.md",
    account=Account,
    query=Query,
    source=Issues,
    actions=ACTIONS,
    whoami=whoami,
    check=check,
    lookback_seconds=600.0,
    delivery=lambda query, integration: Delivery(template="[{project}#{iid}] {title} ({state})\n{web_url}"),
    environment={"GITLAB_TOKEN": "token"},
)
