"""Datadog: a monitor, or a group of it, changes to a status that you want to hear of.

The API shows states, not changes (https://docs.datadoghq.com/api/latest/monitors/get-all-monitors/). One stay in a
status is told apart from the next by its dates, which move when the status is entered and not with reminders
(https://docs.datadoghq.com/monitors/notify/variables/#triggered-variables), or else by what the last read showed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, get_args

import msgspec
from pydantic import BaseModel, ConfigDict, Field, field_validator

from harken.errors import NeedsAttention
from harken.event import Event
from harken.kit.digest import digest_of
from harken.services.datadog.actions import Mute, Unmute, mute, unmute
from harken.services.datadog.api import Account, Api, Page
from harken.services.datadog.cursor import Occurrence, Seen, named, occurrence, pack, unpack
from harken.services.datadog.event import Standing, carries, described, name_of, number_of, standings, word, written
from harken.source import Act, Batch, Checked, Cursor, Delivery, Host, Plugin

__all__ = ["Account", "MonitorStates", "Query", "plugin"]

FEW = 20
"""So many monitors are asked for one by one; for more, the listing is the shorter way."""

Status = Literal["triggered", "warn", "no_data", "ok"]
_NEVER = datetime.max.replace(tzinfo=UTC)


class Query(BaseModel):
    """Which monitors, and which statuses of theirs."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    tags: tuple[str, ...] = Field((), description="any of these tags, on the monitor or on the group: team:platform")
    monitor_ids: tuple[int, ...] = Field((), description="any of these monitors: the number in a monitor's address")
    statuses: tuple[Status, ...] = Field(
        ("triggered", "warn", "no_data"), description="fire on a change to any of these; ok tells of recoveries"
    )

    @field_validator("tags", "monitor_ids", mode="before")
    @classmethod
    def _several(cls, value: Any) -> Any:
        return value if isinstance(value, list | tuple) else [value]

    @field_validator("statuses", mode="before")
    @classmethod
    def _in_our_words(cls, value: Any) -> Any:
        known = [word(one) if word(one) in get_args(Status) else one for one in cls._several(value)]
        if not known:
            raise ValueError("name at least one status: triggered, warn, no_data or ok")
        return known

    @field_validator("tags")
    @classmethod
    def _tags(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        tags = tuple(tag.strip() for tag in value)
        if any(not tag or "," in tag or not tag.isprintable() for tag in tags):
            raise ValueError("a tag is a word such as team:platform; write several as a list")
        return tags

    @field_validator("monitor_ids")
    @classmethod
    def _numbers(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if any(number <= 0 for number in value):
            raise ValueError("the id of a monitor is the number in its address")
        return tuple(dict.fromkeys(value))

    def fingerprint(self) -> str:
        """Changes with the monitors that are looked at; which statuses are wanted is another matter."""
        return digest_of(msgspec.json.encode([sorted(self.tags), sorted(self.monitor_ids)]))


class Place(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a read stands, as a cursor. `known` is the memory of the last whole read, `fresh` that of this one so far.

    `whole`: there was one, of this query. `after` and `page` are the place in the listing, or in the list of ids.
    """

    of: str
    known: str = ""
    fresh: str = ""
    whole: bool = False
    after: int = 0
    page: int = 0
    gone: int = 0


class MonitorStates:
    """Shows every group that has a wanted status, each read anew. Its state names the stay in that status."""

    def __init__(self, query: Query, account: Account, host: Host) -> None:
        self._query = query
        self._account = account
        self._api = Api(account, host)
        self._of = query.fingerprint()
        self._one_by_one = 0 < len(query.monitor_ids) <= FEW

    async def poll(self, cursor: Cursor, since: datetime) -> Batch:
        place = self._resume(cursor)
        page = await (self._single(place) if self._one_by_one else self._api.page(place.after, place.page))
        known, fresh = unpack(place.known), unpack(place.fresh)
        events = [event for one in page.monitors for event in self._events(one, page.at, place, known, fresh)]
        events.sort(key=lambda event: event.occurred_at or _NEVER)
        if page.last:
            turned = Place(of=self._of, known=pack(fresh), whole=True)
        else:
            gone = place.gone + (not page.monitors)
            turned = msgspec.structs.replace(place, fresh=pack(fresh), after=page.after, page=page.page, gone=gone)
        # what a deletion moves over the border of a numbered page shows itself in the next read
        whole = not (place.page or page.page)
        return Batch(events=events, cursor=msgspec.to_builtins(turned), more=not page.last, complete=whole)

    def _resume(self, cursor: Cursor) -> Place:
        try:
            place = msgspec.convert(cursor, Place)
        except msgspec.ValidationError:
            return Place(of=self._of)
        if place.of == self._of:
            return place
        # other monitors are looked at now; what is known of those that stay is still true
        return Place(of=self._of, known=pack({**unpack(place.known), **unpack(place.fresh)}))

    async def _single(self, place: Place) -> Page:
        ids, at = self._query.monitor_ids, min(place.after, len(self._query.monitor_ids) - 1)
        found = await self._api.monitor(ids[at])
        last = at + 1 == len(ids)
        if found is None and last and place.gone + 1 == len(ids):
            many = "none of these monitors exists" if len(ids) > 1 else f"there is no monitor {ids[0]}"
            raise NeedsAttention(f"{self._api.name} says: {many}", fix="Correct monitor_ids")
        monitors, told_at = ([found[0]], found[1]) if found else ([], _NEVER)
        return Page(monitors=monitors, at=told_at, after=at + 1, last=last)

    def _events(
        self, monitor: Any, at: datetime, place: Place, known: Mapping[bytes, Seen], fresh: dict[bytes, Seen]
    ) -> list[Event]:
        query, number, events = self._query, number_of(monitor), []
        if query.monitor_ids and number not in query.monitor_ids:
            return []
        for standing in standings(monitor):
            if query.tags and not carries(monitor, standing.group, query.tags):
                continue
            subject = _subject(monitor, standing.group)
            name = named(subject)
            before = fresh.get(name) or known.get(name)
            now = occurrence(standing, before, first=not place.whole, at=int(at.timestamp()))
            fresh[name] = Seen(standing.status, now.stamp)
            # a status without a date that was there at the first look is the baseline; something without an id cannot
            # be followed, and is nothing to be silent about either
            if (standing.status in query.statuses and now.stamp) or number is None:
                data = described(monitor, standing, previous=now.previous, web=self._account.web, now=at)
                events.append(_event(subject, standing, now, data))
        return events


def _subject(monitor: Any, group: str) -> str:
    number = number_of(monitor)
    whose = str(number) if number is not None else f"unreadable-{digest_of(msgspec.json.encode(monitor))}"
    return f"{whose}:{group}" if group else whose


def _event(subject: str, standing: Standing, now: Occurrence, data: dict[str, Any]) -> Event:
    return Event(
        subject=subject,
        type="datadog.monitor",
        state=f"{standing.status}@{written(now.stamp)}" if now.stamp else standing.status,
        occurred_at=datetime.fromtimestamp(now.stamp, UTC) if now.dated else None,
        data=data,
    )


async def _whoami(account: Account, host: Host) -> Mapping[str, Any]:
    """Whose application key it is. The user needs no permission for that."""
    api = Api(account, host)
    answer = api.told(await api.ask("GET", "/api/v2/current_user"))
    user = answer.get("data") or {}
    told = user.get("attributes") or {}
    included: Sequence[Any] = answer.get("included") or ()
    names = {
        kind: [str((one.get("attributes") or {}).get("name")) for one in included if one.get("type") == kind]
        for kind in ("orgs", "roles")
    }
    return {
        "id": user.get("id"),
        "name": told.get("name"),
        "email": told.get("email"),
        "handle": told.get("handle"),
        "organization": ", ".join(names["orgs"]),
        "roles": ", ".join(names["roles"]),
        "site": account.site,
    }


async def _check(query: Query, account: Account, host: Host) -> Checked:
    api = Api(account, host)
    found: dict[str, str] = {}
    unknown: list[str] = []
    for number in query.monitor_ids:
        told = await api.monitor(number)
        if told is None:
            unknown.append(
                f"there is no monitor {number}, or the keys may not see it. Look at the number in its address"
            )
        else:
            found[str(number)] = f"{name_of(told[0])} (now {word(told[0].get('overall_state'))})"
    counts = dict.fromkeys(query.tags, 0)
    if counts:
        async for monitor in api.monitors():
            for tag in query.tags:
                counts[tag] += any(carries(monitor, standing.group, [tag]) for standing in standings(monitor))
    for tag, count in counts.items():
        if count:
            found[tag] = "1 monitor" if count == 1 else f"{count} monitors"
        else:
            unknown.append(f"no monitor and no group has the tag {tag} now. Check how it is written in Datadog")
    return Checked(found=found, unknown=unknown)


plugin = Plugin(
    kind="datadog",
    summary="Monitors of Datadog that change their status",
    docs="reference/services/datadog.md",
    account=Account,
    query=Query,
    source=MonitorStates,
    actions={"mute": Act(params=Mute, run=mute), "unmute": Act(params=Unmute, run=unmute)},
    whoami=_whoami,
    check=_check,
    identity="change",
    delivery=lambda query, integration: Delivery(template="[{status}] {name} {group}\n{url}"),
    environment={"DATADOG_API_KEY": "api_key", "DATADOG_APP_KEY": "app_key", "DATADOG_SITE": "site"},
)
