"""A PagerDuty account on loopback: its incidents, who has them, its keys and its limits.

It refuses what the real one refuses (pages beyond 10,000, ranges of more than six months, writes without From by a
general key) and shows what the real one shows: whole seconds, who has it now, nobody for what is resolved.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import count
from math import ceil
from typing import Any

import msgspec
from aiohttp import web
from multidict import MultiMapping

from harken.clock import Clock, from_unix
from harken.kit.values_from_payload import instant
from harken.testing.fakes.server import FakeServer, Handler, json_reply

__all__ = ["Incident", "Key", "Note", "PagerDuty", "User", "ordered", "picked", "span_of"]


LONGEST_RANGE = timedelta(days=184)

DEFAULT_RANGE = timedelta(days=30)

_SORTABLE = {"created_at": "created_at", "resolved_at": "changed_at", "incident_number": "number"}


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """A REST API key: of a user, or a general one without a user."""

    user: str | None = None
    read: bool = True
    write: bool = True


class User(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str
    email: str


class Note(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    content: str
    user: str


class Incident(msgspec.Struct, kw_only=True):
    """`assigned`: since when each user has it. `broken`: fields that the API returns instead of the true ones."""

    id: str
    number: int
    title: str
    service: str
    urgency: str
    team: str
    created_at: datetime
    changed_at: datetime
    visible_at: float
    status: str = "triggered"
    touched_at: datetime | None = None
    assigned: dict[str, datetime] = {}
    notes: list[Note] = []
    broken: dict[str, Any] = {}


def span_of(query: MultiMapping[str], now: datetime) -> tuple[datetime, datetime] | None:
    """The range of creation times that a listing asks for; None if the API would refuse it."""
    if query.get("date_range") == "all":
        return datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
    end = instant(query["until"]) if "until" in query else now
    if end is None:
        return None
    start = instant(query["since"]) if "since" in query else end - DEFAULT_RANGE
    return None if start is None or not timedelta(0) <= end - start <= LONGEST_RANGE else (start, end)


def picked(query: MultiMapping[str], span: tuple[datetime, datetime], incidents: Iterable[Incident]) -> list[Incident]:
    """What matches all filters; a filter with several values is matched by any of them."""
    start, end = span
    statuses, urgencies, services, teams, users = (
        frozenset(query.getall(f"{name}[]", []))
        for name in ("statuses", "urgencies", "service_ids", "team_ids", "user_ids")
    )
    return [
        it
        for it in incidents
        if start <= it.created_at < end
        and (not statuses or it.status in statuses)
        and (not urgencies or it.urgency in urgencies)
        and (not services or it.service in services)
        and (not teams or it.team in teams)
        and (not users or not users.isdisjoint(it.assigned))
    ]


def ordered(query: MultiMapping[str], found: list[Incident]) -> list[Incident]:
    order = query.get("sort_by", "created_at:desc").split(",")
    for name, _, direction in reversed([part.partition(":") for part in order]):
        found.sort(key=lambda incident: getattr(incident, _SORTABLE[name]), reverse=direction == "desc")
    return found


REACH = 10_000

ALLOWED = 960


class PagerDuty(FakeServer):
    """Public methods change it. `cap`: most items on a page; `skew`: seconds its clock is ahead of ours."""

    def __init__(self, clock: Clock, *, cap: int = 100, skew: float = 0.0) -> None:
        super().__init__(clock)
        self.cap = cap
        self.skew = skew
        self.keys = {"personal-key": Key(user="PME"), "general-key": Key(), "read-only-key": Key(write=False)}
        self.users = {"PME": User(id="PME", name="Mia Engel", email="mia@example.com")}
        self.services = {"PSVC1": "Checkout", "PSVC2": "Search"}
        self.teams = {"PTEAM1": "Platform"}
        self.abilities = ["teams", "urgencies"]
        self.incidents: dict[str, Incident] = {}
        self.remaining = ALLOWED
        self._numbers = count(1)
        self._limited_until = 0.0

    def now(self) -> datetime:
        """The time on its clock, in whole seconds."""
        return from_unix(self.clock.time() + self.skew).replace(microsecond=0)

    def add_user(self, id: str, name: str = "") -> None:
        self.users[id] = User(id=id, name=name or id, email=f"{id.lower()}@example.com")

    def trigger(
        self,
        title: str = "",
        *,
        service: str = "PSVC1",
        urgency: str = "high",
        to: str | None = "PME",
        team: str = "PTEAM1",
        age: float = 0.0,
        late: float = 0.0,
    ) -> str:
        """Add an incident, `age` seconds old and listed in `late` seconds; returns its id."""
        number = next(self._numbers)
        made = self.now() - timedelta(seconds=age)
        incident = Incident(
            id=f"PINC{number}",
            number=number,
            title=title or f"Trouble {number}",
            service=service,
            urgency=urgency,
            team=team,
            created_at=made,
            changed_at=made,
            visible_at=self.clock.time() + late,
        )
        self.incidents[incident.id] = incident
        if to is not None:
            incident.assigned[to] = made
        return incident.id

    def assign(self, id: str, *users: str) -> None:
        """Assign the incident to this user alone."""
        self.incidents[id].assigned = {user: self.now() for user in users}

    def acknowledge(self, *ids: str) -> None:
        self._set("acknowledged", ids)

    def retrigger(self, *ids: str) -> None:
        """Their acknowledgement timed out, or they were reopened."""
        self._set("triggered", ids)

    def resolve(self, *ids: str) -> None:
        self._set("resolved", ids)
        for id in ids:
            self.incidents[id].assigned = {}

    def touch(self, *ids: str) -> None:
        """An update that leaves the status alone, such as another alert of the same incident."""
        for id in ids:
            self.incidents[id].touched_at = self.now()

    def limit(self, seconds: float) -> None:
        """Answer 429 for so long."""
        self._limited_until = self.clock.time() + seconds

    def _set(self, status: str, ids: Iterable[str]) -> None:
        for id in ids:
            self.incidents[id].status = status
            self.incidents[id].changed_at = self.now()

    def routes(self) -> Mapping[str, Handler]:
        return {
            "/incidents": self._list,
            "/incidents/{id}": self._incident,
            "/incidents/{id}/notes": self._notes,
            "/users/me": self._me,
            "/users": self._search,
            "/users/{id}": self._user,
            "/services/{id}": self._service,
            "/teams/{id}": self._team,
            "/abilities": self._abilities,
        }

    async def handle(self, request: web.Request, view: Handler) -> web.Response:
        reply = await self._guarded(request, view)
        wait = max(0.0, self._limited_until - self.clock.time())
        left = 0 if wait else self.remaining
        headers = {"ratelimit-limit": ALLOWED, "ratelimit-remaining": left, "ratelimit-reset": ceil(wait) or 60}
        reply.headers.update({name: str(value) for name, value in headers.items()})
        reply.headers["Date"] = format_datetime(self.now(), usegmt=True)
        return reply

    async def _guarded(self, request: web.Request, view: Handler) -> web.Response:
        if self.clock.time() < self._limited_until:
            return _error(429, 2020, "Rate Limit Exceeded")
        key = self._key(request)
        if key is None:
            return _error(401, 2006, "Authentication failed")
        if not (key.read if request.method == "GET" else key.write):
            return _error(403, 2010, "Access Denied")
        if request.method != "GET" and key.user is None and not self._sender(request):
            return _error(400, 1008, "Requester User Not Found")
        return await view(request)

    def _key(self, request: web.Request) -> Key | None:
        scheme, _, token = request.headers.get("Authorization", "").partition("=")
        return self.keys.get(token) if scheme == "Token token" else None

    def _sender(self, request: web.Request) -> str | None:
        mail = request.headers.get("From", "").lower()
        return next((user.id for user in self.users.values() if user.email == mail), None)

    async def _list(self, request: web.Request) -> web.Response:
        limit, offset = int(request.query.get("limit", 25)), int(request.query.get("offset", 0))
        if limit > 100 or offset + limit > REACH:
            return _error(400, 2001, "Invalid Input Provided")
        if request.query.getall("team_ids[]", []) and "teams" not in self.abilities:
            return _error(402, 2014, "Missing Account Ability")
        span = span_of(request.query, self.now())
        if span is None:
            return _error(400, 2005, "Invalid Query Date Range")
        if not set(request.query.getall("statuses[]", [])) <= {"triggered", "acknowledged", "resolved"}:
            return _error(400, 1003, "Invalid Status Provided")
        now = self.clock.time()
        visible = (incident for incident in self.incidents.values() if incident.visible_at <= now)
        found = ordered(request.query, picked(request.query, span, visible))
        end = offset + min(limit, self.cap)
        page = [self.to_json(incident) for incident in found[offset:end]]
        return json_reply(
            {"incidents": page, "limit": limit, "offset": offset, "more": end < len(found), "total": None}
        )

    def to_json(self, incident: Incident) -> dict[str, Any]:
        """The incident as the API returns it; `broken` replaces parts of that."""
        people = [{"at": _stamp(at), "assignee": self._ref("user", id)} for id, at in incident.assigned.items()]
        resolved = _stamp(incident.changed_at) if incident.status == "resolved" else None
        # for a triggered incident, PagerDuty returns the time of the last update
        touched = incident.touched_at if incident.status == "triggered" else None
        return {
            "id": incident.id,
            "type": "incident",
            "summary": f"[#{incident.number}] {incident.title}",
            "html_url": f"https://acme.pagerduty.com/incidents/{incident.id}",
            "incident_number": incident.number,
            "title": incident.title,
            "created_at": _stamp(incident.created_at),
            "status": incident.status,
            "incident_key": f"key-{incident.number}",
            "service": self._ref("service", incident.service),
            "assignments": people,
            "last_status_change_at": _stamp(max(touched or incident.changed_at, incident.changed_at)),
            "resolved_at": resolved,
            "escalation_policy": {"id": "PPOL1", "type": "escalation_policy_reference", "summary": "Default"},
            "teams": [self._ref("team", incident.team)],
            "priority": {"id": "PPRIO2", "type": "priority_reference", "summary": "P2"},
            "urgency": incident.urgency,
        } | incident.broken

    def _ref(self, what: str, id: str) -> dict[str, Any]:
        users = {user.id: user.name for user in self.users.values()}
        names = {"user": users, "service": self.services, "team": self.teams}[what]
        return {"id": id, "type": f"{what}_reference", "summary": names.get(id, id)}

    async def _incident(self, request: web.Request) -> web.Response:
        incident = self._named(request)
        if incident is None:
            return _error(404, 5001, "Incident Not Found")
        if request.method == "PUT":
            status = (await request.json())["incident"]["status"]
            if incident.status == "resolved" or incident.status == status:
                return _error(400, 1001 if incident.status == "resolved" else 1002, "Incident Already There")
            self._set(status, [incident.id])
        return json_reply({"incident": self.to_json(incident)})

    async def _notes(self, request: web.Request) -> web.Response:
        incident = self._named(request)
        if incident is None:
            return _error(404, 5001, "Incident Not Found")
        if request.method == "POST":
            key = self._key(request)
            note = Note(
                id=f"PNOTE{len(incident.notes) + 1}",
                content=(await request.json())["note"]["content"],
                user=(key.user if key else None) or self._sender(request) or "",
            )
            incident.notes.append(note)
            return json_reply({"note": note}, 201)
        return json_reply({"notes": incident.notes})

    def _named(self, request: web.Request) -> Incident | None:
        name = request.match_info["id"]
        return next((it for it in self.incidents.values() if name in (it.id, str(it.number))), None)

    async def _me(self, request: web.Request) -> web.Response:
        key = self._key(request)
        if key is None or key.user is None:
            return _error(400, 2001, "Invalid Input Provided")
        return json_reply({"user": self._profile(self.users[key.user])})

    async def _search(self, request: web.Request) -> web.Response:
        wanted = request.query.get("query", "").lower()
        found = [user for user in self.users.values() if wanted in user.name.lower() or wanted in user.email]
        return json_reply({"users": [self._profile(user) for user in found], "more": False})

    async def _user(self, request: web.Request) -> web.Response:
        user = self.users.get(request.match_info["id"])
        return json_reply({"user": self._profile(user)}) if user else _error(404, 2100, "Not Found")

    async def _service(self, request: web.Request) -> web.Response:
        return self._thing("service", self.services, request.match_info["id"])

    async def _team(self, request: web.Request) -> web.Response:
        return self._thing("team", self.teams, request.match_info["id"])

    async def _abilities(self, request: web.Request) -> web.Response:
        return json_reply({"abilities": self.abilities})

    def _thing(self, what: str, known: Mapping[str, str], id: str) -> web.Response:
        return json_reply({what: {"id": id, "name": known[id]}}) if id in known else _error(404, 2100, "Not Found")

    def _profile(self, user: User) -> dict[str, Any]:
        return {
            "id": user.id,
            "name": user.name,
            "email": user.email,
            "role": "user",
            "time_zone": "Europe/Berlin",
            "html_url": f"https://acme.pagerduty.com/users/{user.id}",
            "teams": [self._ref("team", id) for id in self.teams],
        }


def _stamp(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def _error(status: int, code: int, message: str) -> web.Response:
    return json_reply({"error": {"message": message, "code": code}}, status)
