"""One Jira, Cloud or Server: how to sign in there, which API it has, and what its refusals mean.

Signing in: https://developer.atlassian.com/cloud/jira/platform/basic-auth-for-rest-apis/ (Cloud) and
https://confluence.atlassian.com/enterprise/using-personal-access-tokens-1026032365.html (Server, Data Center).
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec
from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from harken.errors import NeedsAttention, RetryLater
from harken.http import Reply, raise_for, redact
from harken.rate_limit import is_rate_limited
from harken.source import Host

__all__ = ["CONFIGURE", "Account", "Person", "Site", "find_person", "myself", "person_of", "told"]


CONFIGURE = "harken integrations jira configure"

LONGEST_TOLD = 300

_CLOUD_HOSTS = (".atlassian.net", ".jira.com", ".atlassian-us-gov-mod.net")

_CLOUD_GATEWAY = "api.atlassian.com"

_FAILED_LOGINS = ("AUTHENTICATED_FAILED", "AUTHENTICATION_DENIED", "AUTHORISATION_FAILED")


class Account(BaseModel):
    """Where a Jira is, and who asks: email + token (Cloud), token alone, or username + password (Server)."""

    model_config = ConfigDict(extra="forbid", frozen=True)
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
    def _one_word(cls, value: SecretStr | None) -> SecretStr | None:
        word = value.get_secret_value().strip() if value else ""
        if value and (not word.isascii() or not word.isprintable() or " " in word):
            raise ValueError("is not a token: it is one word, without spaces")
        return SecretStr(word) if word else None

    @field_validator("base_url")
    @classmethod
    def _address(cls, value: str) -> str:
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("is not an http address. Write https://host")
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ValueError("must be a plain address, without a password or a query")
        return value.rstrip("/")

    @model_validator(mode="after")
    def _can_sign_in(self) -> Account:
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
        pair = f"{user}:{secret.get_secret_value()}".encode()
        return f"Basic {base64.b64encode(pair).decode()}"

    def secrets(self) -> list[str]:
        return [secret.get_secret_value() for secret in (self.token, self.password) if secret]


class Site:
    """Asks one Jira. Everything that it refuses becomes an error with the fix in it."""

    def __init__(self, account: Account, host: Host) -> None:
        self.account = account
        self.host = host
        self.name = urlsplit(account.base_url).hostname or ""
        self._cloud: bool | None = None
        self._home = account.base_url
        self._headers = {"Accept": "application/json", "Authorization": account.authorization()}

    async def cloud(self) -> bool:
        """Whether it is Jira Cloud; a server at an address of its own is asked once."""
        if self._cloud is None:
            self._cloud = await self._is_cloud()
        return self._cloud

    async def version(self) -> str:
        return "/rest/api/3" if await self.cloud() else "/rest/api/2"

    async def ask(
        self, method: str, path: str, *, params: Mapping[str, str | int] | None = None, json: Any = None
    ) -> Any:
        """The decoded answer of this path below the API's root; None when it has no body."""
        reply = await self.reply(method, await self.version() + path, params=params, json=json)
        self.check(reply)
        return reply.json() if reply.body else None

    async def find(self, path: str, *, params: Mapping[str, str | int] | None = None) -> Any:
        """As `ask`, but None where Jira says that there is no such thing, or none that we may see."""
        reply = await self.reply("GET", await self.version() + path, params=params)
        if reply.status in (400, 403, 404) and not is_rate_limited(reply.status, reply.headers):
            return None
        self.check(reply)
        return reply.json()

    async def reply(
        self, method: str, path: str, *, params: Mapping[str, str | int] | None = None, json: Any = None
    ) -> Reply:
        reply = await self.host.http.request(
            method,
            self.account.base_url + path,
            params=params,
            json=json,
            headers=self._headers,
            allow_private=self.host.allow_private,
        )
        self._check_login(reply)
        return reply

    def browse(self, key: str) -> str:
        """The page of an issue, at the address that Jira gives for people; base_url may be a gateway or a proxy."""
        return f"{self._home}/browse/{key}" if key else ""

    def check(self, reply: Reply) -> None:
        """Return if Jira did as it was asked; otherwise raise what happens next, with what Jira said about it."""
        status = reply.status
        if status < 400 or status >= 500 or is_rate_limited(status, reply.headers):
            raise_for(reply)
            return
        if status == 401:
            raise NeedsAttention(f"{self.name} does not accept the credential (401)", fix=self._new_credential())
        if status == 409:
            raise RetryLater(f"{self.name} is changing the same issue just now (409)")
        said = told(reply, self.account.secrets())
        if status == 400:
            raise NeedsAttention(f"{self.name} refused the request (400){said}", fix="Correct the query or the step")
        raise_for(reply, f"{reply.method} {reply.url.path[:80]}{said}", fix=self._fix(status))

    def _check_login(self, reply: Reply) -> None:
        """A wrong or expired token may get 200 and an empty list, as if there were no issues: a header tells."""
        if "CAPTCHA" in reply.headers.get("X-Authentication-Denied-Reason", ""):
            fix = f"Log in at {self.account.base_url} in a browser once, then check the password: {CONFIGURE}"
            raise NeedsAttention(f"{self.name} wants a captcha after failed logins", fix=fix)
        reason = reply.headers.get("X-Seraph-LoginReason", "")
        if any(name in reason for name in _FAILED_LOGINS):
            raise NeedsAttention(
                f"{self.name} does not accept the credential (login failed)", fix=self._new_credential()
            )

    def _new_credential(self) -> str:
        if self.account.email:
            return f"Make a new API token for this e-mail address, then: {CONFIGURE}"
        return f"Make a new personal access token, or check the password, then: {CONFIGURE}"

    def _fix(self, status: int) -> str:
        if status == 403:
            return "Give the account the permission Browse projects, or what the step needs"
        if status == 410:
            return "This is Jira Cloud: set deployment to cloud or auto"
        if status == 404 and self._cloud and self.account.deployment == "cloud":
            return "Check that the account may see it, and base_url; if this is no Jira Cloud, set deployment to auto"
        return "Check that it exists and that the account may see it, and base_url"

    async def _is_cloud(self) -> bool:
        if self.account.deployment != "auto":
            return self.account.deployment == "cloud"
        if self.name.endswith(_CLOUD_HOSTS):
            return True
        reply = await self.reply("GET", "/rest/api/2/serverInfo")
        if self.name == _CLOUD_GATEWAY and reply.status >= 400:
            return True  # a token with few scopes may not ask; then links lead to the gateway
        self.check(reply)
        info = reply.json()
        told = info if isinstance(info, Mapping) else {}
        home = str(told.get("baseUrl") or "")
        self._home = home.rstrip("/") if home.startswith(("https://", "http://")) else self._home
        return str(told.get("deploymentType", "")).casefold() == "cloud"


def told(reply: Reply, secrets: list[str]) -> str:
    """What Jira says about it, after a colon; short, and without our credential."""
    try:
        said = reply.json()
    except RetryLater:
        return ""
    if not isinstance(said, Mapping):
        return ""
    messages, errors = said.get("errorMessages"), said.get("errors")
    texts = [text for text in messages if isinstance(text, str)] if isinstance(messages, list) else []
    if isinstance(errors, Mapping):
        texts += [f"{name}: {text}" for name, text in errors.items() if isinstance(text, str)]
    whole = " ".join(" ".join(texts).split())
    whole = redact(whole, secrets)[:LONGEST_TOLD].rstrip(". ")
    return f": {whole}" if whole else ""


ME = "currentuser()"

SHOWN = 5

_ACCOUNT_ID = re.compile(r"[0-9a-zA-Z]+:[0-9a-zA-Z-]{16,}|[0-9a-zA-Z]{24}")

_NAMES = ("accountId", "name", "key", "emailAddress", "displayName")


class Person(msgspec.Struct, frozen=True, kw_only=True):
    """A user. `id` is what JQL takes, `ids` what issues and their histories may call them, in lower case."""

    id: str
    ids: frozenset[str]
    label: str


def person_of(data: Any) -> Person | None:
    """The user that Jira describes; None when it describes none."""
    if not isinstance(data, Mapping):
        return None
    texts = {name: data[name] for name in _NAMES if isinstance(data.get(name), str) and data[name]}
    id = texts.get("accountId") or texts.get("name") or texts.get("key")
    if not id:
        return None
    known = [texts[name] for name in ("accountId", "name", "key") if name in texts]
    shown = texts.get("displayName", id)
    mail = f", {texts['emailAddress']}" if "emailAddress" in texts else ""
    return Person(id=id, ids=frozenset(name.casefold() for name in known), label=f"{shown} ({id}{mail})")


async def myself(site: Site) -> Mapping[str, Any]:
    """What Jira says about the account itself."""
    found = await site.ask("GET", "/myself")
    if person_of(found) is None:
        raise NeedsAttention(f"{site.name} does not say who the account is", fix="Check base_url")
    return dict(found)


async def find_person(site: Site, written: str) -> Person:
    """The one user who is meant. NeedsAttention when there is none, or more than one."""
    asks_for_me = written.casefold() == ME
    # a token with few scopes may not ask who it is, and need not in order to read what is assigned to an account id
    me = await (myself(site) if asks_for_me else site.find("/myself"))
    if (found := person_of(me)) is not None and (asks_for_me or _is(me, written)):
        return found
    cloud = await site.cloud()
    exact = await site.find("/user", params={"accountId" if cloud else "username": written})
    if (found := person_of(exact)) is not None:
        return found
    listed = await site.find("/user/search", params={"query" if cloud else "username": written, "maxResults": 50})
    if listed is None and cloud and _ACCOUNT_ID.fullmatch(written):
        # looking up others takes a permission of its own; an account id needs no looking up
        return Person(id=written, ids=frozenset({written.casefold()}), label=f"{written} (not looked up)")
    if listed is None:
        fix = "Write the account id or user name, or give the account the permission Browse users and groups"
        raise NeedsAttention(f"{site.name} does not let the account look up {written!r}", fix=fix)
    return _the_one(listed, written, site)


def _the_one(listed: Any, written: str, site: Site) -> Person:
    users = [user for user in listed if isinstance(user, Mapping)] if isinstance(listed, list) else []
    users = [user for user in users if user.get("accountType", "atlassian") != "app" and person_of(user)]
    exact = [user for user in users if _is(user, written)]
    # an e-mail address is hidden by most profiles, but it is searched: a single hit is the one
    meant = exact or (users if "@" in written else [])
    people = [person for user in meant if (person := person_of(user))]
    if len(people) == 1:
        return people[0]
    if people:
        names = ", ".join(person.label for person in people[:SHOWN])
        raise NeedsAttention(f"{written!r} may be several users: {names}", fix="Write the account id or user name")
    near = _near(users)
    raise NeedsAttention(f"{site.name} has no user {written!r}{near}", fix="Write the id that whoami shows")


def _near(users: Sequence[Mapping[str, Any]]) -> str:
    people = [person.label for user in users[:SHOWN] if (person := person_of(user))]
    return f"; there is {', '.join(people)}" if people else ""


def _is(user: Mapping[str, Any], written: str) -> bool:
    return any(isinstance(user.get(name), str) and user[name].casefold() == written.casefold() for name in _NAMES)
