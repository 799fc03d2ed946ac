"""GitLab: issues that match a query, from the moment they do. On gitlab.com and on servers of one's own.

https://docs.gitlab.com/api/issues/#list-project-issues
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial

from harken.event import Event
from harken.kit.changed_lists import Place, batch_at, following, fresh, resume, server_time, unchanged
from harken.kit.tracker import Gone, Histories, History, ask, gather, history_of, page_of
from harken.services.gitlab.actions import ACTIONS
from harken.services.gitlab.api import Account, Api
from harken.services.gitlab.check import check, whoami
from harken.services.gitlab.event import Issue, event_of, fits, issue_of, matched_at, needed, read_history, wanted_by
from harken.services.gitlab.query import Query
from harken.source import Batch, Cursor, Delivery, Host, Plugin

__all__ = ["Account", "Issues", "Query", "plugin"]


class Issues:
    """Reads one page a call, one project after the other, and shows since when each issue matches: see `issue`."""

    def __init__(self, query: Query, account: Account, host: Host) -> None:
        self._api = Api(account, host)
        self._clock = host.clock
        self._projects = query.projects
        self._filters = query.filters()
        self._of = query.fingerprint()
        self._wanted = wanted_by(query, host.identity)
        self._histories = Histories()

    async def poll(self, cursor: Cursor, since: datetime) -> Batch:
        place = resume(cursor, self._of, since, self._projects)
        params = [*self._filters, *_in_order(place)]
        reply = await ask(self._api, place, self._api.project(place.name, "issues"), params)
        now = server_time(reply, self._clock.now())
        if reply.not_modified:
            return batch_at(unchanged(place, now, self._projects), unchanged=True)
        issues = [issue_of(item, place.name) for item in self._api.listed(reply, f"the issues of {place.name}")]
        wanted = [issue for issue in issues if fits(issue, self._wanted)]
        events = await gather(self._event(issue, place.name, now) for issue in wanted)
        page = page_of(self._api, reply, issues, now)
        return batch_at(following(place, page, self._projects), fresh(events, place, now))

    async def _event(self, issue: Issue, project: str, now: datetime) -> Event | None:
        history: History = ()
        if kinds := needed(issue, self._wanted):
            try:
                reading = partial(read_history, self._api, issue, project, kinds)
                history = await history_of(issue, self._histories, now, reading)
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
