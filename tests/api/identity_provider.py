"""A small OpenID Connect provider with signing keys of its own. What it says can be made wrong in every way."""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from base64 import b64decode, urlsafe_b64encode
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256

CLIENT, SECRET = "harken", "very secret: yes"


def encoded(value: bytes) -> str:
    return urlsafe_b64encode(value).rstrip(b"=").decode()


def part(value: Mapping[str, Any]) -> str:
    return encoded(json.dumps(value).encode())


class RsaKey:
    algorithm = "RS256"

    def __init__(self, kid: str) -> None:
        self.kid = kid
        self.private = rsa.generate_private_key(65537, 2048)

    def sign(self, signed: bytes) -> bytes:
        return self.private.sign(signed, padding.PKCS1v15(), SHA256())

    def public(self) -> dict[str, str]:
        numbers = self.private.public_key().public_numbers()
        e, n = (encoded(value.to_bytes((value.bit_length() + 7) // 8, "big")) for value in (numbers.e, numbers.n))
        return {"kty": "RSA", "kid": self.kid, "use": "sig", "e": e, "n": n}


class EllipticKey:
    algorithm = "ES256"

    def __init__(self, kid: str) -> None:
        self.kid = kid
        self.private = ec.generate_private_key(ec.SECP256R1())

    def sign(self, signed: bytes) -> bytes:
        r, s = decode_dss_signature(self.private.sign(signed, ec.ECDSA(SHA256())))
        return r.to_bytes(32, "big") + s.to_bytes(32, "big")

    def public(self) -> dict[str, str]:
        numbers = self.private.public_key().public_numbers()
        x, y = (encoded(value.to_bytes(32, "big")) for value in (numbers.x, numbers.y))
        return {"kty": "EC", "crv": "P-256", "kid": self.kid, "x": x, "y": y}


class IdentityProvider:
    """`claims` and `header` replace what an ID token says; `token` makes another one of the claims."""

    def __init__(self) -> None:
        self.keys: list[RsaKey | EllipticKey] = [RsaKey("one")]
        self.url = ""
        self.now: Callable[[], float] = time.time
        self.claims: dict[str, Any] = {}
        self.header: dict[str, Any] = {}
        self.token: Callable[[dict[str, Any]], str] | None = None
        self.asked: dict[str, dict[str, str]] = {}
        self.fetched: list[str] = []
        self.issuer = ""

    def authorize(self, address: str) -> dict[str, str]:
        """Somebody agrees there: what the browser brings back."""
        asked = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
        assert (asked["response_type"], asked["client_id"], asked["code_challenge_method"]) == ("code", CLIENT, "S256")
        code = f"code-{len(self.asked)}"
        self.asked[code] = asked
        return {"code": code, "state": asked["state"]}

    async def agree(self, request: web.Request) -> web.Response:
        """Where a browser is sent: somebody is logged in there already, and agrees."""
        answer = self.authorize(str(request.url))
        raise web.HTTPFound(f"{request.query['redirect_uri']}?{urlencode(answer)}")

    def id_token(self, claims: dict[str, Any]) -> str:
        if self.token is not None:
            return self.token(claims)
        key = self.keys[-1]
        head = part({"alg": key.algorithm, "kid": key.kid, **self.header})
        signed = f"{head}.{part(claims)}"
        return f"{signed}.{encoded(key.sign(signed.encode()))}"

    async def describe(self, request: web.Request) -> web.Response:
        self.fetched.append("description")
        return web.json_response(
            {
                "issuer": self.issuer or self.url,
                "authorization_endpoint": f"{self.url}/authorize?tenant=a",
                "token_endpoint": f"{self.url}/token",
                "jwks_uri": f"{self.url}/keys",
            }
        )

    async def publish(self, request: web.Request) -> web.Response:
        self.fetched.append("keys")
        return web.json_response({"keys": [key.public() for key in self.keys]})

    async def exchange(self, request: web.Request) -> web.Response:
        form = await request.post()
        given = b64decode(request.headers["Authorization"].removeprefix("Basic ")).decode()
        if given != "harken:very%20secret%3A%20yes":
            return web.json_response({"error": "invalid_client"}, status=401)
        asked = self.asked.pop(str(form["code"]), None)
        if asked is None:
            return web.json_response({"error": "invalid_grant"}, status=400)
        challenge = encoded(hashlib.sha256(str(form["code_verifier"]).encode()).digest())
        if not hmac.compare_digest(challenge, asked["code_challenge"]) or form["redirect_uri"] != asked["redirect_uri"]:
            return web.json_response({"error": "invalid_grant"}, status=400)
        now = self.now()
        claims = {"iss": self.url, "aud": CLIENT, "sub": "u-1", "nonce": asked["nonce"], "iat": now, "exp": now + 300}
        claims |= {"email": "ana@example.com", "groups": ["oncall"], **self.claims}
        answer = {"id_token": self.id_token(claims), "access_token": "unused", "token_type": "Bearer"}
        return web.json_response(answer)


@asynccontextmanager
async def identity_provider() -> AsyncIterator[IdentityProvider]:
    provider = IdentityProvider()
    app = web.Application()
    app.router.add_get("/.well-known/openid-configuration", provider.describe)
    app.router.add_get("/authorize", provider.agree)
    app.router.add_get("/keys", provider.publish)
    app.router.add_post("/token", provider.exchange)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    provider.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield provider
    await runner.cleanup()
