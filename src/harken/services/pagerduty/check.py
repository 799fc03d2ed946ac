"""Whose API key it is, and whether the ids of a query exist."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from harken.kit.values_from_payload import text_of
from harken.services.pagerduty.api import Account, Api
from harken.services.pagerduty.cursor import LIMIT
from harken.services.pagerduty.query import Query
from harken.source import Checked, Host

__all__ = ["check", "whoami"]

FIND_ID = "open your profile at PagerDuty: its address ends with /users/ and your id"


async def whoami(account: Account, host: Host) -> Mapping[str, Any]:
    """The user of a personal key. A general key has no user: then say so, and how to find an id."""
    api = Api(account, host)
    reply = await api.get("/users/me")
    if reply.status not in (400, 404):
        return _user(api.expect_object(reply).get("user")) | {"key": "personal"}
    api.expect_object(await api.get("/abilities"))
    known = {"key": "general: it works, and belongs to no user"}
    if not account.from_email:
        return known | {"find_your_id": FIND_ID}
    found = (await api.read("users", params=[("query", account.from_email), ("limit", LIMIT)])).get("users")
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
    """Look up every id in the query."""
    api = Api(account, host)
    wanted = [("user", id) for id in ([query.user_id] if query.user_id else [])]
    wanted += [("service", id) for id in query.services] + [("team", id) for id in query.teams]
    found: dict[str, str] = {}
    unknown: list[str] = []
    for what, id in wanted:
        reply = await api.get(api.url(f"{what}s", id))
        if reply.status == 404:
            where = {"user": "users", "service": "service-directory", "team": "teams"}[what]
            unknown.append(
                f"there is no {what} {id}, or the token may not see it. Its page ends with /{where}/ and its id"
            )
            continue
        document = api.expect_object(reply)
        found[id] = f"{what} {text_of(document, f'{what}.name') or text_of(document, f'{what}.summary') or id}"
    return Checked(found=found, unknown=unknown)
