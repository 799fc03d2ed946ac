"""PagerDuty: incidents that match a query, and those that are assigned to someone.

`since` of the API filters by creation, so an old incident that is reassigned today would never be shown; therefore open
incidents are read whole. https://developer.pagerduty.com/api-reference/9d0b4b12e36f9-list-incidents
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import msgspec
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from harken.errors import RetryLater
from harken.event import Event
from harken.kit.fields import describe, text_of
from harken.kit.query_fields import fingerprint_of
from harken.services.pagerduty.actions import ACTIONS
from harken.services.pagerduty.api import Account, Api, Id, told
from harken.services.pagerduty.cursor import LIMIT, Part, Place, asked, following, remembering, resume
from harken.services.pagerduty.event import Incident, Wanted, event_of, incident_of
from harken.source import Batch, Checked, Cursor, Delivery, Host, Plugin

__all__ = ["Account", "Incidents", "Query", "check", "plugin", "whoami"]

OPEN = ("triggered", "acknowledged")
FIND_ID = "open your profile at PagerDuty: its address ends with /users/ and your id"


def _several(value: Any) -> Any:
    return [value] if isinstance(value, str | int) else value


def _words(value: Any) -> Any:
    several = _several(value)
    if not isinstance(several, list | tuple):
        return several
    return [word.lower() if isinstance(word, str) else word for word in several]


class Query(BaseModel):
    """Which incidents: several values of one key mean any of them, different keys mean all."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    user_id: Id | None = Field(None, description="id of the user to whom it is assigned (whoami shows yours)")
    services: Annotated[tuple[Id, ...], BeforeValidator(_several)] = Field((), description="ids of services")
    teams: Annotated[tuple[Id, ...], BeforeValidator(_several)] = Field((), description="ids of teams")
    statuses: Annotated[tuple[Literal["triggered", "acknowledged", "resolved"], ...], BeforeValidator(_words)] = Field(
        ("triggered", "acknowledged"), description="triggered, acknowledged, resolved"
    )
    urgencies: Annotated[tuple[Literal["high", "low"], ...], BeforeValidator(_words)] = Field(
        (), description="high, low"
    )

    @field_validator("statuses")
    @classmethod
    def _some(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value:
            raise ValueError("name at least one status, or leave it out for triggered and acknowledged")
        return value

    @field_validator("user_id")
    @classmethod
    def _somebody(cls, value: str | None) -> str | None:
        if value == "me":
            raise ValueError("write the id: there is no implicit me. harken integrations pagerduty whoami shows yours")
        return value

    @model_validator(mode="after")
    def _assignable(self) -> Query:
        if self.user_id and "resolved" in self.statuses:
            raise ValueError("resolved incidents are assigned to nobody: leave out user_id, or resolved")
        return self

    def filters(self) -> list[tuple[str, str]]:
        """What every page asks for, beside statuses."""
        return [
            *([("user_ids[]", self.user_id)] if self.user_id else []),
            *(("service_ids[]", id) for id in self.services),
            *(("team_ids[]", id) for id in self.teams),
            *(("urgencies[]", word) for word in self.urgencies),
        ]

    def fingerprint(self) -> str:
        return fingerprint_of(self)


class Incidents:
    """Reads one page a call. What an incident must do to count again is told by the identity of the feed."""

    def __init__(self, query: Query, account: Account, host: Host) -> None:
        self._api = Api(account, host)
        self._clock = host.clock
        self._filters = query.filters()
        self._of = query.fingerprint()
        self._open = [status for status in OPEN if status in query.statuses]
        self._parts: list[Part] = ["open"] if self._open else []
        self._parts += ["resolved"] if "resolved" in query.statuses else []
        self._wanted = Wanted(user_id=query.user_id or "", hidden=len(self._open) < len(OPEN), identity=host.identity)
        self._unwanted = set(OPEN) - set(self._open)
        # that an incident is triggered again shows only to whoever saw it acknowledged
        self._watches = host.identity == "transition" and self._open == ["triggered"]
        self._asked = OPEN if self._watches else self._open

    async def poll(self, cursor: Cursor, since: datetime) -> Batch:
        place, now = resume(cursor, self._of, since, self._parts[0]), self._clock.now()
        document = await self._api.get("incidents", params=[*self._filters, *asked(place, self._asked, now)])
        page, more = self._page(document)
        to = following(place, page, more, now, self._parts)
        to = remembering(place, to, page) if self._watches else to
        return Batch(
            events=self._events(place, page, {**to.acked, **to.shown}),
            cursor=msgspec.to_builtins(to),
            more=to.reading,
            complete=not to.partial,
        )

    def _page(self, document: Mapping[str, Any]) -> tuple[list[Incident], bool]:
        items, more = document.get("incidents"), document.get("more")
        if not isinstance(items, list):
            told_instead = describe(document, "incidents")
            raise RetryLater(f"{self._api.name} sent no list of incidents; {told_instead}", fix="Check base_url")
        return [incident_of(item) for item in items], more if isinstance(more, bool) else len(items) >= LIMIT

    def _events(self, place: Place, page: Sequence[Incident], acked: Mapping[str, str]) -> list[Event]:
        fresh = [one for one in page if one.status not in self._unwanted and not self._covered(place, one)]
        found = [event_of(one, self._wanted, acked.get(one.id, "")) for one in fresh]
        now = self._clock.now()
        return sorted(filter(None, found), key=lambda event: event.occurred_at or now)

    def _covered(self, place: Place, incident: Incident) -> bool:
        # older ones come into view when newer ones are reopened: they were read long ago, and may be forgotten
        at = incident.resolved_at if place.part == "resolved" else None
        return at is not None and place.since is not None and at < place.since


async def whoami(account: Account, host: Host) -> Mapping[str, Any]:
    """The user whose key it is; a general key belongs to nobody, which is said, with the way to an id."""
    api = Api(account, host)
    reply = await api.ask("users", "me")
    if reply.status not in (400, 404):
        return _user(told(reply).get("user")) | {"key": "personal"}
    told(await api.ask("abilities"))
    known = {"key": "general: it works, and belongs to no user"}
    if not account.from_email:
        return known | {"find_your_id": FIND_ID}
    found = (await api.get("users", params=[("query", account.from_email), ("limit", LIMIT)])).get("users")
    mail = account.from_email.lower()
    for user in found if isinstance(found, list) else []:
        if (text_of(user, "email") or "").lower() == mail:
            return _user(user) | known
    return known | {"from_email": "no user of this account has this e-mail address", "find_your_id": FIND_ID}


def _user(user: Any) -> dict[str, Any]:
    teams = user.get("teams") if isinstance(user, dict) else None
    named = [f"{text_of(team, 'id')} ({text_of(team, 'summary')})" for team in teams] if isinstance(teams, list) else []
    return {
        "id": text_of(user, "id") or "",
        "name": text_of(user, "name") or "",
        "email": text_of(user, "email") or "",
        "role": text_of(user, "role") or "",
        "time_zone": text_of(user, "time_zone") or "",
        "account": urlsplit(text_of(user, "html_url") or "").hostname or "",
        "teams": ", ".join(named),
    }


async def check(query: Query, account: Account, host: Host) -> Checked:
    """Ask for every id in the query."""
    api = Api(account, host)
    wanted = [("user", id) for id in ([query.user_id] if query.user_id else [])]
    wanted += [("service", id) for id in query.services] + [("team", id) for id in query.teams]
    found: dict[str, str] = {}
    unknown: list[str] = []
    for what, id in wanted:
        reply = await api.ask(f"{what}s", id)
        if reply.status == 404:
            where = {"user": "users", "service": "service-directory", "team": "teams"}[what]
            unknown.append(
                f"there is no {what} {id}, or the token may not see it. Its page ends with /{where}/ and its id"
            )
            continue
        document = told(reply)
        found[id] = f"{what} {text_of(document, f'{what}.name') or text_of(document, f'{what}.summary') or id}"
    return Checked(found=found, unknown=unknown)


plugin = Plugin(
    kind="pagerduty",
    summary="PagerDuty incidents: on services and teams, or assigned to someone",
    docs="reference/services/pagerduty.md",
    account=Account,
    query=Query,
    source=Incidents,
    actions=ACTIONS,
    whoami=whoami,
    check=check,
    delivery=lambda query, integration: Delivery(template="[{urgency}] {title} ({status})\n{html_url}"),
    environment={"PAGERDUTY_TOKEN": "token"},
)
