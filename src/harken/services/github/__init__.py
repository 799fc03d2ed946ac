"""GitHub: issues and pull requests that match a query, from the moment they do.

https://docs.github.com/en/rest/issues/issues#list-repository-issues
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial

from harken.event import Event
from harken.kit.changed_lists import Place, batch_at, following, fresh, resume, server_time, unchanged
from harken.kit.tracker import Gone, Histories, History, ask, gather, history_of, page_of
from harken.services.github.actions import ACTIONS
from harken.services.github.api import Account, Api
from harken.services.github.check import check, whoami
from harken.services.github.event import (
    Issue,
    event_of,
    fits,
    issue_of,
    matched_at,
    needs_history,
    read_history,
    wanted_by,
)
from harken.services.github.query import Query
from harken.source import Batch, Cursor, Delivery, Host, Plugin

__all__ = ["Account", "Issues", "Query", "plugin"]


class Issues:
    """Reads one page a call, one repository after the other, and shows since when each issue matches: see `issue`."""

    def __init__(self, query: Query, account: Account, host: Host) -> None:
        self._api = Api(account, host)
        self._clock = host.clock
        self._repos = query.repos
        self._filters = query.filters()
        self._of = query.fingerprint()
        self._wanted = wanted_by(query, host.identity)
        self._histories = Histories()

    async def poll(self, cursor: Cursor, since: datetime) -> Batch:
        place = resume(cursor, self._of, since, self._repos)
        params = [*self._filters, *_in_order(place)]
        reply = await ask(self._api, place, self._api.repo(place.name, "issues"), params)
        now = server_time(reply, self._clock.now())
        if reply.not_modified:
            return batch_at(unchanged(place, now, self._repos), unchanged=True)
        issues = [issue_of(item, place.name) for item in self._api.listed(reply, f"the issues of {place.name}")]
        wanted = [issue for issue in issues if fits(issue, self._wanted)]
        events = await gather(self._event(issue, place.name, now) for issue in wanted)
        page = page_of(self._api, reply, issues, now)
        return batch_at(following(place, page, self._repos), fresh(events, place, now))

    async def _event(self, issue: Issue, repo: str, now: datetime) -> Event | None:
        history: History = ()
        if needs_history(issue, self._wanted):
            try:
                history = await history_of(issue, self._histories, now, partial(read_history, self._api, issue, repo))
            except Gone:
                return None
        return event_of(issue, matched_at(issue, history, self._wanted), self._wanted, repo)


def _in_order(place: Place) -> list[tuple[str, str | int]]:
    assert place.start is not None
    # a second earlier, whichever side of the border GitHub counts in
    since = (place.start - timedelta(seconds=1)).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return [("sort", "updated"), ("direction", "asc"), ("since", since), ("per_page", 100)]


plugin = Plugin(
    kind="github",
    summary="GitHub issues and pull requests: new, labelled, assigned or closed",
    docs="reference/services/github.md",
    account=Account,
    query=Query,
    source=Issues,
    actions=ACTIONS,
    whoami=whoami,
    check=check,
    lookback_seconds=600.0,
    delivery=lambda query, integration: Delivery(template="[{repo}#{number}] {title} ({state})\n{html_url}"),
    environment={"GITHUB_TOKEN": "token"},
)
