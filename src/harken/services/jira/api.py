"""The account, the client for the REST API of Jira Cloud and Server, the errors of its refusals, and its users.

Signing in: https://developer.atlassian.com/cloud/jira/platform/basic-auth-for-rest-apis/ (Cloud) and
https://confluence.atlassian.com/enterprise/using-personal-access-tokens-1026032365.html (Server, Data Center).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec
from pydantic import Field, SecretStr, field_validator, model_validator

from harken.errors import NeedsAttention, RetryLater
from harken.http import Reply, raise_for, redact
from harken.kit.credential_field_validation import basic_auth, configure_hint
from harken.kit.json_api import JsonApi, Params
from harken.kit.models import AccountModel
from harken.outgoing_rate_limit import is_rate_limited
from harken.source import Host

__all__ = ["Account", "Api", "Person", "find_person", "person_of", "read_myself"]

CONFIGURE = configure_hint("jira")
LONGEST_SERVER_MESSAGE = 300
MYSELF = "currentuser()"
MAX_NAMES = 5
_CLOUD_HOSTS = (".atlassian.net", ".jira.com", ".atlassian-us-gov-mod.net")
_CLOUD_GATEWAY = "api.atlassian.com"
_FAILED_LOGINS = ("AUTHENTICATED_FAILED", "AUTHENTICATION_DENIED", "AUTHORISATION_FAILED")
_ACCOUNT_ID = re.compile(r"[0-9a-zA-Z]+:[0-9a-zA-Z-]{16,}|[0-9a-zA-Z]{24}")
_USER_FIELDS = ("accountId", "name", "key", "emailAddress", "displayName")


class Account(AccountModel):
    """Where a Jira is, and how to sign in: email + token (Cloud), token alone, or username + password (Server)."""

    base_url: str = Field(description="address of your Jira, such as https://company.atlassian.net")
    email: str | None = Field(None, description="e-mail address of the account (Cloud)")
    username: str | None = Field(None, description="user name (Server without a personal access token)")
    token: SecretStr | None = Field(None, description="API token (Cloud) or personal access token (Server)")
    password: SecretStr | None = Field(None, description="password that goes with username (Server)")
    deployment: Literal["auto", "cloud", "server"] = Field(
        "auto", description="auto: *.atlassian.net is Cloud, any other Jira is asked what it is"
    )

    @field_validator("email", "username", "token", "password", mode="before")
    @classmethod
    def _empty_is_none(cls, value: Any) -> Any:
        return None if value == "" else value

    @field_validator("token")
    @classmethod
    def _check_token(cls, value: SecretStr | None) -> SecretStr | None:
        word = value.get_secret_value().strip() if value else ""
        if value and (not word.isascii() or not word.isprintable() or " " in word):
            raise ValueError("is not a token: it is one word, without spaces")
        return SecretStr(word) if word else None

    @field_validator("base_url")
    @classmethod
    def _check_address(cls, value: str) -> str:
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("is not an http address. Write https://host")
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ValueError("must be a plain address, without a password or a query")
        return value.rstrip("/")

    @model_validator(mode="after")
    def _check_credential(self) -> Account:
        if self.email and self.username:
            raise ValueError("takes email (Cloud) or username (Server), not both")
        if self.email and not self.token:
            raise ValueError("email needs the API token that goes with it: add token")
        if self.username and not (self.token or self.password):
            raise ValueError("username needs a password")
        if not self.username and not self.token:
            raise ValueError("has no credential: add email and token (Cloud), or token (Server)")
        return self

    def authorization(self) -> str:
        secret = (self.password if self.username and self.password else self.token) or SecretStr("")
        user = self.email or self.username
        if not user:
            return f"Bearer {secret.get_secret_value()}"
        return basic_auth(user, secret.get_secret_value())

    def secrets(self) -> list[str]:
        return [secret.get_secret_value() for secret in (self.token, self.password) if secret]


class Api(JsonApi):
    """One Jira, in the name of one account."""

    def __init__(self, account: Account, host: Host) -> None:
        headers = {"Authorization": account.authorization()}
        super().__init__(host, base_url=account.base_url, headers=headers, refuse=self._refuse)
        self._account = account
        self._is_cloud: bool | None = None
        self._web_url = account.base_url

    async def is_cloud(self) -> bool:
        """Whether it is Jira Cloud. A server at an address of its own is asked once."""
        if self._is_cloud is None:
            self._is_cloud = await self._find_out()
        return self._is_cloud

    async def request(self, method: str, path: str, *, params: Params = (), json: Any = None) -> Reply:
        """Send a request to a path below `base_url`. Return the reply whatever its status, unless the login failed."""
        reply = await self.send(method, path, params=params, json=json)
        self._check_login(reply)
        return reply

    async def ask(self, method: str, path: str, *, params: Params = (), json: Any = None) -> Reply:
        """Like `request`, for a path below the API's root."""
        return await self.request(method, await self._root() + path, params=params, json=json)

    async def call(self, method: str, path: str, *, params: Params = (), json: Any = None) -> Any:
        """Return the decoded reply of a path below the API's root; None when it has no body."""
        reply = await self.ask(method, path, params=params, json=json)
        self.check(reply)
        return reply.json() if reply.body else None

    async def find(self, path: str, *, params: Params = ()) -> Any:
        """Like `call`, but return None where Jira says that there is no such thing, or none that we may see."""
        reply = await self.ask("GET", path, params=params)
        if reply.status in (400, 403, 404) and not is_rate_limited(reply.status, reply.headers):
            return None
        self.check(reply)
        return reply.json()

    def browse_url(self, key: str) -> str:
        """The web page of an issue. `base_url` may be a gateway or a proxy, so this is the address that Jira names."""
        return f"{self._web_url}/browse/{key}" if key else ""

    async def _root(self) -> str:
        return "/rest/api/3" if await self.is_cloud() else "/rest/api/2"

    def _refuse(self, reply: Reply, what: str) -> None:
        """Raise the error for a 4xx, with what Jira says about it."""
        status = reply.status
        if status < 400 or status >= 500 or is_rate_limited(status, reply.headers):
            return
        if status == 401:
            raise NeedsAttention(f"{self.name} does not accept the credential (401)", fix=self._new_credential())
        if status == 409:
            raise RetryLater(f"{self.name} is changing the same issue just now (409)")
        message = _server_message(reply, self._account.secrets())
        if status == 400:
            raise NeedsAttention(f"{self.name} refused the request (400){message}", fix="Correct the query or the step")
        raise_for(reply, f"{reply.method} {reply.url.path[:80]}{message}", fix=self._advice(status))

    def _check_login(self, reply: Reply) -> None:
        """Raise if a header says that the login failed: the reply may still be 200, with an empty list of issues."""
        if "CAPTCHA" in reply.headers.get("X-Authentication-Denied-Reason", ""):
            fix = f"Log in at {self.base_url} in a browser once, then check the password: {CONFIGURE}"
            raise NeedsAttention(f"{self.name} wants a captcha after failed logins", fix=fix)
        reason = reply.headers.get("X-Seraph-LoginReason", "")
        if any(name in reason for name in _FAILED_LOGINS):
            raise NeedsAttention(
                f"{self.name} does not accept the credential (login failed)", fix=self._new_credential()
            )

    def _new_credential(self) -> str:
        if self._account.email:
            return f"Make a new API token for this e-mail address, then: {CONFIGURE}"
        return f"Make a new personal access token, or check the password, then: {CONFIGURE}"

    def _advice(self, status: int) -> str:
        if status == 403:
            return "Give the account the permission Browse projects, or what the step needs"
        if status == 410:
            return "This is Jira Cloud: set deployment to cloud or auto"
        if status == 404 and self._is_cloud and self._account.deployment == "cloud":
            return "Check that the account may see it, and base_url; if this is no Jira Cloud, set deployment to auto"
        return "Check that it exists and that the account may see it, and base_url"

    async def _find_out(self) -> bool:
        if self._account.deployment != "auto":
            return self._account.deployment == "cloud"
        if self.name.endswith(_CLOUD_HOSTS):
            return True
        reply = await self.request("GET", "/rest/api/2/serverInfo")
        if self.name == _CLOUD_GATEWAY and reply.status >= 400:
            return True  # a token with few scopes may not ask; then links lead to the gateway
        self.check(reply)
        document = reply.json()
        info = document if isinstance(document, Mapping) else {}
        web_url = str(info.get("baseUrl") or "")
        self._web_url = web_url.rstrip("/") if web_url.startswith(("https://", "http://")) else self._web_url
        return str(info.get("deploymentType", "")).casefold() == "cloud"


def _server_message(reply: Reply, secrets: list[str]) -> str:
    """What Jira says about a refusal, after a colon: short, and without our credential."""
    try:
        document = reply.json()
    except RetryLater:
        return ""
    if not isinstance(document, Mapping):
        return ""
    messages, errors = document.get("errorMessages"), document.get("errors")
    texts = [text for text in messages if isinstance(text, str)] if isinstance(messages, list) else []
    if isinstance(errors, Mapping):
        texts += [f"{name}: {text}" for name, text in errors.items() if isinstance(text, str)]
    joined = redact(" ".join(" ".join(texts).split()), secrets)[:LONGEST_SERVER_MESSAGE].rstrip(". ")
    return f": {joined}" if joined else ""


class Person(msgspec.Struct, frozen=True, kw_only=True):
    """A user. `id` is what JQL takes; `ids` are all names in issues and histories, in lower case."""

    id: str
    ids: frozenset[str]
    label: str


def person_of(data: Any) -> Person | None:
    """The user that the data describes; None if it does not describe one."""
    if not isinstance(data, Mapping):
        return None
    texts = {name: data[name] for name in _USER_FIELDS if isinstance(data.get(name), str) and data[name]}
    id = texts.get("accountId") or texts.get("name") or texts.get("key")
    if not id:
        return None
    known = [texts[name] for name in ("accountId", "name", "key") if name in texts]
    shown = texts.get("displayName", id)
    mail = f", {texts['emailAddress']}" if "emailAddress" in texts else ""
    return Person(id=id, ids=frozenset(name.casefold() for name in known), label=f"{shown} ({id}{mail})")


async def read_myself(api: Api) -> Mapping[str, Any]:
    """Return the user of the account, as Jira describes it."""
    found = await api.call("GET", "/myself")
    if person_of(found) is None:
        raise NeedsAttention(f"{api.name} does not say who the account is", fix="Check base_url")
    return dict(found)


async def find_person(api: Api, written: str) -> Person:
    """Return the user of that id or name. Raise NeedsAttention when there is none, or more than one."""
    is_me = written.casefold() == MYSELF
    # a token with few scopes may not ask who it is, and can still read what is assigned to an account id
    me = await (read_myself(api) if is_me else api.find("/myself"))
    if (found := person_of(me)) is not None and (is_me or _is_called(me, written)):
        return found
    cloud = await api.is_cloud()
    exact = await api.find("/user", params={"accountId" if cloud else "username": written})
    if (found := person_of(exact)) is not None:
        return found
    listed = await api.find("/user/search", params={"query" if cloud else "username": written, "maxResults": 50})
    if listed is None and cloud and _ACCOUNT_ID.fullmatch(written):
        # looking up others takes a permission of its own, but an account id can be used as it is
        return Person(id=written, ids=frozenset({written.casefold()}), label=f"{written} (not looked up)")
    if listed is None:
        fix = "Write the account id or user name, or give the account the permission Browse users and groups"
        raise NeedsAttention(f"{api.name} does not let the account look up {written!r}", fix=fix)
    return _choose_user(listed, written, api)


def _choose_user(listed: Any, written: str, api: Api) -> Person:
    users = [user for user in listed if isinstance(user, Mapping)] if isinstance(listed, list) else []
    users = [user for user in users if user.get("accountType", "atlassian") != "app" and person_of(user)]
    exact = [user for user in users if _is_called(user, written)]
    # most profiles hide the e-mail address, but the search uses it: a single hit is the user
    candidates = exact or (users if "@" in written else [])
    people = [person for user in candidates if (person := person_of(user))]
    if len(people) == 1:
        return people[0]
    if people:
        names = ", ".join(person.label for person in people[:MAX_NAMES])
        raise NeedsAttention(f"{written!r} may be several users: {names}", fix="Write the account id or user name")
    message = f"{api.name} has no user {written!r}{_similar_users(users)}"
    raise NeedsAttention(message, fix="Write the id that whoami shows")


def _similar_users(users: Sequence[Mapping[str, Any]]) -> str:
    people = [person.label for user in users[:MAX_NAMES] if (person := person_of(user))]
    return f"; there is {', '.join(people)}" if people else ""


def _is_called(user: Mapping[str, Any], written: str) -> bool:
    return any(isinstance(user.get(name), str) and user[name].casefold() == written.casefold() for name in _USER_FIELDS)
