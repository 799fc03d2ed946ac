"""Who calls: the bearer of a token, or on loopback whoever can open a connection."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as Routed
from starlette.types import ASGIApp, Receive, Scope, Send

from harken.api import errors
from harken.api.oidc_login import CALLBACK, LOGIN, LOGOUT, SESSION_COOKIE, clear_session, cookie_of
from harken.api.params import read_object
from harken.errors import Forbidden, HarkenError, Malformed, Unauthorized
from harken.operate.operator import Operator
from harken.operate.principal import OPERATOR, SCOPE_KEY, Principal, caller_of

__all__ = ["COOKIE", "Authentication", "is_known", "operator_of", "session_routes"]

COOKIE = "harken_token"
SESSION = "/api/session"
OPEN = frozenset({"/health", "/health/ready", "/", SESSION, f"{SESSION}/end", LOGIN, CALLBACK, LOGOUT})
"""What strangers get: whether we live, the page that asks for a token, where it takes and returns one, and logins."""
LOOKS = frozenset({"GET", "HEAD", "OPTIONS"})
COOKIE_SECONDS = 30 * 86_400


class Authentication:
    """Adds the caller to each request, or answers 401. Without `local_token` a request without a token is the
    operator's; with it that is whoever knows this one, which only files of our own have. With `logins` people may have
    sessions."""

    def __init__(self, app: ASGIApp, operator: Operator, local_token: str = "", *, logins: bool = False) -> None:
        self._app = app
        self._operator = operator
        self._local_token = local_token
        self._logins = logins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            found = await self._principal(scope)
        except HarkenError as error:
            await _refusal(scope, error, logins=self._logins)(scope, receive, send)
            return
        if found is None and scope["path"] not in OPEN:
            missing = Unauthorized("a token is needed", fix="Send it as Authorization: Bearer …")
            await _refusal(scope, missing, logins=self._logins)(scope, receive, send)
            return
        await self._app({**scope, SCOPE_KEY: found}, receive, send)

    async def _principal(self, scope: Scope) -> Principal | None:
        """The caller, None for a stranger. Raises Unauthorized for a token that is not valid."""
        token = _token(scope)
        if not token and self._logins and (session := cookie_of(scope, SESSION_COOKIE)):
            return await self._by_session(scope, session)
        if not token:
            return None if self._local_token else OPERATOR
        if self._local_token and hmac.compare_digest(token.encode(), self._local_token.encode()):
            return OPERATOR
        try:
            return await self._operator.authenticate(token)
        except Unauthorized:
            if scope["path"] in OPEN:
                # a browser sends its old cookie wherever it goes, also where it would get a new one
                return None
            raise

    async def _by_session(self, scope: Scope, session: str) -> Principal | None:
        """Who logged in. A change has to say where it comes from; the guard has checked that it is one of our pages."""
        named = {name for name, _ in scope["headers"]}
        if scope["method"] not in LOOKS and not named & {b"origin", b"sec-fetch-site"}:
            raise Forbidden("a change needs an Origin beside the cookie", fix="Programs send a token instead")
        try:
            return await self._operator.authenticate_session(session)
        except Unauthorized:
            if scope["path"] in OPEN:
                return None
            raise


def is_known(request: Request) -> bool:
    """Whether the caller is no stranger."""
    return request.scope.get(SCOPE_KEY, OPERATOR) is not None


def operator_of(operator: Operator, request: Request) -> Operator:
    """The operations as the caller of this request may use them."""
    return operator.acting_as(caller_of(request.scope))


def session_routes(operator: Operator) -> list[Routed]:
    """Where a page gives a token and gets a cookie that scripts cannot read, and where it gives it back."""
    return [
        Routed(SESSION, _begin(operator), methods=["POST"]),
        Routed(f"{SESSION}/end", _end(operator), methods=["POST"]),
    ]


def _begin(operator: Operator) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        token = (await read_object(request)).get("token")
        if not isinstance(token, str):
            raise Malformed("token must be a text", fix='Send {"token": "…"}')
        await operator.authenticate(token)
        response = Response(status_code=204)
        response.set_cookie(
            COOKIE, token, max_age=COOKIE_SECONDS, httponly=True, samesite="strict", secure=_is_secure(request)
        )
        return response

    return endpoint


def _end(operator: Operator) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        response = Response(status_code=204)
        response.delete_cookie(COOKIE, httponly=True, samesite="strict")
        return (
            await clear_session(operator, request, response) if cookie_of(request.scope, SESSION_COOKIE) else response
        )

    return endpoint


def _is_secure(request: Request) -> bool:
    return request.headers.get("origin", "").startswith("https://") or request.url.scheme == "https"


def _token(scope: Scope) -> str:
    """The token of the request, empty for none. Raises Unauthorized for credentials that are something else."""
    given: list[bytes] = [value for name, value in scope["headers"] if name == b"authorization"]
    if len(given) > 1:
        raise Unauthorized("the request has two headers authorization", fix="Send one")
    if given:
        scheme, _, token = given[0].decode("latin-1").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise Unauthorized("only tokens are taken", fix="Send Authorization: Bearer …")
        return token.strip()
    return cookie_of(scope, COOKIE)


def _refusal(scope: Scope, error: HarkenError, *, logins: bool) -> Response:
    response = errors.error_of(error) if errors.is_admin(scope["path"]) else errors.problem_of(error)
    if isinstance(error, Unauthorized):
        if logins and not errors.is_admin(scope["path"]):
            # a page shows where to log in
            found = {**msgspec.json.decode(bytes(response.body)), "login": LOGIN}
            response = Response(msgspec.json.encode(found), 401, media_type="application/problem+json")
        response.headers["www-authenticate"] = 'Bearer realm="harken"'
    return response
