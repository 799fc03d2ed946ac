"""Whose account it is, and whether what a query names exists."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from harken.errors import NeedsAttention
from harken.kit.values_from_payload import text_of
from harken.services.jira.api import Account, Api, find_person, read_myself
from harken.services.jira.query import Query, QueryPeople, jql_of
from harken.source import Checked, Host
from harken.suggest import suggest_clause

__all__ = ["check", "whoami"]


async def whoami(account: Account, host: Host) -> Mapping[str, Any]:
    """The ids of the account, as queries take them."""
    api = Api(account, host)
    me = await read_myself(api)
    return {
        "id": text_of(me, "accountId") or text_of(me, "name"),
        "name": text_of(me, "displayName"),
        "email": text_of(me, "emailAddress"),
        "username": text_of(me, "name"),
        "time_zone": text_of(me, "timeZone"),
        "deployment": "cloud" if await api.is_cloud() else "server",
        "site": account.base_url,
    }


async def check(query: Query, account: Account, host: Host) -> Checked:
    """Look up every name in the query, then let Jira parse all of it."""
    api = Api(account, host)
    await read_myself(api)
    found: dict[str, str] = {}
    unknown: list[str] = []
    await _look_up_users(api, query, found, unknown)
    await _look_up(query.all_projects, lambda key: _describe_project(api, key), found, unknown)
    await _look_up_names(api, "/status", "status", query.statuses, found, unknown)
    await _look_up_names(api, "/issuetype", "issue type", query.issue_types, found, unknown)
    for label in query.labels:
        found[label] = "a label; whether it is in use cannot be asked"
    if not unknown:
        await _try_search(api, query, found, unknown)
    return Checked(found=found, unknown=unknown)


async def _look_up(
    names: Sequence[str], look: Callable[[str], Awaitable[str]], found: dict[str, str], unknown: list[str]
) -> None:
    for name in names:
        try:
            found[name] = await look(name)
        except NeedsAttention as error:
            unknown.append(str(error))


async def _look_up_users(api: Api, query: Query, found: dict[str, str], unknown: list[str]) -> None:
    async def look(name: str) -> str:
        return (await find_person(api, name)).label

    await _look_up(tuple(dict.fromkeys((*query.assignee, *query.mentioned))), look, found, unknown)


async def _describe_project(api: Api, key: str) -> str:
    project = await api.find(f"/project/{quote(key, safe='')}")
    if project is None:
        raise NeedsAttention(
            f"{api.name} shows no project {key!r}", fix="Check its key, and that the account may see it"
        )
    return f"project {text_of(project, 'name') or key}"


async def _look_up_names(
    api: Api, path: str, what: str, names: Sequence[str], found: dict[str, str], unknown: list[str]
) -> None:
    listed = await api.call("GET", path) if names else []
    known = {name: one for one in listed if (name := text_of(one, "name"))} if isinstance(listed, list) else {}
    folded = {name.casefold(): name for name in known}
    ids = {text_of(one, "id"): name for name, one in known.items()}
    for name in names:
        match = folded.get(name.casefold()) or ids.get(name)
        if match:
            found[name] = f"{what} {match}"
        else:
            unknown.append(f"{api.name} has no {what} {name!r}{suggest_clause(name, known)}. Correct it")


async def _try_search(api: Api, query: Query, found: dict[str, str], unknown: list[str]) -> None:
    """Only Jira can tell whether the parts fit together, and whether raw JQL is valid."""
    people = QueryPeople(assignees=tuple([await find_person(api, name) for name in query.assignee]))
    params: dict[str, str | int] = {
        "jql": jql_of(query, people, api.host.clock.now()),
        "maxResults": 1,
        "fields": "summary",
    }
    path = "/search/jql" if await api.is_cloud() else "/search"
    try:
        await api.call("GET", path, params=params)
    except NeedsAttention as error:
        unknown.append(str(error))
        return
    if query.jql:
        found[query.jql] = "JQL that Jira understands"
