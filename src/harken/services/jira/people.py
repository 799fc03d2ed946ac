"""Who is meant by an account id, an e-mail address or a user name. Cloud knows account ids, Server user names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from harken.errors import NeedsAttention
from harken.services.jira.api import Site

__all__ = ["Person", "find_person", "myself", "person_of"]

ME = "currentuser()"
SHOWN = 5
_ACCOUNT_ID = re.compile(r"[0-9a-zA-Z]+:[0-9a-zA-Z-]{16,}|[0-9a-zA-Z]{24}")
_NAMES = ("accountId", "name", "key", "emailAddress", "displayName")


class Person(msgspec.Struct, frozen=True, kw_only=True):
    """A user. `id` is what JQL takes, `ids` what issues and their histories may call them, in lower case."""

    id: str
    ids: frozenset[str]
    label: str


def person_of(data: Any) -> Person | None:
    """The user that Jira describes; None when it describes none."""
    if not isinstance(data, Mapping):
        return None
    texts = {name: data[name] for name in _NAMES if isinstance(data.get(name), str) and data[name]}
    id = texts.get("accountId") or texts.get("name") or texts.get("key")
    if not id:
        return None
    known = [texts[name] for name in ("accountId", "name", "key") if name in texts]
    shown = texts.get("displayName", id)
    mail = f", {texts['emailAddress']}" if "emailAddress" in texts else ""
    return Person(id=id, ids=frozenset(name.casefold() for name in known), label=f"{shown} ({id}{mail})")


async def myself(site: Site) -> Mapping[str, Any]:
    """What Jira says about the account itself."""
    found = await site.ask("GET", "/myself")
    if person_of(found) is None:
        raise NeedsAttention(f"{site.name} does not say who the account is", fix="Check base_url")
    return dict(found)


async def find_person(site: Site, written: str) -> Person:
    """The one user who is meant. NeedsAttention when there is none, or more than one."""
    asks_for_me = written.casefold() == ME
    # a token with few scopes may not ask who it is, and need not in order to read what is assigned to an account id
    me = await (myself(site) if asks_for_me else site.find("/myself"))
    if (found := person_of(me)) is not None and (asks_for_me or _is(me, written)):
        return found
    cloud = await site.cloud()
    exact = await site.find("/user", params={"accountId" if cloud else "username": written})
    if (found := person_of(exact)) is not None:
        return found
    listed = await site.find("/user/search", params={"query" if cloud else "username": written, "maxResults": 50})
    if listed is None and cloud and _ACCOUNT_ID.fullmatch(written):
        # looking up others takes a permission of its own; an account id needs no looking up
        return Person(id=written, ids=frozenset({written.casefold()}), label=f"{written} (not looked up)")
    if listed is None:
        fix = "Write the account id or user name, or give the account the permission Browse users and groups"
        raise NeedsAttention(f"{site.name} does not let the account look up {written!r}", fix=fix)
    return _the_one(listed, written, site)


def _the_one(listed: Any, written: str, site: Site) -> Person:
    users = [user for user in listed if isinstance(user, Mapping)] if isinstance(listed, list) else []
    users = [user for user in users if user.get("accountType", "atlassian") != "app" and person_of(user)]
    exact = [user for user in users if _is(user, written)]
    # an e-mail address is hidden by most profiles, but it is searched: a single hit is the one
    meant = exact or (users if "@" in written else [])
    people = [person for user in meant if (person := person_of(user))]
    if len(people) == 1:
        return people[0]
    if people:
        names = ", ".join(person.label for person in people[:SHOWN])
        raise NeedsAttention(f"{written!r} may be several users: {names}", fix="Write the account id or user name")
    near = _near(users)
    raise NeedsAttention(f"{site.name} has no user {written!r}{near}", fix="Write the id that whoami shows")


def _near(users: Sequence[Mapping[str, Any]]) -> str:
    people = [person.label for user in users[:SHOWN] if (person := person_of(user))]
    return f"; there is {', '.join(people)}" if people else ""


def _is(user: Mapping[str, Any], written: str) -> bool:
    return any(isinstance(user.get(name), str) and user[name].casefold() == written.casefold() for name in _NAMES)
