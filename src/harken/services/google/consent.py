"""Obtains a refresh token by the user's consent: in a browser here, by copy and paste, or on another device.

PKCE binds the authorization code to this request, `state` to this user's browser.
https://developers.google.com/identity/protocols/oauth2/native-app
https://developers.google.com/identity/protocols/oauth2/limited-input-device
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

from harken.errors import HarkenError, NeedsAttention, Refused, RetryLater
from harken.kit.values_from_payload import text_of
from harken.services.google.api import (
    ACCESS,
    DEFAULT_ACCESS,
    DEVICE_ACCESS,
    OAuthClient,
    error_code,
    expect_token,
    request_token,
    scopes_of,
)
from harken.source import Asking, Consent, Host

if TYPE_CHECKING:
    from aiohttp import web

__all__ = ["CONSENT", "obtain"]

# no server listens at this port: the browser shows an error, and the address to copy
_UNSERVED = "http://127.0.0.1:47807/"
_DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
_DEVICE_INTERVAL = 5.0
_AGAIN = "Run it again"
_DONE = "Harken has the consent. You may close this page."
_DENIED = "Harken was not given the consent. You may close this page."
_UNEXPECTED = "This is not the answer that Harken is waiting for. Use the newest page, or start again."
_HEADERS = {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}


@dataclass(frozen=True, kw_only=True)
class ConsentRequest:
    """One request for consent; answers to other requests are refused."""

    client: OAuthClient
    scopes: tuple[str, ...]
    redirect: str
    state: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    verifier: str = field(default_factory=lambda: secrets.token_urlsafe(64), repr=False)

    @property
    def address(self) -> str:
        """The consent page. Without `prompt` Google gives a refresh token only the first time."""
        digest = hashlib.sha256(self.verifier.encode()).digest()
        params = {
            "client_id": self.client.client_id,
            "redirect_uri": self.redirect,
            "response_type": "code",
            "scope": " ".join(self.scopes),
            "state": self.state,
            "code_challenge": base64.urlsafe_b64encode(digest).decode().rstrip("="),
            "code_challenge_method": "S256",
            "access_type": "offline",
            "prompt": "consent",
        }
        return f"{self.client.consent_url}?{urlencode(params)}"

    def read_code(self, answer: Mapping[str, str]) -> str | None:
        """The authorization code in the redirect's parameters; None if they answer another request."""
        if not secrets.compare_digest(answer.get("state", "").encode(), self.state.encode()):
            return None
        if answer.get("error"):
            raise _denial(answer["error"])
        return answer.get("code") or None


async def obtain(values: Mapping[str, Any], asking: Asking, host: Host) -> Mapping[str, str]:
    """Ask the user for consent and return the refresh token."""
    client = OAuthClient.model_validate({name: values[name] for name in OAuthClient.model_fields if values.get(name)})
    access = asking.access or DEFAULT_ACCESS
    scopes = scopes_of(access)
    ways = {"browser": _in_browser, "manual": _manually, "device": _on_device}
    if asking.way == "device" and set(access) - DEVICE_ACCESS:
        message = "Google does not give access to Gmail with a code for another device"
        raise Refused(message, fix="Use --manual; or, for the calendar alone, --device --access calendar")
    answer = await ways[asking.way](client, scopes, asking, host)
    return {"refresh_token": _refresh_token(answer, access)}


async def _in_browser(client: OAuthClient, scopes: tuple[str, ...], asking: Asking, host: Host) -> Mapping[str, Any]:
    async with redirect_page() as page:
        request = ConsentRequest(client=client, scopes=scopes, redirect=page.address)
        page.expect(request.read_code)
        asking.say("Sign in and agree in a browser on this machine:")
        asking.say(request.address)
        asking.browse(request.address)
        try:
            async with asyncio.timeout(asking.seconds):
                code = await page.code
        except TimeoutError:
            fix = f"{_AGAIN}; where there is no browser on this machine, with --manual"
            raise Refused(f"nobody agreed within {asking.seconds:.0f} s", fix=fix) from None
    return await _redeem(request, code, host)


async def _manually(client: OAuthClient, scopes: tuple[str, ...], asking: Asking, host: Host) -> Mapping[str, Any]:
    request = ConsentRequest(client=client, scopes=scopes, redirect=_UNSERVED)
    asking.say("Sign in and agree in a browser on any machine:")
    asking.say(request.address)
    asking.say(f"It then fails to open a page at {_UNSERVED}: what is needed is the address of that page.")
    return await _redeem(request, _parse_pasted(request, asking.answer("Address of the page, or the code in it")), host)


def _parse_pasted(request: ConsentRequest, text: str) -> str:
    text = text.strip()
    query = urlsplit(text).query or (text if "code=" in text or "error=" in text else "")
    if not query:
        if not text or " " in text:
            raise Refused("this is neither an address nor a code", fix=_AGAIN)
        return unquote(text)
    code = request.read_code({name: values[-1] for name, values in parse_qs(query).items()})
    if code is None:
        raise Refused("this address is the answer to another request", fix=f"{_AGAIN}, and use the newest address")
    return code


async def _redeem(request: ConsentRequest, code: str, host: Host) -> Mapping[str, Any]:
    grant = {"code": code, "code_verifier": request.verifier, "redirect_uri": request.redirect}
    return _expect_grant(await request_token(request.client, host, grant_type="authorization_code", **grant))


async def _on_device(client: OAuthClient, scopes: tuple[str, ...], asking: Asking, host: Host) -> Mapping[str, Any]:
    device = await _device_code(client, scopes, host)
    where = text_of(device, "verification_url") or text_of(device, "verification_uri")
    asking.say(f"On any device, open {where} and enter the code {text_of(device, 'user_code')}")
    interval, life = _seconds(device, "interval", _DEVICE_INTERVAL), _seconds(device, "expires_in", asking.seconds)
    deadline = host.clock.monotonic() + min(life, asking.seconds)
    while host.clock.monotonic() < deadline:
        await host.clock.sleep(interval)
        try:
            reply = await request_token(client, host, grant_type=_DEVICE_GRANT, device_code=device["device_code"])
        except RetryLater:
            continue
        code = error_code(reply) if reply.status >= 400 else ""
        interval += _DEVICE_INTERVAL if code == "slow_down" else 0.0
        if code not in ("authorization_pending", "slow_down") and reply.status < 500:
            return _expect_grant(reply)
    raise Refused("the code was not entered in time", fix=_AGAIN)


async def _device_code(client: OAuthClient, scopes: tuple[str, ...], host: Host) -> Mapping[str, Any]:
    data = {"client_id": client.client_id, "scope": " ".join(scopes)}
    reply = await host.request("POST", client.device_url, data=data)
    if reply.status == 401:
        fix = "--device needs a client of the type TVs and Limited Input devices; with any other, use --manual"
        raise NeedsAttention(f"{reply.url.host} gives this client no device code", fix=fix)
    if reply.status >= 400:
        expect_token(reply)
    device = reply.json()
    if not text_of(device, "device_code") or not text_of(device, "user_code"):
        raise RetryLater(f"{reply.url.host} answered without a device code", fix="Check base_url")
    return dict(device)


def _seconds(device: Mapping[str, Any], name: str, default: float) -> float:
    value = device.get(name)
    return float(value) if isinstance(value, int | float) and value > 0 else default


def _expect_grant(reply: Any) -> Mapping[str, Any]:
    code = error_code(reply) if 400 <= reply.status < 500 else ""
    if code == "invalid_grant":
        raise Refused("Google refused the code: it is wrong, too old or used", fix=_AGAIN)
    if code in ("access_denied", "expired_token"):
        raise _denial(code)
    return expect_token(reply)


def _denial(code: str) -> HarkenError:
    if code == "expired_token":
        return Refused("the code was not entered in time", fix=_AGAIN)
    if code == "access_denied":
        fix = f"{_AGAIN}. While the project is in testing, only its test users may agree"
        return Refused("the user, or the organization, did not agree", fix=fix)
    return Refused("Google did not ask the user for consent", fix="Check the client, and that the APIs are enabled")


def _refresh_token(answer: Mapping[str, Any], access: tuple[str, ...]) -> str:
    """The refresh token, if it covers all requested access: a user may agree to a part."""
    given = (text_of(answer, "scope") or "").split()
    missing = [word for word in access if given and ACCESS[word] not in given]
    if missing:
        raise Refused(f"the user did not agree to {', '.join(missing)}", fix=f"{_AGAIN}, and tick all boxes")
    token = text_of(answer, "refresh_token")
    if token is None:
        fix = f"Remove Harken at https://myaccount.google.com/permissions. {_AGAIN}"
        raise NeedsAttention("Google gave no refresh token", fix=fix)
    return token


class RedirectPage:
    """A page on this machine that the browser is redirected to. Answers to other requests do not set `code`."""

    def __init__(self) -> None:
        self.address = ""
        self.code: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._read: Callable[[Mapping[str, str]], str | None] = lambda answer: None

    def expect(self, read: Callable[[Mapping[str, str]], str | None]) -> None:
        """`read` returns the code in the parameters, None if they answer another request, or raises a denial."""
        self._read = read

    async def handle(self, request: web.Request) -> web.Response:
        from aiohttp import web

        try:
            code = self._read(request.query)
        except HarkenError as error:
            self._settle(error)
            return web.Response(text=_DENIED, headers=_HEADERS)
        if code is None:
            return web.Response(status=400, text=_UNEXPECTED, headers=_HEADERS)
        self._settle(code)
        return web.Response(text=_DONE, headers=_HEADERS)

    def _settle(self, outcome: str | HarkenError) -> None:
        if self.code.done():
            return
        if isinstance(outcome, HarkenError):
            self.code.set_exception(outcome)
        else:
            self.code.set_result(outcome)


@asynccontextmanager
async def redirect_page() -> AsyncIterator[RedirectPage]:
    """Serve the page on a free loopback port until the block ends."""
    from aiohttp import web

    found, app = RedirectPage(), web.Application()
    app.router.add_get("/", found.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        found.address = f"http://127.0.0.1:{runner.addresses[0][1]}/"
        yield found
    finally:
        await runner.cleanup()
        found.code.cancel()


CONSENT = Consent(fills=frozenset({"refresh_token"}), access=tuple(ACCESS), obtain=obtain)
