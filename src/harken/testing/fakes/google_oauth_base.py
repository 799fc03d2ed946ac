"""What all of Google's APIs share: consent, tokens, scopes, limits and the format of errors.

An API is a subclass that adds its routes and says in `scopes_for` which scopes open them.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from math import ceil
from typing import Any, Literal
from urllib.parse import urlencode

import msgspec
from aiohttp import web

from harken.clock import Clock
from harken.testing.fakes.server import FakeServer, Handler, json_reply

__all__ = ["CLIENT_ID", "CLIENT_SECRET", "REFRESH_TOKEN", "SCOPES", "GoogleServer", "google_error"]

CLIENT_ID = "1234-harken.apps.googleusercontent.com"
CLIENT_SECRET = "not-a-secret-of-the-client"
REFRESH_TOKEN = "1//not-a-refresh-token"
_HOME = "https://www.googleapis.com/auth/"
SCOPES = frozenset({"openid", "email", f"{_HOME}gmail.modify", f"{_HOME}calendar.readonly"})
_OPEN = ("/token", "/device/code", "/o/oauth2/v2/auth")
_DEVICE_SCOPES = frozenset({"openid", "email", "profile", f"{_HOME}calendar", f"{_HOME}calendar.readonly"})


class Grant(msgspec.Struct, kw_only=True):
    """A pending grant: an authorization code, or a device code."""

    scopes: frozenset[str]
    redirect: str = ""
    challenge: str = ""
    answer: Literal["pending", "given", "denied"] = "given"
    asked_at: float = float("-inf")


class GoogleServer(FakeServer):
    """`refreshes` counts requests with a refresh token; `denies`: the user denies consent."""

    def __init__(self, clock: Clock, *, life: float = 3599.0, scopes: frozenset[str] = SCOPES) -> None:
        super().__init__(clock)
        self.life = life
        self.client_secret = CLIENT_SECRET
        self.refresh_tokens: dict[str, frozenset[str]] = {REFRESH_TOKEN: scopes}
        self.refreshes = 0
        self.denies = False
        self.interval = 5
        self.email = "ana@example.com"
        self.limited: tuple[float, str, int] = (0.0, "", 0)
        self.grants: dict[str, Grant] = {}
        self._tokens: dict[str, tuple[float, frozenset[str]]] = {}
        self._made = 0

    def account(self) -> dict[str, Any]:
        """The settings of an account that this server knows."""
        return {
            "client_id": CLIENT_ID,
            "client_secret": self.client_secret,
            "refresh_token": REFRESH_TOKEN,
            "base_url": self.url,
        }

    def expire_tokens(self) -> None:
        """Forget every access token, so that each is answered with 401."""
        self._tokens.clear()

    def revoke(self) -> None:
        """The user withdraws the consent."""
        self.refresh_tokens.clear()
        self._tokens.clear()

    def limit(self, seconds: float, *, reason: str = "rateLimitExceeded", status: int = 403) -> None:
        """Refuse API calls for so long; 403 comes without Retry-After, as Google's does."""
        self.limited = (self.clock.time() + seconds, reason, status)

    def scopes_for(self, method: str, path: str) -> frozenset[str]:
        """The scopes of which one is enough for this request; empty: none is needed."""
        return frozenset({"openid", "email"}) if path == "/v1/userinfo" else frozenset()

    def routes(self) -> Mapping[str, Handler]:
        return {
            "/token": self._token,
            "/device/code": self._device,
            "/o/oauth2/v2/auth": self._consent,
            "/v1/userinfo": self._userinfo,
        }

    async def handle(self, request: web.Request, view: Handler) -> web.Response:
        return await view(request) if request.path in _OPEN else await self._guarded(request, view)

    async def _guarded(self, request: web.Request, view: Handler) -> web.Response:
        until, reason, status = self.limited
        wait = until - self.clock.time()
        if wait > 0:
            return google_error(status, reason, {"Retry-After": str(ceil(wait))} if status == 429 else None)
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        ends, scopes = self._tokens.get(token, (0.0, frozenset[str]()))
        if scheme != "Bearer" or self.clock.time() >= ends:
            return google_error(401, "authError", {"WWW-Authenticate": 'Bearer error="invalid_token"'})
        needed = self.scopes_for(request.method, request.path)
        if needed and not needed & scopes:
            fields = f'Bearer error="insufficient_scope", scope="{" ".join(sorted(needed))}"'
            return google_error(403, "insufficientPermissions", {"WWW-Authenticate": fields})
        return await view(request)

    async def _userinfo(self, request: web.Request) -> web.Response:
        return json_reply({"sub": "1122334455", "email": self.email, "email_verified": True})

    async def _consent(self, request: web.Request) -> web.Response:
        """The page where a user signs in; this one decides at once and sends the browser on."""
        params = request.query
        if params["client_id"] != CLIENT_ID or params["response_type"] != "code":
            return web.Response(status=400, text="Error 401: invalid_client")
        if self.denies:
            answer = {"error": "access_denied"}
        else:
            grant = Grant(
                scopes=frozenset(params["scope"].split()),
                redirect=params["redirect_uri"],
                challenge=params["code_challenge"] if params.get("code_challenge_method") == "S256" else "",
            )
            answer = {"code": self._name("4/code", grant)}
        separator = "&" if "?" in params["redirect_uri"] else "?"
        target = f"{params['redirect_uri']}{separator}{urlencode({**answer, 'state': params.get('state', '')})}"
        return web.Response(status=302, headers={"Location": target})

    async def _device(self, request: web.Request) -> web.Response:
        params = await request.post()
        scopes = frozenset(str(params["scope"]).split())
        if params["client_id"] != CLIENT_ID:
            return _oauth_error(401, "invalid_client")
        if not scopes <= _DEVICE_SCOPES:
            return _oauth_error(400, "invalid_scope")
        name = self._name("device", Grant(scopes=scopes, answer="pending"))
        fields = {"device_code": name, "user_code": "GQVQ-JKEC", "verification_url": f"{self.url}/device"}
        return json_reply({**fields, "expires_in": 1800, "interval": self.interval})

    async def _token(self, request: web.Request) -> web.Response:
        params = {name: str(value) for name, value in (await request.post()).items()}
        if params.get("client_id") != CLIENT_ID or params.get("client_secret") != self.client_secret:
            return _oauth_error(401, "invalid_client")
        kind = params.get("grant_type", "")
        if kind == "refresh_token":
            return self._refresh(params)
        if kind == "authorization_code":
            return self._redeem(params)
        if kind == "urn:ietf:params:oauth:grant-type:device_code":
            return self._poll_device(params)
        return _oauth_error(400, "unsupported_grant_type")

    def _refresh(self, params: Mapping[str, str]) -> web.Response:
        self.refreshes += 1
        scopes = self.refresh_tokens.get(params.get("refresh_token", ""))
        return _oauth_error(400, "invalid_grant") if scopes is None else json_reply(self._issued(scopes))

    def _redeem(self, params: Mapping[str, str]) -> web.Response:
        # a code is valid once, with the redirect address and the verifier of its request
        grant = self.grants.pop(params.get("code", ""), None)
        digest = hashlib.sha256(params.get("code_verifier", "").encode()).digest()
        proof = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        if grant is None or grant.challenge != proof or grant.redirect != params.get("redirect_uri"):
            return _oauth_error(400, "invalid_grant")
        return json_reply(self._consented(grant.scopes))

    def _poll_device(self, params: Mapping[str, str]) -> web.Response:
        name, now = params.get("device_code", ""), self.clock.time()
        grant = self.grants.get(name)
        if grant is None:
            return _oauth_error(400, "invalid_grant")
        hasty, grant.asked_at = now - grant.asked_at < self.interval, now
        if hasty:
            return _oauth_error(403, "slow_down")
        if grant.answer == "pending":
            return _oauth_error(428, "authorization_pending")
        del self.grants[name]
        denied = grant.answer == "denied"
        return _oauth_error(403, "access_denied") if denied else json_reply(self._consented(grant.scopes))

    def _consented(self, scopes: frozenset[str]) -> dict[str, Any]:
        self._made += 1
        token = f"1//not-a-refresh-token-{self._made}"
        self.refresh_tokens[token] = scopes
        return {**self._issued(scopes), "refresh_token": token}

    def _issued(self, scopes: frozenset[str]) -> dict[str, Any]:
        self._made += 1
        token = f"ya29.not-an-access-token-{self._made}"
        self._tokens[token] = (self.clock.time() + self.life, scopes)
        return {
            "access_token": token,
            "expires_in": int(self.life),
            "scope": " ".join(sorted(scopes)),
            "token_type": "Bearer",
        }

    def _name(self, prefix: str, grant: Grant) -> str:
        self._made += 1
        name = f"{prefix}-{self._made}"
        self.grants[name] = grant
        return name


def google_error(status: int, reason: str, headers: Mapping[str, str] | None = None) -> web.Response:
    """An error in the format of Google's APIs."""
    message = f"The request was refused: {reason}"
    error = {"code": status, "message": message, "errors": [{"domain": "global", "reason": reason, "message": message}]}
    return json_reply({"error": error}, status=status, headers=headers)


def _oauth_error(status: int, code: str) -> web.Response:
    return json_reply({"error": code, "error_description": "Bad Request"}, status=status)
