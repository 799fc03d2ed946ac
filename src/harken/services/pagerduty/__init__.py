"""PagerDuty: incidents that match a query, or that are assigned to a user.

The API's `since` filters by creation, so it would never return an old incident that is reassigned today; therefore
every read lists all open incidents. https://developer.pagerduty.com/api-reference/9d0b4b12e36f9-list-incidents
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from harken.errors import RetryLater
from harken.event import Event
from harken.kit import dump_cursor
from harken.kit.values_from_payload import describe
from harken.kit.webhook_receiver import ReceiverQuery
from harken.services.pagerduty.actions import ACTIONS
from harken.services.pagerduty.api import Account, Api
from harken.services.pagerduty.check import check, whoami
from harken.services.pagerduty.cursor import LIMIT, Part, Place, next_place, page_params, remember_acknowledged, resume
from harken.services.pagerduty.event import Criteria, Incident, event_of, incident_of
from harken.services.pagerduty.query import Query
from harken.services.pagerduty.receiver import receiver, sample
from harken.source import Batch, Cursor, Delivery, Host, Plugin

__all__ = ["Account", "Incidents", "Query", "check", "plugin", "whoami"]

OPEN = ("triggered", "acknowledged")


class Incidents:
    """Reads one page per call. The feed's identity decides when an incident counts as a new occurrence."""

    def __init__(self, query: Query, account: Account, host: Host) -> None:
        self._api = Api(account, host)
        self._clock = host.clock
        self._filters = query.filters()
        self._of = query.fingerprint()
        self._open = [status for status in OPEN if status in query.statuses]
        self._parts: list[Part] = ["open"] if self._open else []
        self._parts += ["resolved"] if "resolved" in query.statuses else []
        self._criteria = Criteria(
            user_id=query.user_id or "", hidden=len(self._open) < len(OPEN), identity=host.identity
        )
        self._unwanted = set(OPEN) - set(self._open)
        # to notice that an incident is triggered again, acknowledged ones must be read too
        self._watches = host.identity == "transition" and self._open == ["triggered"]
        self._statuses = OPEN if self._watches else self._open

    async def poll(self, cursor: Cursor, since: datetime) -> Batch:
        place, now = resume(cursor, self._of, since, self._parts[0]), self._clock.now()
        document = await self._api.read("incidents", params=[*self._filters, *page_params(place, self._statuses, now)])
        page, more = self._page(document)
        to = next_place(place, page, more, now, self._parts)
        to = remember_acknowledged(place, to, page) if self._watches else to
        return Batch(
            events=self._events(place, page, {**to.acked, **to.shown}),
            cursor=dump_cursor(to),
            more=to.reading,
            complete=not to.partial,
        )

    def _page(self, document: Mapping[str, Any]) -> tuple[list[Incident], bool]:
        items, more = document.get("incidents"), document.get("more")
        if not isinstance(items, list):
            seen = describe(document, "incidents")
            raise RetryLater(f"{self._api.name} sent no list of incidents; {seen}", fix="Check base_url")
        return [incident_of(item) for item in items], more if isinstance(more, bool) else len(items) >= LIMIT

    def _events(self, place: Place, page: Sequence[Incident], acked: Mapping[str, str]) -> list[Event]:
        fresh = [one for one in page if one.status not in self._unwanted and not self._is_covered(place, one)]
        found = [event_of(one, self._criteria, acked.get(one.id, "")) for one in fresh]
        now = self._clock.now()
        return sorted(filter(None, found), key=lambda event: event.occurred_at or now)

    def _is_covered(self, place: Place, incident: Incident) -> bool:
        # reopening newer incidents brings older ones onto the page: they were read before, and the engine's memory of
        # them may be gone
        at = incident.resolved_at if place.part == "resolved" else None
        return at is not None and place.since is not None and at < place.since


plugin = Plugin(
    kind="pagerduty",
    summary="PagerDuty incidents: on services and teams, or assigned to someone",
    docs="reference/services/pagerduty.md",
    account=Account,
    webhook_query=ReceiverQuery,
    webhook=receiver,
    webhook_sample=sample,
    query=Query,
    source=Incidents,
    actions=ACTIONS,
    whoami=whoami,
    check=check,
    delivery=lambda query, integration: Delivery(template="[{urgency}] {title} ({status})\n{html_url}"),
    environment={"PAGERDUTY_TOKEN": "token"},
)
