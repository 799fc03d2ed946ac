"""Calendars that are read by sync tokens: a token belongs to a version of the calendar and to the query's parameters.

A list is a snapshot of its first page. Whatever changes while its pages are read is shown by the sync token at its end.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from aiohttp import web

from harken.clock import Clock
from harken.testing.fakes.google_oauth_base import GoogleServer, google_error
from harken.testing.fakes.server import Handler, json_reply

__all__ = ["GoogleCalendar"]

_SCOPE = "https://www.googleapis.com/auth/calendar.readonly"
_TOKENS = ("syncToken", "pageToken")
_RESTRICTING = {"iCalUID", "orderBy", "q", "timeMin", "timeMax", "updatedMin"}
_NAMES = re.compile(r"([A-Za-z]+)(?:\([^()]*\))?")


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A page token: the remaining ids, the parameters of the query, and the sync token of the last page."""

    params: Mapping[str, str]
    sync: str
    left: tuple[str, ...]
    end: str


class GoogleCalendar(GoogleServer):
    """`cap` is the largest page, whatever the client requests."""

    def __init__(self, clock: Clock, *, cap: int = 2500, **options: Any) -> None:
        super().__init__(clock, **options)
        self.cap = cap
        self.calendars: dict[str, dict[str, dict[str, Any]]] = {"primary": {}}
        self._versions: dict[tuple[str, str], int] = {}
        self._version = 0
        self._changed = self._stamp()
        self._syncs: dict[str, tuple[str, int, Mapping[str, str]]] = {}
        self._pages: dict[str, Page] = {}

    def put(self, id: str, calendar: str = "primary", **fields: Any) -> str:
        """Add an event, or change the fields of the one that is there."""
        events, now = self.calendars[calendar], self._stamp()
        self._version += 1
        self._changed = now
        self._versions[calendar, id] = self._version
        fresh = {
            "id": id,
            "status": "confirmed",
            "htmlLink": f"https://calendar.google.com/event?eid={id}",
            "created": now,
            "summary": f"Event {id}",
            "organizer": {"email": self.email, "self": True},
            "start": {"dateTime": "2026-03-02T10:00:00+01:00", "timeZone": "Europe/Berlin"},
            "end": {"dateTime": "2026-03-02T11:00:00+01:00", "timeZone": "Europe/Berlin"},
        }
        events[id] = {**events.get(id, fresh), **fields, "updated": now, "etag": f'"{self._version}"'}
        return id

    def cancel(self, id: str, calendar: str = "primary", *, bare: bool = False) -> None:
        """Delete an event. `bare`: all that is left of it is its id, as Google may leave it."""
        self.put(id, calendar, status="cancelled")
        if bare:
            self.calendars[calendar][id] = {"id": id, "status": "cancelled"}

    def series(self, id: str, count: int) -> list[str]:
        """Add a daily event, which lists as its instances."""
        first = datetime(2026, 3, 2, 9, tzinfo=UTC)
        days = [first + timedelta(days=day) for day in range(count)]
        return [
            self.put(
                f"{id}_{day:%Y%m%dT%H%M%SZ}",
                recurringEventId=id,
                originalStartTime={"dateTime": f"{day:%Y-%m-%dT%H:%M:%SZ}"},
            )
            for day in days
        ]

    def expire(self) -> None:
        """Forget every sync token."""
        self._syncs.clear()

    def forget_pages(self) -> None:
        self._pages.clear()

    def scopes_for(self, method: str, path: str) -> frozenset[str]:
        return frozenset({_SCOPE}) if path.startswith("/calendar/") else super().scopes_for(method, path)

    def routes(self) -> Mapping[str, Handler]:
        home = "/calendar/v3/calendars/{id}"
        return {**super().routes(), home: self._calendar, f"{home}/events": self._list}

    async def _calendar(self, request: web.Request) -> web.Response:
        id = request.match_info["id"]
        if id not in self.calendars:
            return google_error(404, "notFound")
        return json_reply({"id": id, "summary": f"The calendar {id}", "timeZone": "Europe/Berlin"})

    async def _list(self, request: web.Request) -> web.Response:
        calendar, query = request.match_info["id"], dict(request.query)
        if calendar not in self.calendars:
            return google_error(404, "notFound")
        params = {name: value for name, value in query.items() if name not in _TOKENS}
        sync, token = query.get("syncToken", ""), query.get("pageToken", "")
        refusal = self._refusal(calendar, params, sync, token)
        if refusal is not None:
            return refusal
        if token:
            found = self._pages[token]
            left, end = found.left, found.end
        else:
            left, end = self._find_ids(calendar, params, sync), self._sync_token(calendar, params)
        return json_reply(self._page(calendar, params, sync, left, end))

    def _refusal(self, calendar: str, params: Mapping[str, str], sync: str, token: str) -> web.Response | None:
        if not 1 <= int(params.get("maxResults", 250)) <= 2500:
            return google_error(400, "invalidParameter")
        if sync and (_RESTRICTING & set(params) or params.get("showDeleted") == "false"):
            return google_error(400, "syncTokenWithRequestRestrictions")
        if sync and sync not in self._syncs:
            return google_error(410, "fullSyncRequired")
        if sync and (self._syncs[sync][0] != calendar or self._syncs[sync][2] != params):
            return google_error(400, "invalid")
        page = self._pages.get(token)
        if token and (page is None or page.sync != sync or page.params != params):
            return google_error(400, "invalid")
        return None

    def _find_ids(self, calendar: str, params: Mapping[str, str], sync: str) -> tuple[str, ...]:
        after = self._syncs[sync][1] if sync else 0
        deleted = bool(sync) or params.get("showDeleted") == "true"
        events = self.calendars[calendar]
        return tuple(
            id
            for id in sorted(events)
            if self._versions[calendar, id] > after and (deleted or events[id]["status"] != "cancelled")
        )

    def _page(
        self, calendar: str, params: Mapping[str, str], sync: str, left: tuple[str, ...], end: str
    ) -> dict[str, Any]:
        size = min(int(params.get("maxResults", 250)), self.cap)
        events = self.calendars[calendar]
        names = _names(params.get("fields", ""))
        items = [
            {name: value for name, value in events[id].items() if not names or name in names} for id in left[:size]
        ]
        answer: dict[str, Any] = {"kind": "calendar#events", "updated": self._changed, "items": items}
        if len(left) <= size:
            return {**answer, "nextSyncToken": end}
        token = f"page-{len(self._pages) + 1}-{self._version}"
        self._pages[token] = Page(params=params, sync=sync, left=left[size:], end=end)
        return {**answer, "nextPageToken": token}

    def _sync_token(self, calendar: str, params: Mapping[str, str]) -> str:
        token = f"sync-{calendar}-{self._version}-{len(self._syncs)}="
        self._syncs[token] = (calendar, self._version, params)
        return token

    def _stamp(self) -> str:
        at = datetime.fromtimestamp(self.clock.time(), UTC)
        return f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}Z"


def _names(fields: str) -> set[str]:
    """The names in the parentheses of `items(…)`; empty: all of them."""
    _, _, inner = fields.partition("items(")
    return {found[1] for found in _NAMES.finditer(inner.removesuffix(")"))}
