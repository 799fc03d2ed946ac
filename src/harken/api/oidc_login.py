"""/auth: where a browser logs in at an identity provider, comes back, and logs out."""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Awaitable, Callable
from http.cookies import CookieError, SimpleCookie

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route as Routed
from starlette.types import Scope

from harken.operate.oidc import ATTEMPT_SECONDS, Attempt, Provider
from harken.operate.operator import Operator

__all__ = ["CALLBACK", "LOGIN", "LOGOUT", "SESSION_COOKIE", "clear_session", "cookie_of", "login_routes"]

LOGIN, CALLBACK, LOGOUT = "/auth/login", "/auth/callback", "/auth/logout"
SESSION_COOKIE = "harken_session"
ATTEMPT_COOKIE = "harken_login"
_decode = msgspec.json.Decoder(Attempt).decode
Endpoint = Callable[[Request], Awaitable[Response]]


def login_routes(operator: Operator, provider: Provider) -> list[Routed]:
    return [
        Routed(LOGIN, _login(provider), methods=["GET"]),
        Routed(CALLBACK, _callback(operator, provider), methods=["GET"]),
        Routed(LOGOUT, _logout(operator), methods=["POST"]),
    ]


def _login(provider: Provider) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        address, attempt = await provider.begin(request.query_params.get("next", "/"))
        response = RedirectResponse(address, 303, {"cache-control": "no-store"})
        kept = urlsafe_b64encode(msgspec.json.encode(attempt)).decode()
        # lax, as the browser comes back from another site
        response.set_cookie(
            ATTEMPT_COOKIE,
            kept,
            max_age=round(ATTEMPT_SECONDS),
            path="/auth",
            httponly=True,
            samesite="lax",
            secure=provider.is_https,
        )
        return response

    return endpoint


def _callback(operator: Operator, provider: Provider) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        attempt = _attempt(request.scope)
        identity = await provider.finish(attempt, dict(request.query_params))
        secret = await operator.log_in(identity, provider.session_seconds)
        # nobody may keep the address: it has the code
        headers = {"cache-control": "no-store", "referrer-policy": "no-referrer"}
        response = RedirectResponse(attempt.next if attempt else "/", 303, headers)
        response.delete_cookie(ATTEMPT_COOKIE, path="/auth", httponly=True, samesite="lax")
        response.set_cookie(
            SESSION_COOKIE,
            secret,
            max_age=round(provider.session_seconds),
            httponly=True,
            samesite="strict",
            secure=provider.is_https,
        )
        return response

    return endpoint


def _logout(operator: Operator) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        return await clear_session(operator, request, Response(status_code=204))

    return endpoint


async def clear_session(operator: Operator, request: Request, response: Response) -> Response:
    """End the session that the browser has, here and there."""
    await operator.log_out(cookie_of(request.scope, SESSION_COOKIE))
    response.delete_cookie(SESSION_COOKIE, httponly=True, samesite="strict")
    return response


def cookie_of(scope: Scope, wanted: str) -> str:
    """The value of a cookie of the request, empty if it has none."""
    for name, value in scope["headers"]:
        if name == b"cookie":
            try:
                found = SimpleCookie(value.decode("latin-1")).get(wanted)
            except CookieError:
                # somebody else's cookie of this host: it is not for us
                continue
            if found is not None:
                return str(found.value)
    return ""


def _attempt(scope: Scope) -> Attempt | None:
    try:
        return _decode(urlsafe_b64decode(cookie_of(scope, ATTEMPT_COOKIE).encode()))
    except (msgspec.MsgspecError, binascii.Error, ValueError):
        return None
