"""Login by OpenID Connect: authorization code with PKCE, and who somebody is here by the claims about them."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

import msgspec

from harken.clock import Clock
from harken.errors import Forbidden, HarkenError, Malformed, NeedsAttention
from harken.operate.id_token import UnknownKey, verify_claims, verify_signature
from harken.operate.principal import Role

if TYPE_CHECKING:
    from harken.config.settings import Oidc
    from harken.http import Client

__all__ = ["Attempt", "Identity", "Provider", "local_path"]

ATTEMPT_SECONDS = 600.0
DISCOVERY_SECONDS = 3_600.0
KEYS_PAUSE_SECONDS = 30.0
"""So often at most the keys are asked for again when a token names one that we do not know."""
LONGEST_NAME = 120
LARGEST_ANSWER = 1_000_000
_UNPRINTABLE = re.compile(r"[^\w.@+ -]")


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """A login that was begun in one browser, which keeps this in a cookie until it comes back."""

    state: str
    nonce: str
    verifier: str
    next: str
    at: float


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Who logged in, and what they may do here."""

    subject: str
    name: str
    role: Role
    owner: str = ""


def local_path(wanted: str) -> str:
    """The path of a page of ours; the first page for everything else, so that a link leads nowhere else."""
    harmless = wanted.startswith("/") and not wanted.startswith(("//", "/\\")) and wanted.isprintable()
    return wanted if harmless and "\\" not in wanted and len(wanted) <= 2_000 else "/"


class Provider:
    """An identity provider, as its own description says. What it publishes is asked for when somebody logs in."""

    def __init__(self, settings: Oidc, http: Client, clock: Clock) -> None:
        self._settings = settings
        self._http = http
        self._clock = clock
        self._found: Mapping[str, Any] = {}
        self._found_at = self._keys_at = float("-inf")
        self._keys: Sequence[Mapping[str, Any]] = ()

    @property
    def session_seconds(self) -> float:
        return self._settings.session

    @property
    def is_https(self) -> bool:
        """Whether browsers reach us by TLS, so that cookies never leave in plain text."""
        return self._settings.redirect_uri.startswith("https://")

    async def begin(self, next: str) -> tuple[str, Attempt]:
        """Where to send the browser, and what it has to bring back."""
        found = await self._discover()
        attempt = Attempt(
            state=secrets.token_urlsafe(32),
            nonce=secrets.token_urlsafe(32),
            verifier=secrets.token_urlsafe(48),
            next=local_path(next),
            at=self._clock.time(),
        )
        challenge = urlsafe_b64encode(hashlib.sha256(attempt.verifier.encode()).digest()).rstrip(b"=").decode()
        asked = {
            "response_type": "code",
            "client_id": self._settings.client_id,
            "redirect_uri": self._settings.redirect_uri,
            "scope": " ".join(dict.fromkeys(["openid", *self._settings.scopes])),
            "state": attempt.state,
            "nonce": attempt.nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        place = str(found["authorization_endpoint"])
        return f"{place}{'&' if '?' in place else '?'}{urlencode(asked)}", attempt

    async def finish(self, attempt: Attempt | None, answer: Mapping[str, str]) -> Identity:
        """Who has come back with this answer. Raises Forbidden for one that proves nothing, and for who may not."""
        again = "Begin again: /auth/login"
        if attempt is None or self._clock.time() - attempt.at > ATTEMPT_SECONDS:
            raise Malformed("this login was not begun in this browser, or too long ago", fix=again)
        if not hmac.compare_digest(answer.get("state", "").encode(), attempt.state.encode()):
            raise Forbidden("the answer is to another login", fix=again)
        if answer.get("iss", self._settings.issuer) != self._settings.issuer:
            raise Forbidden("the answer is of another identity provider", fix=again)
        if "error" in answer:
            raise Forbidden(f"the identity provider refused: {_plain(answer['error'])}", fix=again)
        claims = await self._claims(attempt, answer.get("code", ""))
        verify_claims(
            claims,
            issuer=self._settings.issuer,
            client_id=self._settings.client_id,
            nonce=attempt.nonce,
            now=self._clock.time(),
        )
        return self._identify(claims)

    async def _claims(self, attempt: Attempt, code: str) -> Mapping[str, Any]:
        if not code:
            raise Malformed("the identity provider sent no code", fix="Begin again: /auth/login")
        settings, found = self._settings, await self._discover()
        sent = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": settings.redirect_uri,
            "client_id": settings.client_id,
            "code_verifier": attempt.verifier,
        }
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        if settings.client_secret is not None:
            both = f"{quote(settings.client_id, safe='')}:{quote(settings.client_secret.get_secret_value(), safe='')}"
            headers["Authorization"] = f"Basic {b64encode(both.encode()).decode()}"
        answer = await self._ask("POST", str(found["token_endpoint"]), headers, urlencode(sent))
        token = answer.get("id_token")
        if not isinstance(token, str):
            raise NeedsAttention("the identity provider sent no ID token", fix="Allow the scope openid for this client")
        try:
            return verify_signature(token, await self._published(found))
        except UnknownKey:
            # it may have changed its keys since we looked
            return verify_signature(token, await self._published(found, again=True))

    def _identify(self, claims: Mapping[str, Any]) -> Identity:
        settings = self._settings
        value = _claim(claims, settings.role_claim)
        given = {str(one) for one in value} if isinstance(value, list) else set() if value is None else {str(value)}
        name = _plain(str(claims.get("email") or claims.get("preferred_username") or claims["sub"]))
        wanted: tuple[tuple[Role, list[str]], ...] = (
            ("admin", settings.admins),
            ("operator", settings.operators),
            ("viewer", settings.viewers),
        )
        role = next((role for role, names in wanted if "*" in names or given & set(names)), None)
        if role is None:
            fix = f"An admin adds a value of the claim {settings.role_claim} to oidc: in harken.yaml"
            raise Forbidden(f"{name} may not use this installation", fix=fix)
        owner = _claim(claims, settings.owner_claim) if settings.owner_claim and role != "admin" else ""
        if settings.owner_claim and role != "admin" and not isinstance(owner, str):
            raise Forbidden(f"nothing says whose things {name} may see", fix=f"It is the claim {settings.owner_claim}")
        return Identity(subject=str(claims["sub"]), name=name, role=role, owner=_plain(str(owner)))

    async def _discover(self) -> Mapping[str, Any]:
        if self._clock.monotonic() - self._found_at < DISCOVERY_SECONDS:
            return self._found
        issuer = self._settings.issuer
        found = await self._ask("GET", f"{issuer.rstrip('/')}/.well-known/openid-configuration")
        if found.get("issuer") != issuer:
            raise NeedsAttention("the identity provider calls itself otherwise", fix="Write oidc.issuer as it does")
        for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
            if not isinstance(found.get(name), str):
                raise NeedsAttention(f"the identity provider has no {name}", fix="Check oidc.issuer")
        self._found, self._found_at = found, self._clock.monotonic()
        return found

    async def _published(self, found: Mapping[str, Any], *, again: bool = False) -> Sequence[Mapping[str, Any]]:
        age = self._clock.monotonic() - self._keys_at
        if not self._keys or age >= DISCOVERY_SECONDS or (again and age >= KEYS_PAUSE_SECONDS):
            keys = (await self._ask("GET", str(found["jwks_uri"]))).get("keys")
            self._keys = [key for key in keys if isinstance(key, dict)] if isinstance(keys, list) else []
            self._keys_at = self._clock.monotonic()
        return self._keys

    async def _ask(
        self, method: str, url: str, headers: Mapping[str, str] | None = None, data: str | None = None
    ) -> Mapping[str, Any]:
        """The answer as an object. Its body is never quoted: it may hold a token."""
        reply = await self._http.request(
            method,
            url,
            headers=headers,
            data=data.encode() if data is not None else None,
            allow_private=self._settings.allow_private,
            max_bytes=LARGEST_ANSWER,
            follow_redirects=False,
        )
        try:
            found = msgspec.json.decode(reply.body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            found = None
        if reply.status != 200 or not isinstance(found, dict):
            said = found.get("error") if isinstance(found, dict) else None
            more = f": {_plain(said)}" if isinstance(said, str) else ""
            error: type[HarkenError] = Forbidden if reply.status in (400, 401) else NeedsAttention
            raise error(
                f"the identity provider answered {reply.status}{more}", fix="See its log, and oidc: in harken.yaml"
            )
        return found


def _claim(claims: Mapping[str, Any], path: str) -> Any:
    """The claim at this path: `groups`, or `realm_access.roles` inside another."""
    found: Any = claims.get(path) if path in claims else claims
    if found is claims:
        for part in path.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _plain(text: str) -> str:
    """What somebody else wrote, as one short harmless line."""
    return _UNPRINTABLE.sub("?", text)[:LONGEST_NAME]
