"""How a user's consent becomes a refresh token: on this machine, by copy and paste, or with a code on another device.

A code is bound to this very request by PKCE, and to this very user's browser by `state`.
https://developers.google.com/identity/protocols/oauth2/native-app
https://developers.google.com/identity/protocols/oauth2/limited-input-device
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

from harken.errors import HarkenError, NeedsAttention, Refused, RetryLater
from harken.kit.fields import text_of
from harken.services.google.api import (
    ACCESS,
    DEVICE_ACCESS,
    USUAL,
    OAuthClient,
    ask_for_token,
    error_code,
    scopes_of,
    token_answer,
)
from harken.services.google.redirect_page import landing
from harken.source import Asking, Consent, Host

__all__ = ["CONSENT", "obtain"]

# nothing listens there: the browser shows an error, and the address to copy
_NOWHERE = "http://127.0.0.1:47807/"
_DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
_SLOWER = 5.0
_AGAIN = "Run it again"


@dataclass(frozen=True, kw_only=True)
class Request:
    """One request for consent; an answer to another one is worth nothing."""

    client: OAuthClient
    scopes: tuple[str, ...]
    redirect: str
    state: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    verifier: str = field(default_factory=lambda: secrets.token_urlsafe(64), repr=False)

    @property
    def address(self) -> str:
        """Where the user consents. `prompt`: without it Google gives a refresh token only the first time."""
        digest = hashlib.sha256(self.verifier.encode()).digest()
        asked = {
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
        return f"{self.client.consent_url}?{urlencode(asked)}"

    def code_in(self, answer: Mapping[str, str]) -> str | None:
        """The code in what the browser was sent on with; None when it does not answer this request."""
        if not secrets.compare_digest(answer.get("state", "").encode(), self.state.encode()):
            return None
        if answer.get("error"):
            raise _denied(answer["error"])
        return answer.get("code") or None


async def obtain(values: Mapping[str, Any], asking: Asking, host: Host) -> Mapping[str, str]:
    """Ask the user for their consent; the refresh token that it gives."""
    client = OAuthClient.model_validate({name: values[name] for name in OAuthClient.model_fields if values.get(name)})
    access = asking.access or USUAL
    scopes = scopes_of(access)
    ways = {"browser": _in_browser, "manual": _by_hand, "device": _on_device}
    if asking.way == "device" and set(access) - DEVICE_ACCESS:
        message = "Google does not give access to Gmail with a code for another device"
        raise Refused(message, fix="Use --manual; or, for the calendar alone, --device --access calendar")
    answer = await ways[asking.way](client, scopes, asking, host)
    return {"refresh_token": _granted(answer, access)}


async def _in_browser(client: OAuthClient, scopes: tuple[str, ...], asking: Asking, host: Host) -> Mapping[str, Any]:
    async with landing() as landed:
        request = Request(client=client, scopes=scopes, redirect=landed.address)
        landed.expect(request.code_in)
        asking.say("Sign in and agree in a browser on this machine:")
        asking.say(request.address)
        asking.browse(request.address)
        try:
            async with asyncio.timeout(asking.seconds):
                code = await landed.code
        except TimeoutError:
            fix = f"{_AGAIN}; where there is no browser on this machine, with --manual"
            raise Refused(f"nobody agreed within {asking.seconds:.0f} s", fix=fix) from None
    return await _redeemed(request, code, host)


async def _by_hand(client: OAuthClient, scopes: tuple[str, ...], asking: Asking, host: Host) -> Mapping[str, Any]:
    request = Request(client=client, scopes=scopes, redirect=_NOWHERE)
    asking.say("Sign in and agree in a browser on any machine:")
    asking.say(request.address)
    asking.say(f"It then fails to open a page at {_NOWHERE}: what is needed is the address of that page.")
    return await _redeemed(request, _pasted(request, asking.answer("Address of the page, or the code in it")), host)


def _pasted(request: Request, text: str) -> str:
    text = text.strip()
    query = urlsplit(text).query or (text if "code=" in text or "error=" in text else "")
    if not query:
        if not text or " " in text:
            raise Refused("this is neither an address nor a code", fix=_AGAIN)
        return unquote(text)
    code = request.code_in({name: values[-1] for name, values in parse_qs(query).items()})
    if code is None:
        raise Refused("this address is the answer to another request", fix=f"{_AGAIN}, and use the newest address")
    return code


async def _redeemed(request: Request, code: str, host: Host) -> Mapping[str, Any]:
    grant = {"code": code, "code_verifier": request.verifier, "redirect_uri": request.redirect}
    return _given(await ask_for_token(request.client, host, grant_type="authorization_code", **grant))


async def _on_device(client: OAuthClient, scopes: tuple[str, ...], asking: Asking, host: Host) -> Mapping[str, Any]:
    told = await _device_code(client, scopes, host)
    where = text_of(told, "verification_url") or text_of(told, "verification_uri")
    asking.say(f"On any device, open {where} and enter the code {text_of(told, 'user_code')}")
    every, life = _seconds(told, "interval", _SLOWER), _seconds(told, "expires_in", asking.seconds)
    ends = host.clock.monotonic() + min(life, asking.seconds)
    while host.clock.monotonic() < ends:
        await host.clock.sleep(every)
        try:
            reply = await ask_for_token(client, host, grant_type=_DEVICE_GRANT, device_code=told["device_code"])
        except RetryLater:
            continue
        code = error_code(reply) if reply.status >= 400 else ""
        every += _SLOWER if code == "slow_down" else 0.0
        if code not in ("authorization_pending", "slow_down") and reply.status < 500:
            return _given(reply)
    raise Refused("the code was not entered in time", fix=_AGAIN)


async def _device_code(client: OAuthClient, scopes: tuple[str, ...], host: Host) -> Mapping[str, Any]:
    asked = {"client_id": client.client_id, "scope": " ".join(scopes)}
    reply = await host.http.request("POST", client.device_url, data=asked, allow_private=host.allow_private)
    if reply.status == 401:
        fix = "This way takes a client of the type TVs and Limited Input devices; with any other, use --manual"
        raise NeedsAttention(f"{reply.url.host} does not take this client for a code", fix=fix)
    if reply.status >= 400:
        token_answer(reply)
    told = reply.json()
    if not text_of(told, "device_code") or not text_of(told, "user_code"):
        raise RetryLater(f"{reply.url.host} answered without a code", fix="Check base_url")
    return dict(told)


def _seconds(told: Mapping[str, Any], name: str, otherwise: float) -> float:
    value = told.get(name)
    return float(value) if isinstance(value, int | float) and value > 0 else otherwise


def _given(reply: Any) -> Mapping[str, Any]:
    code = error_code(reply) if 400 <= reply.status < 500 else ""
    if code == "invalid_grant":
        raise Refused("Google does not take the code: it is wrong, too old or used", fix=_AGAIN)
    if code in ("access_denied", "expired_token"):
        raise _denied(code)
    return token_answer(reply)


def _denied(code: str) -> HarkenError:
    if code == "expired_token":
        return Refused("the code was not entered in time", fix=_AGAIN)
    if code == "access_denied":
        fix = f"{_AGAIN}. While the project is in testing, only its test users may agree"
        return Refused("the user, or the organization, did not agree", fix=fix)
    return Refused("Google did not ask for the consent", fix="Check the client, and that the APIs are enabled")


def _granted(answer: Mapping[str, Any], access: tuple[str, ...]) -> str:
    """The refresh token, if it opens all that was asked for: a user may agree to a part."""
    given = (text_of(answer, "scope") or "").split()
    missing = [word for word in access if given and ACCESS[word] not in given]
    if missing:
        raise Refused(f"the user did not agree to {', '.join(missing)}", fix=f"{_AGAIN}, and tick all boxes")
    token = text_of(answer, "refresh_token")
    if token is None:
        fix = f"Remove Harken at https://myaccount.google.com/permissions. {_AGAIN}"
        raise NeedsAttention("Google gave no refresh token", fix=fix)
    return token


CONSENT = Consent(fills=frozenset({"refresh_token"}), access=tuple(ACCESS), obtain=obtain)
