"""Whose token it is, and whether what a query names exists.

https://docs.github.com/en/rest/users/users#get-the-authenticated-user
https://docs.github.com/en/rest/apps/apps#get-the-authenticated-app
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harken.http import Reply
from harken.kit.values_from_payload import text_of
from harken.services.github.api import Account, Api
from harken.services.github.app import NotInstalled
from harken.services.github.query import Query
from harken.source import Checked, Host

__all__ = ["check", "whoami"]

MAX_PAGES = 10


async def whoami(account: Account, host: Host) -> Mapping[str, Any]:
    """The user whose token it is, or the app. A token of an app belongs to no user, and the result says so."""
    api = Api(account, host)
    if api.tokens is not None:
        return _describe_app(await api.tokens.app.describe(host))
    reply = await api.get(api.url("user"))
    if reply.status == 403 and "X-RateLimit-Remaining" in reply.headers and not _is_limited(reply):
        # the installation of an app is no user, but it may read its rate limit
        api.check(await api.get(api.url("rate_limit")))
        return {"login": "", "token": "of an app's installation: it works, and belongs to no user"}
    api.check(reply)
    user = reply.json()
    scopes = reply.headers.get("X-OAuth-Scopes")
    return {
        "login": text_of(user, "login") or "",
        "id": text_of(user, "id") or "",
        "name": text_of(user, "name") or "",
        "email": text_of(user, "email") or "",
        "html_url": text_of(user, "html_url") or "",
        "token": "fine-grained" if scopes is None else "classic",
        "scopes": "set by repository and permission" if scopes is None else scopes or "none: public data only",
        "expires": reply.headers.get("github-authentication-token-expiration", ""),
    }


def _describe_app(app: Mapping[str, Any]) -> Mapping[str, Any]:
    granted = app.get("permissions")
    permissions = [f"{name}: {level}" for name, level in granted.items()] if isinstance(granted, Mapping) else []
    return {
        "login": f"{text_of(app, 'slug') or ''}[bot]",
        "name": text_of(app, "name") or "",
        "html_url": text_of(app, "html_url") or "",
        "token": "made for each repository with the key of this app, for an hour",
        "scopes": ", ".join(sorted(permissions)) or "none",
    }


def _is_limited(reply: Reply) -> bool:
    return b"rate limit" in reply.body.lower() or "Retry-After" in reply.headers


async def check(query: Query, account: Account, host: Host) -> Checked:
    """Look up every repository, its labels and milestone, and every person in the query."""
    api = Api(account, host)
    found: dict[str, str] = {}
    unknown: list[str] = []
    for repo in query.repos:
        try:
            reply = await api.get(api.repo_url(repo))
        except NotInstalled as error:
            unknown.append(error.message)
            continue
        if reply.status == 404:
            unknown.append(f"there is no repository {repo}, or the token may not see it: it needs Issues (read) on it")
            continue
        api.check(reply)
        found[repo] = _describe_repo(reply.json(), repo)
        unknown += await _missing_names(api, query, repo)
    people = [*([query.assignee] if query.assignee and query.assignee.lower() != "none" else []), *query.author]
    for login in people:
        reply = await api.get(api.url("users", login))
        if reply.status == 404:
            unknown.append(f"there is no user {login}: write the login, which stands behind @ at GitHub")
            continue
        api.check(reply)
        found[login] = f"user {text_of(reply.json(), 'name') or login}"
    return Checked(found=found, unknown=unknown)


def _describe_repo(document: Any, repo: str) -> str:
    name = text_of(document, "full_name") or repo
    if document.get("has_issues") is False:
        return f"repository {name}, where issues are disabled"
    if name.lower() != repo.lower():
        return f"repository {name}, as it is called now: write that"
    return f"{'private' if document.get('private') else 'public'} repository {name}"


async def _missing_names(api: Api, query: Query, repo: str) -> list[str]:
    missing = []
    for label in query.labels:
        reply = await api.get(api.repo_url(repo, "labels", label))
        if reply.status == 404:
            missing.append(f"there is no label {label!r} in {repo}: make it there, or correct the name")
            continue
        api.check(reply)
    if query.milestone and query.milestone.casefold() not in await _milestone_titles(api, repo):
        missing.append(f"there is no milestone {query.milestone!r} in {repo}: write its title")
    return missing


async def _milestone_titles(api: Api, repo: str) -> set[str]:
    reply = await api.get(api.repo_url(repo, "milestones"), [("state", "all"), ("per_page", 100)])
    milestones, _ = await api.read_list(reply, MAX_PAGES)
    return {(text_of(milestone, "title") or "").casefold() for milestone in milestones}
