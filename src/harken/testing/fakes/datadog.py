"""A small Datadog: monitors with groups that change their states, downtimes, two keys, and a rate limit.

A change shows itself `late` seconds after its date. Monitors are listed by id, in pages of at most `cap`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

import msgspec
from aiohttp import web

from harken.clock import Clock
from harken.testing.fakes.server import FakeServer, Handler, json_reply

__all__ = ["FakeDatadog", "Monitor"]

API_KEY, APP_KEY = "a" * 32, "b" * 40
ALL_SCOPES = frozenset({"monitors_read", "monitors_downtime"})
_FILTERS = {"all", "alert", "warn", "no data"}
_QUIET = ("OK", "Ignored", "Skipped", "Unknown")


class Group(msgspec.Struct, kw_only=True):
    """The state that the API returns, and later ones with the times at which they become visible."""

    shown: dict[str, Any]
    coming: list[tuple[float, dict[str, Any]]] = msgspec.field(default_factory=list)
    hidden: bool = False

    def at(self, now: float) -> dict[str, Any]:
        while self.coming and self.coming[0][0] <= now:
            self.shown = self.coming.pop(0)[1]
        return self.shown

    @property
    def newest(self) -> dict[str, Any]:
        return self.coming[-1][1] if self.coming else self.shown


class Monitor(msgspec.Struct, kw_only=True):
    id: int
    name: str
    tags: list[str]
    multi: bool
    modified: float
    groups: dict[str, Group] = msgspec.field(default_factory=dict)
    silenced: dict[str, int | None] = msgspec.field(default_factory=dict)
    extra: dict[str, Any] = msgspec.field(default_factory=dict)


class FakeDatadog(FakeServer):
    """`scopes` are those of the application key; `skew` is how many seconds its clock is ahead.

    `limit` calls in each `period` seconds are answered; `knows_id_offset` false: only numbered pages work.
    """

    def __init__(self, clock: Clock, *, cap: int = 1000) -> None:
        super().__init__(clock)
        self.cap = cap
        self.api_key, self.app_key = API_KEY, APP_KEY
        self.scopes = ALL_SCOPES
        self.skew = 0.0
        self.limit: int | None = None
        self.period = 60
        self.knows_id_offset = True
        self.listed: list[Any] | None = None
        self.downtimes: dict[str, dict[str, Any]] = {}
        self._monitors: dict[int, Monitor] = {}
        self._calls: dict[int, int] = {}
        self._next = 1000

    def monitor(self, *groups: str, id: int = 0, name: str = "", tags: list[str] | None = None, **extra: Any) -> int:
        """Add a monitor that is OK, with these groups or with none; the id, which is above all others."""
        self._next = max(id, self._next + 1)
        made = Monitor(
            id=self._next,
            name=name or f"monitor {self._next}",
            tags=tags or [],
            multi=bool(groups),
            modified=self.now(),
            extra=extra,
        )
        self._monitors[made.id] = made
        for group in groups or ("*",):
            self.appear(made.id, group)
        return made.id

    def appear(self, id: int, group: str, status: str = "OK") -> None:
        """Add a group, or bring back one that was removed."""
        known = self._monitors[id].groups.get(group)
        self._monitors[id].groups[group] = known or Group(shown=_state(group, "OK"))
        self._monitors[id].groups[group].hidden = False
        if status != "OK":
            self.change(id, status, group)

    def change(self, id: int, status: str, group: str = "*", *, late: float = 0.0, dated: bool = True) -> None:
        """Change the state of a group, with Datadog's dates (none unless `dated`)."""
        found, now = self._monitors[id].groups[group], int(self.now())
        state = {**found.newest, "status": status}
        if dated and status in _QUIET:
            state["last_resolved_ts"] = now
        elif dated:
            state |= {"last_triggered_ts": now, "last_notified_ts": now}
            state |= {"last_nodata_ts": now} if status == "No Data" else {}
        found.coming.append((self.clock.time() + late, state))

    def remind(self, id: int, group: str = "*") -> None:
        """Notify again about a state that lasts."""
        self._monitors[id].groups[group].newest["last_notified_ts"] = int(self.now())

    def evaluate(self, id: int, group: str = "*") -> None:
        """Find once more that there is no data."""
        self._monitors[id].groups[group].newest["last_nodata_ts"] = int(self.now())

    def vanish(self, id: int, group: str) -> None:
        self._monitors[id].groups[group].hidden = True

    def edit(self, id: int, **changes: Any) -> None:
        """Save the definition of a monitor anew."""
        found = self._monitors[id]
        found.modified = self.now()
        found.tags = changes.pop("tags", found.tags)
        found.extra |= changes

    def silence(self, id: int, scope: str = "*", end: int | None = None) -> None:
        self._monitors[id].silenced[scope] = end

    def delete(self, *ids: int) -> None:
        for id in ids:
            del self._monitors[id]

    def now(self) -> float:
        return self.clock.time() + self.skew

    def routes(self) -> Mapping[str, Handler]:
        return {
            "/api/v1/validate": self._validate,
            "/api/v2/current_user": self._current_user,
            "/api/v1/monitor": self._list,
            "/api/v1/monitor/{id}": self._one,
            "/api/v2/downtime": self._downtimes,
            "/api/v2/downtime/{id}": self._downtime,
        }

    async def handle(self, request: web.Request, view: Handler) -> web.Response:
        reply = self._refused(request) or self._limited() or await view(request)
        reply.headers.update(self._told())
        reply.headers["Date"] = format_datetime(datetime.fromtimestamp(self.now(), UTC), usegmt=True)
        return reply

    def _refused(self, request: web.Request) -> web.Response | None:
        if request.headers.get("DD-API-KEY") != self.api_key:
            return _errors(403, "Forbidden")
        if request.path == "/api/v1/validate":
            return None
        if request.headers.get("DD-APPLICATION-KEY") != self.app_key:
            return _errors(403, "Forbidden")
        if _scope(request.path) not in self.scopes | {""}:
            return _errors(403, f"Failed permission authorization checks, required scopes: {_scope(request.path)}")
        return None

    def _limited(self) -> web.Response | None:
        window = int(self.now()) // self.period
        self._calls[window] = self._calls.get(window, 0) + 1
        over = self.limit is not None and self._calls[window] > self.limit
        return _errors(429, "Rate limit exceeded") if over else None

    def _told(self) -> dict[str, str]:
        """Limits are aligned to the calendar, and the reset is in seconds from now. There is no Retry-After."""
        if self.limit is None:
            return {}
        now = int(self.now())
        left = max(self.limit - self._calls.get(now // self.period, 0), 0)
        fields = {
            "Limit": self.limit,
            "Period": self.period,
            "Remaining": left,
            "Reset": self.period - now % self.period,
        }
        return {f"X-RateLimit-{name}": str(value) for name, value in fields.items()}

    async def _validate(self, request: web.Request) -> web.Response:
        return json_reply({"valid": True})

    async def _current_user(self, request: web.Request) -> web.Response:
        user = {"name": "Jo Smith", "email": "jo@example.com", "handle": "jo@example.com", "title": None}
        included = [
            {"type": "orgs", "id": "o-1", "attributes": {"name": "Example Ltd"}},
            {"type": "roles", "id": "r-1", "attributes": {"name": "Datadog Read Only Role"}},
        ]
        return json_reply({"data": {"type": "users", "id": "u-1", "attributes": user}, "included": included})

    async def _list(self, request: web.Request) -> web.Response:
        query = request.query
        if not set(query.get("group_states", "all").split(",")) <= _FILTERS:
            return _errors(400, "Invalid group_state filters.")
        numbers = {name: query.get(name, "0") for name in ("page", "page_size", "id_offset")}
        if not all(value.isdigit() for value in numbers.values()) or int(numbers["page_size"]) > 1000:
            return _errors(400, "The value provided for a parameter is invalid")
        page, size, offset = (int(value) for value in numbers.values())
        if self.listed is not None:
            return json_reply(self.listed if not page and not offset else [])
        shown = [found for id, found in sorted(self._monitors.items()) if not self.knows_id_offset or id > offset]
        for tag in filter(None, query.get("monitor_tags", "").split(",")):
            shown = [found for found in shown if tag in found.tags]
        if "page" in query:
            size = min(size or 100, self.cap)
            shown = shown[page * size : (page + 1) * size]
        return json_reply([self._to_json(found, "group_states" in query) for found in shown])

    async def _one(self, request: web.Request) -> web.Response:
        id = request.match_info["id"]
        found = self._monitors.get(int(id)) if id.isdigit() else None
        if found is None:
            return _errors(404, "Monitor not found")
        return json_reply(self._to_json(found, "group_states" in request.query))

    def _to_json(self, found: Monitor, with_groups: bool) -> dict[str, Any]:
        states = {name: group.at(self.clock.time()) for name, group in found.groups.items() if not group.hidden}
        worst = _worst([state["status"] for state in states.values()])
        return {
            "id": found.id,
            "name": found.name,
            "type": "query alert",
            "query": "avg(last_5m):avg:system.load.1{*} > 4",
            "message": "The load is high. @team",
            "tags": found.tags,
            "multi": found.multi,
            "priority": None,
            "options": {"silenced": found.silenced},
            "created": "2021-05-03T13:03:44.905085+00:00",
            "modified": datetime.fromtimestamp(found.modified, UTC).isoformat(),
            "creator": {"name": "Jo Smith", "handle": "jo@example.com", "email": "jo@example.com", "id": 7},
            "overall_state": worst,
            "overall_state_modified": None,
            "matching_downtimes": [],
            **({"state": {"groups": states}} if with_groups else {}),
            **found.extra,
        }

    async def _downtimes(self, request: web.Request) -> web.Response:
        if request.method == "GET":
            start, size = (int(request.query.get(f"page[{name}]", number)) for name, number in _PAGING)
            current = [found for found in self.downtimes.values() if self._is_current(found)]
            total = {"page": {"total_filtered_count": len(current)}}
            return json_reply({"data": current[start : start + size], "meta": total})
        fields = msgspec.json.decode(await request.read())["data"]["attributes"]
        if fields["scope"] != "*" and ":" not in fields["scope"]:
            return _errors(400, "All values must have a key")
        id = f"downtime-{len(self.downtimes) + 1}"
        self.downtimes[id] = {"type": "downtime", "id": id, "attributes": {**fields, "status": "active"}}
        return json_reply({"data": self.downtimes[id]})

    async def _downtime(self, request: web.Request) -> web.Response:
        found = self.downtimes.get(request.match_info["id"])
        if found is None or request.method != "DELETE":
            return _errors(404, "Downtime not found")
        found["attributes"]["status"] = "canceled"
        return web.Response(status=204)

    def _is_current(self, downtime: Mapping[str, Any]) -> bool:
        fields = downtime["attributes"]
        end = fields["schedule"]["end"]
        return fields["status"] == "active" and (end is None or datetime.fromisoformat(end).timestamp() > self.now())


_PAGING = (("offset", "0"), ("limit", "30"))


def _state(group: str, status: str) -> dict[str, Any]:
    dates = ("last_triggered_ts", "last_resolved_ts", "last_nodata_ts", "last_notified_ts")
    return {"name": group, "status": status, **dict.fromkeys(dates, 0)}


def _worst(statuses: list[str]) -> str:
    return next((status for status in ("Alert", "Warn", "No Data", "OK") if status in statuses), "No Data")


def _scope(path: str) -> str:
    return "monitors_downtime" if "downtime" in path else "monitors_read" if "/monitor" in path else ""


def _errors(status: int, message: str) -> web.Response:
    return json_reply({"errors": [message]}, status)
