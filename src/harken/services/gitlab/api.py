"""The account, the client for GitLab's REST API, and the errors that its refusals become.

https://docs.gitlab.com/api/rest/ · https://docs.gitlab.com/api/rest/authentication/
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, field_validator

from harken.http import Reply
from harken.kit.credential_field_validation import configure_hint, one_word, split_server_address
from harken.kit.json_api import JsonApi
from harken.kit.models import AccountModel
from harken.source import Host

__all__ = ["Account", "Api", "Project", "check_project"]

CONFIGURE = configure_hint("gitlab")
_PROJECT = re.compile(r"\d{1,18}|(?:[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}/)+[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}")
_SCOPES = "reading takes the scope read_api, actions take api and the role Reporter in this project"
_FIXES = {
    400: "Check that labels, assignee, milestone and branches are names that exist in this project",
    401: f"The token is wrong, expired or revoked: store a valid one with {CONFIGURE}",
    403: f"The token may not do this: {_SCOPES}. Store one with {CONFIGURE}",
    404: f"It does not exist, or the token may not see it: {_SCOPES}. Check the name, or: {CONFIGURE}",
}


def check_project(value: str) -> str:
    """Return the project, or raise ValueError if this cannot be one."""
    if not _PROJECT.fullmatch(value):
        raise ValueError("this is not a project: write group/name, the end of the address of its page, or its number")
    return value


Project = Annotated[
    str, BeforeValidator(lambda value: str(value) if type(value) is int else value), AfterValidator(check_project)
]


class Account(AccountModel):
    """An access token: personal, or of a project or group."""

    token: Annotated[SecretStr, one_word("an access token")] = Field(
        description="access token with the scope read_api (api, if steps write)"
    )
    base_url: str = Field("https://gitlab.com", description="address of GitLab (your own server: https://HOST)")

    @field_validator("base_url")
    @classmethod
    def _check_address(cls, value: str) -> str:
        split_server_address(value, "an address of GitLab, such as https://gitlab.com")
        return value.rstrip("/").removesuffix("/api/v4").rstrip("/")


class Api(JsonApi):
    """GitLab, in the name of one account."""

    def __init__(self, account: Account, host: Host) -> None:
        headers = {"PRIVATE-TOKEN": account.token.get_secret_value()}
        base_url = f"{account.base_url}/api/v4"
        super().__init__(host, base_url=base_url, headers=headers, fixes=_FIXES, next_page=_next_page)

    def project_url(self, name: str, *path: str) -> str:
        """A URL within a project. Its whole path, with slashes, is one part of the URL."""
        return self.url("projects", name, *path)


def _next_page(reply: Reply) -> str | None:
    """Prefer the number of the page: behind a proxy, the Link header may name a host that cannot be reached."""
    number = reply.headers.get("X-Next-Page")
    if number is None:
        return reply.link("next")
    return str(reply.url.update_query({"page": number.strip()})) if number.strip().isdigit() else None
