"""Whose token it is, and whether what a query names exists.

https://docs.gitlab.com/api/users/ · https://docs.gitlab.com/api/personal_access_tokens/
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harken.kit.values_from_payload import text_of
from harken.services.gitlab.api import Account, Api
from harken.services.gitlab.query import Query
from harken.source import Checked, Host

__all__ = ["check", "whoami"]


async def whoami(account: Account, host: Host) -> Mapping[str, Any]:
    """The user whose token it is; a token of a project or group has a user of its own."""
    api = Api(account, host)
    reply = await api.get(api.url("user"))
    api.check(reply)
    user = reply.json()
    token = await api.get(api.url("personal_access_tokens", "self"))
    about = token.json() if token.status == 200 else {}
    scopes = about.get("scopes") if isinstance(about, dict) else None
    return {
        "username": text_of(user, "username") or "",
        "id": text_of(user, "id") or "",
        "name": text_of(user, "name") or "",
        "email": text_of(user, "email") or "",
        "web_url": text_of(user, "web_url") or "",
        "scopes": ", ".join(map(str, scopes)) if isinstance(scopes, list) else "",
        "expires": text_of(about, "expires_at") or "",
    }


async def check(query: Query, account: Account, host: Host) -> Checked:
    """Look up every project, its labels and milestone, and every person in the query."""
    api = Api(account, host)
    found: dict[str, str] = {}
    unknown: list[str] = []
    for project in query.projects:
        reply = await api.get(api.project_url(project))
        if reply.status == 404:
            unknown.append(f"there is no project {project}, or the token may not see it: it needs the scope read_api")
            continue
        api.check(reply)
        name = text_of(reply.json(), "path_with_namespace") or project
        moved = not project.isdigit() and name.lower() != project.lower()
        found[project] = f"project {name}{', as it is called now: write that' if moved else ''}"
        unknown += await _missing_names(api, query, project)
    people = [*([query.assignee] if query.assignee and query.assignee.lower() != "none" else []), *query.author]
    for person in people:
        users = api.expect_list(await api.get(api.url("users"), [("username", person)]))
        if not users:
            unknown.append(f"there is no user {person}: write the name that stands behind @ at GitLab")
            continue
        found[person] = f"user {text_of(users[0], 'name') or person}"
    return Checked(found=found, unknown=unknown)


async def _missing_names(api: Api, query: Query, project: str) -> list[str]:
    missing = []
    for label in query.labels:
        reply = await api.get(api.project_url(project, "labels", label))
        if reply.status == 404:
            missing.append(f"there is no label {label!r} in {project}: capitals matter; make it, or correct the name")
            continue
        api.check(reply)
    if query.milestone:
        params: list[tuple[str, str | int]] = [("title", query.milestone), ("include_ancestors", "true")]
        if not api.expect_list(await api.get(api.project_url(project, "milestones"), params)):
            missing.append(f"there is no milestone {query.milestone!r} in {project}: write its title")
    return missing
