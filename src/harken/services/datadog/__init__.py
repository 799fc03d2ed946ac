"""Datadog: a monitor, or one of its groups, changes to a status in the query.

The API returns states, not changes (https://docs.datadoghq.com/api/latest/monitors/get-all-monitors/). Two periods in
the same status are told apart by Datadog's dates, which move when the status is entered and not with reminders
(https://docs.datadoghq.com/monitors/notify/variables/#triggered-variables), or else by the status at the last read.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from harken.errors import NeedsAttention
from harken.event import Event
from harken.kit import dump_cursor, load_cursor
from harken.kit.digest import digest_of
from harken.services.datadog.actions import Mute, Unmute, mute, unmute
from harken.services.datadog.api import Account, Api, Page
from harken.services.datadog.check import check, whoami
from harken.services.datadog.cursor import KnownStatus, Occurrence, Place, memory_key, occurrence, pack, unpack
from harken.services.datadog.event import GroupStatus, event_data, group_statuses, has_any_tag, number_of, rfc3339_of
from harken.services.datadog.query import Query
from harken.source import Act, Batch, Cursor, Delivery, Host, Plugin

__all__ = ["Account", "MonitorStates", "Query", "plugin"]

MOST_SINGLE = 20
"""Up to so many monitors are requested one by one; for more, the listing needs fewer requests."""

_FAR_FUTURE = datetime.max.replace(tzinfo=UTC)


class MonitorStates:
    """Every read returns all groups with a status of the query. The event's state names the period in that status."""

    def __init__(self, query: Query, account: Account, host: Host) -> None:
        self._query = query
        self._account = account
        self._api = Api(account, host)
        self._of = query.fingerprint()
        self._one_by_one = 0 < len(query.monitor_ids) <= MOST_SINGLE

    async def poll(self, cursor: Cursor, since: datetime) -> Batch:
        place = self._resume(cursor)
        page = await (self._single(place) if self._one_by_one else self._api.page(place.after, place.page))
        known, fresh = unpack(place.known), unpack(place.fresh)
        events = [event for one in page.monitors for event in self._events(one, page.at, place, known, fresh)]
        events.sort(key=lambda event: event.occurred_at or _FAR_FUTURE)
        if page.last:
            following = Place(of=self._of, known=pack(fresh), whole=True)
        else:
            gone = place.gone + (not page.monitors)
            following = msgspec.structs.replace(place, fresh=pack(fresh), after=page.after, page=page.page, gone=gone)
        # with numbered pages, a deletion can move a monitor past this read; the next one finds it
        whole = not (place.page or page.page)
        return Batch(events=events, cursor=dump_cursor(following), more=not page.last, complete=whole)

    def _resume(self, cursor: Cursor) -> Place:
        place = load_cursor(cursor, Place)
        if place is None:
            return Place(of=self._of)
        if place.of == self._of:
            return place
        # another query: what is known of the monitors that both select is still true
        return Place(of=self._of, known=pack({**unpack(place.known), **unpack(place.fresh)}))

    async def _single(self, place: Place) -> Page:
        ids, at = self._query.monitor_ids, min(place.after, len(self._query.monitor_ids) - 1)
        found = await self._api.monitor(ids[at])
        last = at + 1 == len(ids)
        if found is None and last and place.gone + 1 == len(ids):
            many = "none of these monitors exists" if len(ids) > 1 else f"there is no monitor {ids[0]}"
            raise NeedsAttention(f"{self._api.name} says: {many}", fix="Correct monitor_ids")
        monitors, answered_at = ([found[0]], found[1]) if found else ([], _FAR_FUTURE)
        return Page(monitors=monitors, at=answered_at, after=at + 1, last=last)

    def _events(
        self,
        monitor: Any,
        at: datetime,
        place: Place,
        known: Mapping[bytes, KnownStatus],
        fresh: dict[bytes, KnownStatus],
    ) -> list[Event]:
        query, number, events = self._query, number_of(monitor), []
        if query.monitor_ids and number not in query.monitor_ids:
            return []
        for current in group_statuses(monitor):
            if query.tags and not has_any_tag(monitor, current.group, query.tags):
                continue
            subject = _subject(monitor, current.group)
            name = memory_key(subject)
            before = fresh.get(name) or known.get(name)
            now = occurrence(current, before, first=not place.whole, at=int(at.timestamp()))
            fresh[name] = KnownStatus(current.status, now.stamp)
            # without a date, the status at the first read is the baseline; a monitor without an id cannot be tracked,
            # so it is reported every time
            if (current.status in query.statuses and now.stamp) or number is None:
                data = event_data(monitor, current, previous=now.previous, web=self._account.web, now=at)
                events.append(_event(subject, current, now, data))
        return events


def _subject(monitor: Any, group: str) -> str:
    number = number_of(monitor)
    name = str(number) if number is not None else f"unreadable-{digest_of(msgspec.json.encode(monitor))}"
    return f"{name}:{group}" if group else name


def _event(subject: str, current: GroupStatus, now: Occurrence, data: dict[str, Any]) -> Event:
    return Event(
        subject=subject,
        type="datadog.monitor",
        state=f"{current.status}@{rfc3339_of(now.stamp)}" if now.stamp else current.status,
        occurred_at=datetime.fromtimestamp(now.stamp, UTC) if now.dated else None,
        data=data,
    )


plugin = Plugin(
    kind="datadog",
    summary="Monitors of Datadog that change their status",
    docs="reference/services/datadog.md",
    account=Account,
    query=Query,
    source=MonitorStates,
    actions={"mute": Act(params=Mute, run=mute), "unmute": Act(params=Unmute, run=unmute)},
    whoami=whoami,
    check=check,
    identity="change",
    delivery=lambda query, integration: Delivery(template="[{status}] {name} {group}\n{url}"),
    environment={"DATADOG_API_KEY": "api_key", "DATADOG_APP_KEY": "app_key", "DATADOG_SITE": "site"},
)
