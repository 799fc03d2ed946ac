"""The account, the client for GitHub's REST API, and the errors that its refusals become.

https://docs.github.com/en/rest/using-the-rest-api/best-practices-for-using-the-rest-api
https://docs.github.com/en/rest/using-the-rest-api/troubleshooting-the-rest-api
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr, field_validator

from harken.errors import NeedsAttention, RetryLater
from harken.http import Reply
from harken.kit.account_fields import configure_hint, one_word, split_server_address
from harken.kit.fields import text_of
from harken.kit.json_api import JsonApi
from harken.kit.models import AccountModel
from harken.source import Host

__all__ = ["Account", "Api", "Repo", "repo_name"]

CONFIGURE = configure_hint("github")
VERSION = "2022-11-28"
# how long to wait when a secondary rate limit comes without a time
SECONDARY_SECONDS = 60.0
_REPO = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}/(?!\.{1,2}$)[A-Za-z0-9._-]{1,100}")
_SCOPES = (
    "a fine-grained token needs Issues (read; read and write for actions and tickets) on this repository,"
    " and Pull requests (read and write) to open those; a classic one `repo`"
)
_FIXES = {
    401: f"The token is wrong, expired or revoked: store a valid one with {CONFIGURE}",
    403: f"The token may not do this: {_SCOPES}. Store one with {CONFIGURE}",
    404: f"It does not exist, or the token may not see it: {_SCOPES}. Check the name, or: {CONFIGURE}",
    410: "Issues are disabled in this repository, or the issue was deleted",
    422: "Check that assignee and labels are names that exist at GitHub",
    451: "GitHub blocks this repository for legal reasons: leave it out",
}


def repo_name(value: str) -> str:
    """Return the name of a repository. Raise ValueError for what is none, and could lead to another address."""
    if not _REPO.fullmatch(value):
        raise ValueError("this is not a repository: write owner/name, the end of the address of its page")
    return value


Repo = Annotated[str, AfterValidator(repo_name)]


class Account(AccountModel):
    """A personal access token, or one of an app."""

    token: Annotated[SecretStr, one_word("an access token")] = Field(
        description="access token: fine-grained with Issues, or classic with `repo`"
    )
    base_url: str = Field(
        "https://api.github.com", description="address of the API (GitHub Enterprise: https://HOST/api/v3)"
    )

    @field_validator("base_url")
    @classmethod
    def _check_address(cls, value: str) -> str:
        parts = split_server_address(value, "an address of an API, such as https://api.github.com")
        if parts.hostname in ("github.com", "www.github.com"):
            raise ValueError("this is the address of the web site. The API is https://api.github.com")
        return value.rstrip("/")


class Api(JsonApi):
    """GitHub, in the name of one account."""

    def __init__(self, account: Account, host: Host, *, follow_redirects: bool = True) -> None:
        headers = {
            "Authorization": f"Bearer {account.token.get_secret_value()}",
            "Accept": "application/vnd.github+json",
            "X-GitHub-Api-Version": VERSION,
        }
        super().__init__(
            host,
            base_url=account.base_url,
            headers=headers,
            fixes=_FIXES,
            refuse=_refuse,
            follow_redirects=follow_redirects,
        )

    def repo_url(self, name: str, *path: str) -> str:
        """A URL within a repository."""
        return self.url("repos", *name.split("/"), *path)

    def graphql_url(self) -> str:
        """On an Enterprise Server, GraphQL is beside the REST API and not below it."""
        rest = self.base_url
        return f"{rest.removesuffix('/v3') if rest.endswith('/api/v3') else rest}/graphql"


def _refuse(reply: Reply, what: str) -> None:
    """Raise the errors that only the headers or the text of a 403 tell apart."""
    if reply.status != 403:
        return
    if _is_secondary_limit(reply):
        message = f"{reply.url.host} answered 403: its secondary rate limit is reached"
        raise RetryLater(message, after=SECONDARY_SECONDS, reason="rate_limited")
    if "X-GitHub-SSO" in reply.headers:
        fix = "The organization uses single sign-on: open github.com/settings/tokens and authorize the token for it"
        raise NeedsAttention(f"{reply.url.host} answered 403 to {what or reply.method}", fix=fix)


def _is_secondary_limit(reply: Reply) -> bool:
    """Whether it is a secondary rate limit without the headers that would say so."""
    if "Retry-After" in reply.headers or b"rate limit" not in reply.body[:2000].lower():
        return False
    document = reply.json()
    message = text_of(document, "message") if isinstance(document, Mapping) else None
    spent = reply.headers.get("X-RateLimit-Remaining", "").strip() == "0"
    return bool(message) and "secondary rate limit" in (message or "").lower() and not spent
