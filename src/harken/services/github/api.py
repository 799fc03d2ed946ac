"""How GitHub is called: its headers, its addresses, and what its refusals mean to the person who reads them.

https://docs.github.com/en/rest/using-the-rest-api/best-practices-for-using-the-rest-api
https://docs.github.com/en/rest/using-the-rest-api/troubleshooting-the-rest-api
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, field_validator

from harken.errors import NeedsAttention, RetryLater
from harken.http import Reply, raise_for
from harken.kit.account_fields import one_word, split_server_address
from harken.kit.fields import text_of
from harken.kit.json_api import RestApi
from harken.source import Host

__all__ = ["Account", "Api", "Repo", "told"]

CONFIGURE = "harken integrations github configure"
VERSION = "2022-11-28"
# what GitHub asks for where it names no time itself
SECONDARY_SECONDS = 60.0
_REPO = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}/(?!\.{1,2}$)[A-Za-z0-9._-]{1,100}")
_SCOPES = (
    "a fine-grained token needs Issues (read; read and write for actions) on this repository, a classic one `repo`"
)
_FIXES = {
    401: f"The token is wrong, expired or revoked: store a valid one with {CONFIGURE}",
    403: f"The token may not do this: {_SCOPES}. Store one with {CONFIGURE}",
    404: f"It does not exist, or the token may not see it: {_SCOPES}. Check the name, or: {CONFIGURE}",
    410: "Issues are disabled in this repository, or the issue was deleted",
    422: "Check that assignee and labels are names that exist at GitHub",
    451: "GitHub blocks this repository for legal reasons: leave it out",
}


def _a_repo(value: str) -> str:
    if not _REPO.fullmatch(value):
        raise ValueError("this is not a repository: write owner/name, the end of the address of its page")
    return value


Repo = Annotated[str, AfterValidator(_a_repo)]


class Account(BaseModel):
    """A personal access token, or one of an app."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)
    token: Annotated[SecretStr, one_word("an access token")] = Field(
        description="access token: fine-grained with Issues, or classic with `repo`"
    )
    base_url: str = Field(
        "https://api.github.com", description="address of the API (GitHub Enterprise: https://HOST/api/v3)"
    )

    @field_validator("base_url")
    @classmethod
    def _address(cls, value: str) -> str:
        parts = split_server_address(value, "an address of an API, such as https://api.github.com")
        if parts.hostname in ("github.com", "www.github.com"):
            raise ValueError("this is the address of the web site. The API is https://api.github.com")
        return value.rstrip("/")


class Api(RestApi):
    """GitHub, in the name of one account."""

    def __init__(self, account: Account, host: Host) -> None:
        headers = {
            "Authorization": f"Bearer {account.token.get_secret_value()}",
            "Accept": "application/vnd.github+json",
            "X-GitHub-Api-Version": VERSION,
        }
        super().__init__(host, root=account.base_url, headers=headers, told=told)

    def repo(self, name: str, *path: str) -> str:
        """An address within a repository."""
        return self.address("repos", *name.split("/"), *path)


def told(reply: Reply, what: str = "") -> None:
    """Return if the answer is a success or a 304, else raise the error that says what to do about it."""
    status = reply.status
    if status == 403:
        _tell_limit(reply)
    if status == 403 and "X-GitHub-SSO" in reply.headers:
        fix = "The organization uses single sign-on: open github.com/settings/tokens and authorize the token for it"
        raise NeedsAttention(f"{reply.url.host} answered 403 to {what or reply.method}", fix=fix)
    raise_for(reply, what, fix=_FIXES.get(status, ""))


def _tell_limit(reply: Reply) -> None:
    """A secondary limit may come without any header that says so."""
    if "Retry-After" in reply.headers or b"rate limit" not in reply.body[:2000].lower():
        return
    document = reply.json()
    message = text_of(document, "message") if isinstance(document, Mapping) else None
    spent = reply.headers.get("X-RateLimit-Remaining", "").strip() == "0"
    if message and "secondary rate limit" in message.lower() and not spent:
        said = f"{reply.url.host} answered 403: its secondary rate limit is reached"
        raise RetryLater(said, after=SECONDARY_SECONDS, reason="rate_limited")
