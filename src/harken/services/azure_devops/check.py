"""Whose token it is, and whether what a query names exists. All of it with the scope that reading needs.

https://learn.microsoft.com/en-us/rest/api/azure/devops/wit/work-item-types/list
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harken.errors import NeedsAttention
from harken.kit.values_from_payload import text_of
from harken.services.azure_devops.api import CONFIGURE, Account, Api
from harken.services.azure_devops.query import Query
from harken.source import Checked, Host

__all__ = ["check", "whoami"]

# the id of a user who was not recognised
ANONYMOUS = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa"


async def whoami(account: Account, host: Host) -> Mapping[str, Any]:
    """The user whose token it is."""
    api = Api(account, host)
    reply = await api.get(api.url("_apis", "connectionData"), {"api-version": f"{account.api_version}-preview"})
    user = api.expect_object(reply).get("authenticatedUser")
    id = text_of(user, "id") if isinstance(user, Mapping) else None
    if id in (None, ANONYMOUS):
        raise NeedsAttention("Azure DevOps does not know this token", fix=f"Store a valid one with {CONFIGURE}")
    return {
        "id": id,
        "name": text_of(user, "providerDisplayName") or text_of(user, "customDisplayName") or "",
        "email": text_of(user, "properties.Account.$value") or "",
        "organization": account.organization,
    }


async def check(query: Query, account: Account, host: Host) -> Checked:
    """Look up every project, and there the types, states, tags and the area of the query."""
    api = Api(account, host)
    found: dict[str, str] = {}
    unknown: list[str] = []
    for project in query.projects:
        reply = await api.get(api.url(project, "_apis", "wit", "workitemtypes"))
        if reply.status == 404:
            unknown.append(f"there is no project {project}, or the token may not see it: it needs Work Items (Read)")
            continue
        listed = api.expect_list(reply, f"the types of {project}", key="value")
        types = [type for type in listed if isinstance(type, Mapping)]
        found[project] = f"project with {len(types)} types of work items"
        unknown += _missing_types(query, project, types)
        unknown += await _missing_tags(api, query, project)
    unknown += await _missing_area(api, query)
    return Checked(found=found, unknown=unknown)


def _missing_types(query: Query, project: str, types: list[Mapping[str, Any]]) -> list[str]:
    names = {(text_of(one, "name") or "").casefold(): one for one in types}
    missing = [
        f"there is no type {name!r} in {project}. There are: {_join_names(types)}"
        for name in query.types
        if name.casefold() not in names
    ]
    chosen = [names[name.casefold()] for name in query.types if name.casefold() in names] or types
    states = [state for one in chosen for state in one.get("states") or [] if isinstance(state, Mapping)]
    known = {(text_of(state, "name") or "").casefold() for state in states}
    # older servers do not list states here
    wrong = [name for name in query.states if known and name.casefold() not in known]
    return missing + [f"there is no state {name!r} in {project}. There are: {_join_names(states)}" for name in wrong]


async def _missing_tags(api: Api, query: Query, project: str) -> list[str]:
    if not query.tags:
        return []
    reply = await api.get(api.url(project, "_apis", "wit", "tags"), {"api-version": "7.1-preview.1"})
    if reply.status in (400, 404):
        return []  # the server has no list of tags
    known = {(text_of(one, "name") or "").casefold() for one in api.expect_list(reply, key="value")}
    wrong = [tag for tag in query.tags if tag.casefold() not in known]
    return [f"there is no tag {tag!r} in {project}: give it to a work item there, or correct it" for tag in wrong]


async def _missing_area(api: Api, query: Query) -> list[str]:
    if not query.area_path:
        return []
    project, _, rest = query.area_path.partition("\\")
    below = [part for part in rest.split("\\") if part]
    reply = await api.get(api.url(project, "_apis", "wit", "classificationnodes", "Areas", *below))
    if reply.status == 404:
        return [f"there is no area {query.area_path!r}: write it as a work item shows it, PROJECT\\AREA"]
    api.check(reply)
    return []


def _join_names(named: list[Mapping[str, Any]]) -> str:
    names = dict.fromkeys(text_of(one, "name") or "" for one in named)
    return ", ".join(list(names)[:15])
