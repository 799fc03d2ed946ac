"""The account, the client for the REST API of Azure DevOps, and the errors that its refusals become.

https://learn.microsoft.com/en-us/rest/api/azure/devops/
https://learn.microsoft.com/en-us/azure/devops/integrate/concepts/rate-limits
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any

import msgspec
from pydantic import AfterValidator, Field, SecretStr, field_validator

from harken.errors import HarkenError, NeedsAttention
from harken.http import Reply
from harken.kit.credential_field_validation import basic_auth, configure_hint, one_word, split_server_address
from harken.kit.json_api import JsonApi, join_url, server_time
from harken.kit.models import AccountModel
from harken.kit.values_from_payload import text_of
from harken.outgoing_rate_limit import is_rate_limited
from harken.source import Host

__all__ = [
    "CONFIGURE",
    "MAX_ITEMS",
    "Account",
    "Api",
    "Project",
    "QueryResult",
    "TooManyItems",
    "check_name",
    "error_detail",
]

CONFIGURE = configure_hint("azure_devops")
MAX_ITEMS = 200
"""Work items, or updates of one, that a request may ask for."""
_TOO_MANY = "WorkItemTrackingQueryResultSizeLimitExceededException"
_MAY_NOT_CREATE_TAGS = "TF401289"
_NOT_IN_NAMES = re.compile(r"""[\\/:~&%;@'"?<>|#$*{},+=\[\]\x00-\x1f\x7f]""")
_SCOPES = (
    "a personal access token needs Work Items (Read), for actions Work Items (Read & write), "
    "for pull requests Code (Read & write)"
)
_FIXES = {
    401: f"The token is wrong, expired or revoked: store a valid one with {CONFIGURE}",
    403: f"The token may not do this: {_SCOPES}. Store one with {CONFIGURE}",
    404: f"It does not exist, or the token may not see it: {_SCOPES}. Check organization and projects, or: {CONFIGURE}",
}


class TooManyItems(Exception):
    """The query finds more work items than Azure DevOps lists."""


class QueryResult(msgspec.Struct, frozen=True):
    """Ids in the order of the query, and when the server answered."""

    ids: Sequence[int]
    at: datetime


def check_name(value: str) -> str:
    name = value.strip()
    if not name or len(name) > 64 or name in (".", "..") or _NOT_IN_NAMES.search(name):
        raise ValueError("this is not a name: write it as it stands in the address, https://dev.azure.com/NAME/PROJECT")
    return name


Project = Annotated[str, AfterValidator(check_name)]


class Account(AccountModel):
    """A personal access token of one organization."""

    organization: Project = Field(description="organization, the first part of the address after dev.azure.com/")
    token: Annotated[SecretStr, one_word("a personal access token")] = Field(
        description="personal access token with Work Items (Read, or Read & write for actions)"
    )
    base_url: str = Field(
        "https://dev.azure.com",
        description="address (Azure DevOps Server: https://HOST/tfs, with the collection as organization)",
    )
    api_version: str = Field(
        "7.1", pattern=r"^[1-9][0-9]?\.[0-9]$", description="version of the API; 7.0 or 6.0 for an older server"
    )

    @field_validator("base_url")
    @classmethod
    def _check_address(cls, value: str) -> str:
        parts = split_server_address(value, "an address of a server, such as https://dev.azure.com")
        if (parts.hostname or "").endswith(".visualstudio.com"):
            raise ValueError("this is the older address: leave base_url out, and write the first word as organization")
        return value.rstrip("/")


class Api(JsonApi):
    """One organization of Azure DevOps, in the name of one account."""

    def __init__(self, account: Account, host: Host) -> None:
        super().__init__(
            host,
            base_url=join_url(account.base_url, account.organization),
            headers={
                "Authorization": basic_auth("", account.token.get_secret_value()),
                # a refused token is answered with 401, not with a redirect to the login page
                "X-TFS-FedAuthRedirect": "Suppress",
            },
            params={"api-version": account.api_version},
            fixes=_FIXES,
            refuse=_refuse,
            follow_redirects=False,
        )
        self._may_be_quiet = True

    async def query_ids(self, project: str, wiql: str, max_ids: int) -> QueryResult:
        """Return the ids that a query finds, in its order. Raise TooManyItems where it finds more than are listed."""
        params: dict[str, str | int] = {"timePrecision": "true", "$top": max_ids}
        url = self.url(project, "_apis", "wit", "wiql")
        reply = await self.send("POST", url, params=params, json={"query": wiql})
        if reply.status == 400 and error_detail(reply, "typeKey") == _TOO_MANY:
            raise TooManyItems
        found = self.expect_list(reply, f"the query for work items of {project}", key="workItems")
        ids = [item["id"] for item in found if isinstance(item, Mapping) and type(item.get("id")) is int]
        return QueryResult(ids, server_time(reply, self.host.clock.now()))

    async def read_items(self, ids: Sequence[int], fields: Sequence[str] = ()) -> list[Any]:
        """Read at most MAX_ITEMS work items, without those that were deleted meanwhile; by default all fields."""
        params = {"ids": ",".join(map(str, ids)), "errorPolicy": "omit"}
        if fields:
            params["fields"] = ",".join(fields)
        reply = await self.get(self.url("_apis", "wit", "workitems"), params)
        return [item for item in self.expect_list(reply, "the work items", key="value") if item is not None]

    async def read_updates(self, id: int, max_pages: int) -> tuple[list[Any], bool] | None:
        """Read the history of a work item, oldest first, and whether that is all of it; None when it was deleted."""
        updates: list[Any] = []
        url = self.url("_apis", "wit", "workItems", str(id), "updates")
        for page in range(max_pages):
            reply = await self.get(url, {"$top": MAX_ITEMS, "$skip": page * MAX_ITEMS})
            if reply.status == 404:
                return None
            part = self.expect_list(reply, f"the history of work item {id}", key="value")
            updates += part
            if len(part) < MAX_ITEMS:
                return updates, True
        return updates, False

    async def patch(self, id: int, operations: Sequence[Mapping[str, Any]], *, quiet: bool = False) -> Reply:
        """Change a work item; `quiet`: without notifications, where the token may do that."""
        quiet = quiet and self._may_be_quiet
        reply = await self._patch(id, operations, {"suppressNotifications": "true"} if quiet else {})
        if not quiet or reply.status not in (400, 403) or is_rate_limited(reply.status, reply.headers):
            return reply
        # to suppress notifications is a permission of its own, which few have
        again = await self._patch(id, operations, {})
        self._may_be_quiet = again.status >= 300
        return again

    async def _patch(self, id: int, operations: Sequence[Mapping[str, Any]], params: Mapping[str, str]) -> Reply:
        return await self.send(
            "PATCH",
            self.url("_apis", "wit", "workitems", str(id)),
            params=params,
            headers={"Content-Type": "application/json-patch+json"},
            json=operations,
        )


def error_detail(reply: Reply, key: str) -> str:
    """What a refusal says about itself; empty if it is no JSON of Azure DevOps."""
    try:
        return text_of(reply.json(), key) or ""
    except HarkenError:
        return ""


def _refuse(reply: Reply, what: str) -> None:
    if reply.status in (203, 302):
        message = f"{reply.url.host} wants somebody to sign in, in answer to {what or reply.method}"
        raise NeedsAttention(message, fix=_FIXES[401])
    if reply.status == 403 and _MAY_NOT_CREATE_TAGS in error_detail(reply, "message"):
        message = f"{reply.url.host} answered 403 to {what or reply.method}: the account may not create tags"
        fix = "Give it the permission Create tag definition, or set the tag once yourself in this project"
        raise NeedsAttention(message, fix=fix)
