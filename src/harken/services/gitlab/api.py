"""How GitLab is called: its headers, its addresses, and what its refusals mean to the person who reads them.

https://docs.gitlab.com/api/rest/ · https://docs.gitlab.com/api/rest/authentication/
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any
from urllib.parse import quote, urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, field_validator

from harken.errors import RetryLater
from harken.http import Reply, Validators, raise_for
from harken.services.fields import described
from harken.services.signing_in import one_word, server_address
from harken.source import Host

__all__ = ["Account", "Api", "Project", "following_page", "listed", "told"]

CONFIGURE = "harken integrations gitlab configure"
_PROJECT = re.compile(r"\d{1,18}|(?:[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}/)+[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}")
_SCOPES = "reading takes the scope read_api, actions take api and the role Reporter in this project"
_FIXES = {
    400: "Check that labels, assignee and milestone are names that exist in this project",
    401: f"The token is wrong, expired or revoked: store a valid one with {CONFIGURE}",
    403: f"The token may not do this: {_SCOPES}. Store one with {CONFIGURE}",
    404: f"It does not exist, or the token may not see it: {_SCOPES}. Check the name, or: {CONFIGURE}",
}


def _a_project(value: str) -> str:
    if not _PROJECT.fullmatch(value):
        raise ValueError("this is not a project: write group/name, the end of the address of its page, or its number")
    return value


Project = Annotated[
    str, BeforeValidator(lambda value: str(value) if type(value) is int else value), AfterValidator(_a_project)
]


class Account(BaseModel):
    """An access token: personal, or of a project or group."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)
    token: SecretStr = Field(description="access token with the scope read_api (api, if steps write)")
    base_url: str = Field("https://gitlab.com", description="address of GitLab (your own server: https://HOST)")

    @field_validator("token")
    @classmethod
    def _one_word(cls, value: SecretStr) -> SecretStr:
        return one_word(value, "an access token")

    @field_validator("base_url")
    @classmethod
    def _address(cls, value: str) -> str:
        server_address(value, "an address of GitLab, such as https://gitlab.com")
        return value.rstrip("/").removesuffix("/api/v4").rstrip("/")


class Api:
    """Requests in the name of one account. Each is answered with the reply, whatever its status is."""

    def __init__(self, account: Account, host: Host) -> None:
        self._account = account
        self._host = host

    @property
    def name(self) -> str:
        return urlsplit(self._account.base_url).hostname or "GitLab"

    def address(self, *path: str) -> str:
        return "/".join((self._account.base_url, "api/v4", *(quote(part, safe="") for part in path)))

    def project(self, name: str, *path: str) -> str:
        """An address within a project, whose path is one part of it."""
        return self.address("projects", name, *path)

    async def ask(
        self, url: str, params: Sequence[tuple[str, str | int]] = (), conditional: Validators | None = None
    ) -> Reply:
        return await self._send("GET", url, params=list(params), conditional=conditional)

    async def rest(self, reply: Reply, most: int) -> tuple[list[Any], bool]:
        """What a listing holds from this page on, and whether that is all of it."""
        found: list[Any] = []
        for _ in range(most):
            found += listed(reply)
            following = following_page(reply)
            if following is None:
                return found, True
            reply = await self.ask(following)
        return found, False

    async def write(self, method: str, url: str, json: Any) -> Reply:
        return await self._send(method, url, json=json)

    async def _send(self, method: str, url: str, **options: Any) -> Reply:
        return await self._host.http.request(
            method,
            url,
            headers={"PRIVATE-TOKEN": self._account.token.get_secret_value(), "Accept": "application/json"},
            allow_private=self._host.allow_private,
            **options,
        )


def told(reply: Reply, what: str = "") -> None:
    """Return if the answer is a success or a 304, else raise the error that says what to do about it."""
    raise_for(reply, what, fix=_FIXES.get(reply.status, ""))


def listed(reply: Reply, what: str = "") -> list[Any]:
    """The list in an answer."""
    told(reply, what)
    document = reply.json()
    if not isinstance(document, list):
        seen = described(document)
        raise RetryLater(f"{reply.url.host} answered with something that is no list; {seen}", fix="Check base_url")
    return document


def following_page(reply: Reply) -> str | None:
    """Where the list goes on. Its number comes first: behind a proxy, Link may name an address that leads nowhere."""
    number = reply.headers.get("X-Next-Page")
    if number is None:
        return reply.link("next")
    return str(reply.url.update_query({"page": number.strip()})) if number.strip().isdigit() else None
