"""Who the account is, and whether what a query names is there: asked before anyone waits for events in vain."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from harken.errors import NeedsAttention
from harken.kit.fields import text_of
from harken.services.jira.api import Account, Site, find_person, myself
from harken.services.jira.query import Meant, Query, jql_of
from harken.source import Checked, Host
from harken.suggest import suggest_clause

__all__ = ["check", "whoami"]


async def whoami(account: Account, host: Host) -> Mapping[str, Any]:
    """The account's own ids, as queries take them."""
    site = Site(account, host)
    me = await myself(site)
    return {
        "id": text_of(me, "accountId") or text_of(me, "name"),
        "name": text_of(me, "displayName"),
        "email": text_of(me, "emailAddress"),
        "username": text_of(me, "name"),
        "time_zone": text_of(me, "timeZone"),
        "deployment": "cloud" if await site.cloud() else "server",
        "site": account.base_url,
    }


async def check(query: Query, account: Account, host: Host) -> Checked:
    """Look up every name in the query, then let Jira read the whole of it."""
    site = Site(account, host)
    await myself(site)
    found: dict[str, str] = {}
    unknown: list[str] = []
    await _users(site, query, found, unknown)
    await _each(query.all_projects, lambda key: _project(site, key), found, unknown)
    await _named(site, "/status", "status", query.statuses, found, unknown)
    await _named(site, "/issuetype", "issue type", query.issue_types, found, unknown)
    for label in query.labels:
        found[label] = "a label; whether it is in use cannot be asked"
    if not unknown:
        await _whole(site, query, found, unknown)
    return Checked(found=found, unknown=unknown)


async def _each(
    names: Sequence[str], look: Callable[[str], Awaitable[str]], found: dict[str, str], unknown: list[str]
) -> None:
    for name in names:
        try:
            found[name] = await look(name)
        except NeedsAttention as error:
            unknown.append(str(error))


async def _users(site: Site, query: Query, found: dict[str, str], unknown: list[str]) -> None:
    async def look(name: str) -> str:
        return (await find_person(site, name)).label

    await _each(tuple(dict.fromkeys((*query.assignee, *query.mentioned))), look, found, unknown)


async def _project(site: Site, key: str) -> str:
    project = await site.find(f"/project/{quote(key, safe='')}")
    if project is None:
        raise NeedsAttention(
            f"{site.name} shows no project {key!r}", fix="Check its key, and that the account may see it"
        )
    return f"project {text_of(project, 'name') or key}"


async def _named(
    site: Site, path: str, what: str, names: Sequence[str], found: dict[str, str], unknown: list[str]
) -> None:
    listed = await site.ask("GET", path) if names else []
    known = {name: one for one in listed if (name := text_of(one, "name"))} if isinstance(listed, list) else {}
    folded = {name.casefold(): name for name in known}
    ids = {text_of(one, "id"): name for name, one in known.items()}
    for name in names:
        meant = folded.get(name.casefold()) or ids.get(name)
        if meant:
            found[name] = f"{what} {meant}"
        else:
            unknown.append(f"{site.name} has no {what} {name!r}{suggest_clause(name, known)}. Correct it")


async def _whole(site: Site, query: Query, found: dict[str, str], unknown: list[str]) -> None:
    """Jira itself says whether the parts fit together, and whether raw JQL is JQL."""
    meant = Meant(assignees=tuple([await find_person(site, name) for name in query.assignee]))
    asked: dict[str, str | int] = {
        "jql": jql_of(query, meant, site.host.clock.now()),
        "maxResults": 1,
        "fields": "summary",
    }
    path = "/search/jql" if await site.cloud() else "/search"
    try:
        await site.ask("GET", path, params=asked)
    except NeedsAttention as error:
        unknown.append(str(error))
        return
    if query.jql:
        found[query.jql] = "JQL that Jira understands"
