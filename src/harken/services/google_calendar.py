"""Google Calendar: what was added, changed or cancelled in one calendar, by its sync tokens.

A sync token marks how far the calendar was read. Google gives it with the last page only, so an interrupted read
continues at its page; if Google refuses the page token, the read starts again from the previous sync token.
https://developers.google.com/workspace/calendar/api/guides/sync
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from urllib.parse import quote

import msgspec
import structlog
from pydantic import Field

from harken.errors import CursorExpired, RetryLater
from harken.event import Event
from harken.http import Reply
from harken.kit import QueryModel, dump_cursor, load_cursor
from harken.kit.values_from_payload import describe, instant, text_of
from harken.services.google import GoogleAccount, GoogleClient
from harken.services.google.api import CALENDAR, expect_object
from harken.source import Batch, Checked, Cursor, Delivery, Host, Plugin

__all__ = ["Changes", "Query", "check", "plugin"]

log = structlog.get_logger("harken.services")

PAGE = 1000
TEMPLATE = "📅 {summary} — {start}\n{html_link}"
_ITEM = (
    "id,status,etag,htmlLink,created,updated,summary,description,location,organizer(email,displayName),start,end,"
    "recurringEventId,originalStartTime,attendees(self,responseStatus)"
)
_FIELDS = f"nextPageToken,nextSyncToken,updated,items({_ITEM})"
_LONG_AGO = datetime.min.replace(tzinfo=UTC)
FIELDS = frozenset(
    {
        "id",
        "summary",
        "description",
        "location",
        "status",
        "start",
        "end",
        "all_day",
        "time_zone",
        "html_link",
        "organizer",
        "attendees",
        "my_response",
        "created",
        "updated",
        "calendar_id",
        "recurring_event_id",
        "original_start",
    }
)


class Query(QueryModel):
    """Which calendar, and how to treat cancelled events and an expired sync token."""

    calendar_id: str = Field("primary", min_length=1, description="id of the calendar; primary is the user's own")
    skip_cancelled: bool = Field(True, description="leave out events that were cancelled or deleted")
    on_expired: Literal["pause", "rebaseline"] = Field(
        "pause", description="when the sync token has expired: pause until a reset, or begin anew with a warning"
    )


class Place(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`sync` is the sync token of the last complete read, `page` the page token at which this read continues.

    `upto` is the calendar's last change when the last complete read began, `began` that of this read, both by Google's
    clock. `anew`: this read replaces an expired sync token. `again`: a page token was refused, so it started again.
    """

    of: str
    sync: str = ""
    page: str = ""
    upto: str = ""
    began: str = ""
    anew: bool = False
    again: bool = False


class Changes:
    """Reads one page per call. The first read returns only changes after `since`, and gets the first sync token."""

    def __init__(self, query: Query, account: GoogleAccount, host: Host) -> None:
        self._query = query
        self._google = GoogleClient.of(account, host)
        self._url = f"{account.calendar_url}/calendars/{quote(query.calendar_id, safe='')}/events"
        self._creations = host.identity == "once"

    async def poll(self, cursor: Cursor, since: datetime) -> Batch:
        place = load_cursor(cursor, Place, of=self._query.calendar_id) or Place(of=self._query.calendar_id)
        reply = await self._google.request("GET", self._url, params=_page_params(place), scope=CALENDAR)
        if reply.status in (400, 410) and place.page and not place.again:
            # page tokens expire soon; the engine drops what this read returned before
            return _batch(msgspec.structs.replace(place, page="", again=True), more=True)
        if reply.status == 410 and place.sync:
            return _batch(self._expired(place, reply), more=True, complete=False)
        document = expect_object(reply, _fix(reply.status, self._query.calendar_id))
        to = _following(place, document, reply)
        events = self._events(document, _horizon(place, since))
        return _batch(to, events=events, more=bool(to.page), complete=not place.anew)

    def _expired(self, place: Place, reply: Reply) -> Place:
        calendar = self._query.calendar_id
        if self._query.on_expired == "pause":
            message = f"{reply.url.host} no longer knows how far the calendar {calendar} was read"
            fix = "Begin anew at now, or set on_expired: rebaseline"
            raise CursorExpired(message, fix=fix)
        lost = "cancellations that Google no longer lists"
        log.warning("feed.gap", kind="google_calendar", calendar=calendar, since=place.upto, may_be_lost=lost)
        return Place(of=place.of, upto=place.upto, anew=True)

    def _events(self, document: dict[str, Any], horizon: datetime | None) -> list[Event]:
        items = document.get("items") or []
        shown = [item for item in items if not (self._query.skip_cancelled and text_of(item, "status") == "cancelled")]
        if horizon is not None:
            shown = [item for item in shown if (instant(item.get("updated")) or _LONG_AGO) >= horizon]
        events = [_event(item, self._query.calendar_id, creations=self._creations) for item in shown]
        return sorted(events, key=lambda event: event.occurred_at or _LONG_AGO)


def _page_params(place: Place) -> dict[str, str | int]:
    """The parameters of a page. All but the tokens must be those of the first read, or Google refuses the tokens."""
    tokens = {"syncToken": place.sync, "pageToken": place.page}
    return {
        "singleEvents": "true",
        "showDeleted": "true",
        "maxResults": PAGE,
        "fields": _FIELDS,
        **{name: token for name, token in tokens.items() if token},
    }


def _horizon(place: Place, since: datetime) -> datetime | None:
    """Older changes are left out. None for a read from a sync token: the others list the whole calendar."""
    if place.sync:
        return None
    known = instant(place.upto) if place.anew else None
    return known + timedelta(microseconds=1) if known else since


def _following(place: Place, document: dict[str, Any], reply: Reply) -> Place:
    items, page, sync = (
        document.get("items", []),
        text_of(document, "nextPageToken"),
        text_of(document, "nextSyncToken"),
    )
    if not isinstance(items, list) or not all(text_of(item, "id") for item in items):
        raise RetryLater(f"{reply.url.host} sent no list of events; {describe(document, 'items')}")
    began = place.began if place.page else text_of(document, "updated") or ""
    if page and page != place.page:
        return msgspec.structs.replace(place, page=page, began=began)
    if page or not sync:
        # without a sync token the next read could not continue here
        raise RetryLater(f"{reply.url.host} ended its list of events without a sync token")
    return Place(of=place.of, sync=sync, upto=began or place.upto)


def _batch(place: Place, *, events: Sequence[Event] = (), more: bool, complete: bool = True) -> Batch:
    return Batch(events=events, cursor=dump_cursor(place), more=more, complete=complete)


def _fix(status: int, calendar: str) -> str:
    if status == 404:
        return f"Check calendar_id: {calendar} is not there, or the user may not see it"
    anew = "harken pollers reset ID --yes for a job, harken triggers reset NAME --cursor --yes for a trigger"
    return f"Begin anew: {anew}" if status == 400 else ""


def _event(item: dict[str, Any], calendar: str, *, creations: bool) -> Event:
    """One version of a calendar event. A cancelled one may have nothing but its id."""
    id, updated, status = str(item["id"]), text_of(item, "updated"), text_of(item, "status") or "confirmed"
    cancelled = status == "cancelled"
    version = updated or text_of(item, "etag") or ""
    return Event(
        subject=id,
        type="google_calendar.cancelled" if cancelled else "google_calendar.changed",
        state=f"{version} {status}".lstrip() if cancelled else version or status,
        occurred_at=instant(item.get("created") if creations else updated),
        data=_data(item, calendar),
    )


def _data(item: dict[str, Any], calendar: str) -> dict[str, Any]:
    attendees = item.get("attendees")
    guests = attendees if isinstance(attendees, list) else []
    mine = [text_of(guest, "responseStatus") or "" for guest in guests if text_of(guest, "self") == "true"]
    return {
        "id": text_of(item, "id"),
        "summary": text_of(item, "summary") or "(no title)",
        "description": text_of(item, "description") or "",
        "location": text_of(item, "location") or "",
        "status": text_of(item, "status") or "confirmed",
        "start": _when(item, "start"),
        "end": _when(item, "end"),
        "all_day": text_of(item, "start.date") is not None,
        "time_zone": text_of(item, "start.timeZone") or "",
        "html_link": text_of(item, "htmlLink") or "",
        "organizer": text_of(item, "organizer.email") or text_of(item, "organizer.displayName") or "",
        "attendees": len(guests),
        "my_response": next(iter(mine), ""),
        "created": text_of(item, "created") or "",
        "updated": text_of(item, "updated") or "",
        "calendar_id": calendar,
        "recurring_event_id": text_of(item, "recurringEventId") or "",
        "original_start": _when(item, "originalStartTime"),
    }


def _when(item: dict[str, Any], name: str) -> str:
    """A time with its offset, or the day of an all-day event."""
    return text_of(item, f"{name}.dateTime") or text_of(item, f"{name}.date") or ""


async def check(query: Query, account: GoogleAccount, host: Host) -> Checked:
    """Ask whether the calendar exists."""
    url = f"{account.calendar_url}/calendars/{quote(query.calendar_id, safe='')}"
    reply = await GoogleClient.of(account, host).request("GET", url, scope=CALENDAR)
    if reply.status == 404:
        return Checked(unknown=[f"there is no calendar {query.calendar_id}, or the user may not see it"])
    found = expect_object(reply)
    zone = text_of(found, "timeZone")
    name = text_of(found, "summary") or query.calendar_id
    return Checked(found={query.calendar_id: f"{name} ({zone})" if zone else name})


def _delivery(query: Query, integration: str) -> Delivery:
    return Delivery(template=TEMPLATE, fields=FIELDS)


plugin = Plugin(
    kind="google_calendar",
    summary="Changes in a Google calendar",
    docs="reference/services/google_calendar.md",
    query=Query,
    source=Changes,
    check=check,
    identity="change",
    uses="google",
    delivery=_delivery,
)
