"""How GitLab is called: its headers, its addresses, and what its refusals mean to the person who reads them.

https://docs.gitlab.com/api/rest/ · https://docs.gitlab.com/api/rest/authentication/
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, field_validator

from harken.http import Reply, raise_for
from harken.kit.account_fields import one_word, split_server_address
from harken.kit.json_api import RestApi
from harken.source import Host

__all__ = ["Account", "Api", "Project", "told"]

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
    token: Annotated[SecretStr, one_word("an access token")] = Field(
        description="access token with the scope read_api (api, if steps write)"
    )
    base_url: str = Field("https://gitlab.com", description="address of GitLab (your own server: https://HOST)")

    @field_validator("base_url")
    @classmethod
    def _address(cls, value: str) -> str:
        split_server_address(value, "an address of GitLab, such as https://gitlab.com")
        return value.rstrip("/").removesuffix("/api/v4").rstrip("/")


class Api(RestApi):
    """GitLab, in the name of one account."""

    def __init__(self, account: Account, host: Host) -> None:
        headers = {"PRIVATE-TOKEN": account.token.get_secret_value(), "Accept": "application/json"}
        root = f"{account.base_url}/api/v4"
        super().__init__(host, root=root, headers=headers, told=told, next_page=_next_page)

    def project(self, name: str, *path: str) -> str:
        """An address within a project, whose path is one part of it."""
        return self.address("projects", name, *path)


def told(reply: Reply, what: str = "") -> None:
    """Return if the answer is a success or a 304, else raise the error that says what to do about it."""
    raise_for(reply, what, fix=_FIXES.get(reply.status, ""))


def _next_page(reply: Reply) -> str | None:
    """Where the list goes on. Its number comes first: behind a proxy, Link may name an address that leads nowhere."""
    number = reply.headers.get("X-Next-Page")
    if number is None:
        return reply.link("next")
    return str(reply.url.update_query({"page": number.strip()})) if number.strip().isdigit() else None
