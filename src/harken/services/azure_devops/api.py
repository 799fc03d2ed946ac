"""How Azure DevOps is called: its addresses and headers, and what its refusals mean to the person who reads them.

https://learn.microsoft.com/en-us/rest/api/azure/devops/
https://learn.microsoft.com/en-us/azure/devops/integrate/concepts/rate-limits
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any

import msgspec
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, field_validator

from harken.errors import NeedsAttention, RetryLater
from harken.http import Reply, raise_for
from harken.kit.account_fields import one_word, split_server_address
from harken.kit.changed_lists import server_time
from harken.kit.fields import describe, text_of
from harken.kit.json_api import address_of
from harken.source import Host

__all__ = ["MOST", "Account", "Api", "Found", "Project", "TooMany", "listed", "told"]

CONFIGURE = "harken integrations azure_devops configure"
MOST = 200
"""So many work items may be asked for at once."""
_TOO_MANY = "WorkItemTrackingQueryResultSizeLimitExceededException"
_NOT_IN_NAMES = re.compile(r"""[\\/:~&%;@'"?<>|#$*{},+=\[\]\x00-\x1f\x7f]""")
_SCOPES = "a personal access token needs Work Items (Read), for actions Work Items (Read & write)"
_FIXES = {
    401: f"The token is wrong, expired or revoked: store a valid one with {CONFIGURE}",
    403: f"The token may not do this: {_SCOPES}. Store one with {CONFIGURE}",
    404: f"It does not exist, or the token may not see it: {_SCOPES}. Check organization and projects, or: {CONFIGURE}",
}


class TooMany(Exception):
    """The query finds more work items than Azure DevOps lists."""


class Found(msgspec.Struct, frozen=True):
    """Ids in the order of the query, and when the answer was given."""

    ids: Sequence[int]
    at: datetime


def _a_name(value: str) -> str:
    name = value.strip()
    if not name or len(name) > 64 or name in (".", "..") or _NOT_IN_NAMES.search(name):
        raise ValueError("this is not a name: write it as it stands in the address, https://dev.azure.com/NAME/PROJECT")
    return name


Project = Annotated[str, AfterValidator(_a_name)]


class Account(BaseModel):
    """A personal access token of one organization."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)
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
    def _address(cls, value: str) -> str:
        parts = split_server_address(value, "an address of a server, such as https://dev.azure.com")
        if (parts.hostname or "").endswith(".visualstudio.com"):
            raise ValueError("this is the older address: leave base_url out, and write the first word as organization")
        return value.rstrip("/")


class Api:
    """Requests in the name of one account. Each is answered with the reply, whatever its status is."""

    def __init__(self, account: Account, host: Host) -> None:
        self._account = account
        self._host = host
        self._secret = base64.b64encode(f":{account.token.get_secret_value()}".encode()).decode()

    def address(self, *path: str) -> str:
        """An address within the organization."""
        return address_of(self._account.base_url, self._account.organization, *path)

    async def ask(self, *path: str, params: Mapping[str, str | int] | None = None, version: str = "") -> Reply:
        return await self._send("GET", self.address(*path), params=params or {}, version=version)

    async def find(self, project: str, wiql: str, most: int) -> Found:
        """The ids that a query finds, in its order. Raises TooMany where it finds more than are listed."""
        asked: dict[str, str | int] = {"timePrecision": "true", "$top": most}
        url = self.address(project, "_apis", "wit", "wiql")
        reply = await self._send("POST", url, params=asked, json={"query": wiql})
        if reply.status == 400 and text_of(reply.json(), "typeKey") == _TOO_MANY:
            raise TooMany
        found = listed(reply, f"the query for work items of {project}", "workItems")
        ids = [one["id"] for one in found if isinstance(one, Mapping) and type(one.get("id")) is int]
        return Found(ids, server_time(reply, self._host.clock.now()))

    async def items(self, ids: Sequence[int], fields: Sequence[str]) -> list[Any]:
        """The work items, without those that are gone by now. At most MOST ids."""
        params = {"ids": ",".join(map(str, ids)), "fields": ",".join(fields), "errorPolicy": "omit"}
        reply = await self.ask("_apis", "wit", "workitems", params=params)
        return [one for one in listed(reply, "the work items") if one is not None]

    async def updates(self, id: int, most_pages: int) -> tuple[list[Any], bool] | None:
        """What happened to a work item, oldest first, and whether that is all of it; None when it is gone."""
        found: list[Any] = []
        for page in range(most_pages):
            params = {"$top": MOST, "$skip": page * MOST}
            reply = await self.ask("_apis", "wit", "workItems", str(id), "updates", params=params)
            if reply.status == 404:
                return None
            part = listed(reply, f"the history of work item {id}")
            found += part
            if len(part) < MOST:
                return found, True
        return found, False

    async def patch(self, id: int, operations: Sequence[Mapping[str, Any]]) -> Reply:
        url = self.address("_apis", "wit", "workitems", str(id))
        return await self._send(
            "PATCH", url, data=msgspec.json.encode(operations), kind="application/json-patch+json", params={}
        )

    async def _send(
        self, method: str, url: str, *, params: Mapping[str, str | int], version: str = "", kind: str = "", **body: Any
    ) -> Reply:
        headers = {
            "Authorization": f"Basic {self._secret}",
            "Accept": "application/json",
            # a refused token is answered with 401, and not with the way to a page for people
            "X-TFS-FedAuthRedirect": "Suppress",
            **({"Content-Type": kind} if kind else {}),
        }
        return await self._host.http.request(
            method,
            url,
            headers=headers,
            params={**params, "api-version": version or self._account.api_version},
            allow_private=self._host.allow_private,
            follow_redirects=False,
            **body,
        )


def told(reply: Reply, what: str = "") -> None:
    """Return if the answer is a success, else raise the error that says what to do about it."""
    if reply.status in (203, 302):
        # the page for signing in, in place of an answer
        message = f"{reply.url.host} wants somebody to sign in, in answer to {what or reply.method}"
        raise NeedsAttention(message, fix=_FIXES[401])
    raise_for(reply, what, fix=_FIXES.get(reply.status, ""))


def listed(reply: Reply, what: str = "", key: str = "value") -> list[Any]:
    """The list in an answer."""
    told(reply, what)
    document = reply.json()
    found = document.get(key) if isinstance(document, Mapping) else None
    if not isinstance(found, list):
        seen = describe(document)
        raise RetryLater(f"{reply.url.host} answered with something that has no list; {seen}", fix="Check base_url")
    return found
