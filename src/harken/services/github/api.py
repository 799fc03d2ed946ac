"""The account, the client for GitHub's REST API, and the errors that its refusals become.

https://docs.github.com/en/rest/using-the-rest-api/best-practices-for-using-the-rest-api
https://docs.github.com/en/rest/using-the-rest-api/troubleshooting-the-rest-api
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, field_validator, model_validator

from harken.errors import NeedsAttention, RetryLater
from harken.http import Reply
from harken.kit.credential_field_validation import configure_hint, one_word, split_server_address
from harken.kit.json_api import JsonApi
from harken.kit.models import AccountModel
from harken.kit.values_from_payload import text_of
from harken.services.github.app import VERSION, App, InstallationTokens, parse_private_key, repository_in
from harken.source import Host

__all__ = ["Account", "Api", "Repo", "repo_name"]

CONFIGURE = configure_hint("github")
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


# in place of the token of an app; never sent
_NO_TOKEN = "signs-in-as-an-app"


def _private_key(value: SecretStr | None) -> SecretStr | None:
    if value is not None:
        parse_private_key(value.get_secret_value())
    return value


class Account(AccountModel):
    """An access token, or an app with its private key."""

    token: Annotated[SecretStr, one_word("an access token")] = Field(
        description="access token: fine-grained with Issues, or classic with `repo`"
    )
    base_url: str = Field(
        "https://api.github.com", description="address of the API (GitHub Enterprise: https://HOST/api/v3)"
    )
    app_id: Annotated[str, BeforeValidator(lambda value: str(value) if type(value) is int else value)] = Field(
        "", pattern=r"^[A-Za-z0-9._-]{0,64}$", description="id of a GitHub App, or its client id, instead of a token"
    )
    private_key: Annotated[SecretStr | None, AfterValidator(_private_key)] = Field(
        None, description="private key of the app, the text of its .pem file: ${file:app.pem}"
    )

    @model_validator(mode="before")
    @classmethod
    def _has_one_credential(cls, data: Any) -> Any:
        """Whoever signs in as an app leaves out the token, which is required of everybody else."""
        if not isinstance(data, Mapping) or not (data.get("app_id") or data.get("private_key")):
            return data
        if not (data.get("app_id") and data.get("private_key")):
            raise ValueError("an app needs both: app_id, and private_key with the text of its .pem file")
        if data.get("token") not in (None, "", SecretStr(""), SecretStr(_NO_TOKEN)):
            raise ValueError("takes a token, or an app with app_id and private_key, not both")
        return {**data, "token": _NO_TOKEN}

    @field_validator("base_url")
    @classmethod
    def _check_address(cls, value: str) -> str:
        parts = split_server_address(value, "an address of an API, such as https://api.github.com")
        if parts.hostname in ("github.com", "www.github.com"):
            raise ValueError("this is the address of the web site. The API is https://api.github.com")
        return value.rstrip("/")

    def tokens_for_git(self) -> Callable[[Host, str], Awaitable[str]] | None:
        """How an app gets a token for the code of a repository; None with a token, which git can use as it is."""
        key = self.private_key
        return None if key is None else App(self.app_id, key.get_secret_value(), self.base_url).make_code_token


class Api(JsonApi):
    """GitHub, in the name of one account. An app has a token for each repository, and for nothing else."""

    def __init__(self, account: Account, host: Host, *, follow_redirects: bool = True) -> None:
        self.tokens = _tokens_of(account, host)
        token = {"Authorization": f"Bearer {account.token.get_secret_value()}"} if self.tokens is None else {}
        super().__init__(
            host,
            base_url=account.base_url,
            headers={"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": VERSION, **token},
            fixes=_FIXES,
            refuse=_refuse,
            follow_redirects=follow_redirects,
        )

    async def send(self, method: str, where: str, *, repository: str = "", **options: Any) -> Reply:
        """Send one request. `repository`: whose token an app needs for it, where the address does not say that."""
        if self.tokens is None:
            return await super().send(method, where, **options)
        repository = repository_in(where.removeprefix(self.base_url)) or repository
        token = await self.tokens.get(self.host, repository)
        reply = await self._send_as(token, method, where, options)
        if reply.status == 401 and token:
            token = await self.tokens.get(self.host, repository, refused=token)
            reply = await self._send_as(token, method, where, options)
        return reply

    async def _send_as(self, token: str, method: str, where: str, options: dict[str, Any]) -> Reply:
        signed = {"Authorization": f"Bearer {token}"} if token else {}
        headers = {**(options.get("headers") or {}), **signed}
        return await super().send(method, where, **{**options, "headers": headers})

    def repo_url(self, name: str, *path: str) -> str:
        """A URL within a repository."""
        return self.url("repos", *name.split("/"), *path)

    def graphql_url(self) -> str:
        """On an Enterprise Server, GraphQL is beside the REST API and not below it."""
        rest = self.base_url
        return f"{rest.removesuffix('/v3') if rest.endswith('/api/v3') else rest}/graphql"


def _tokens_of(account: Account, host: Host) -> InstallationTokens | None:
    key = account.private_key
    if key is None:
        return None
    credential = (account.app_id, key.get_secret_value(), account.base_url)
    return InstallationTokens.of(credential, host, lambda: App(*credential))


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
