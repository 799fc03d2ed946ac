"""The app of a fake GitHub: its key, where it is installed, and the tokens that it was given.

Like GitHub it takes only JWTs whose times are right by its own clock, never gives a token more than the installation
has, and refuses a token after an hour. `late`: seconds in which a new token is not known yet.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode
from datetime import datetime, timedelta
from functools import cache
from itertools import count
from typing import Any

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

__all__ = ["AppToken", "InstalledApp"]

LIFETIME = timedelta(hours=1)
# an id that the app's endpoints take in place of one installation
INSTALLATION = 4242
_LEVELS = ("read", "write", "admin")


class AppToken(msgspec.Struct, frozen=True, kw_only=True):
    """`repositories` are the numbers of those that it may see."""

    repositories: frozenset[int]
    permissions: dict[str, str]
    usable_at: datetime
    expires_at: datetime


class InstalledApp:
    """`repositories` are the names, in lower case, of those that it is installed for."""

    def __init__(self, *repositories: str, permissions: dict[str, str] | None = None) -> None:
        self.id = "1234"
        self.slug = "harken-acme"
        self.repositories = {name.lower() for name in repositories}
        self.permissions = permissions or {"issues": "write", "pull_requests": "write", "metadata": "read"}
        self.suspended = False
        self.hook_url: str | None = None
        self.late = 0.0
        self.tokens: dict[str, AppToken] = {}
        self._numbers = count(1)

    @property
    def login(self) -> str:
        return f"{self.slug}[bot]"

    @property
    def private_key(self) -> str:
        """The key as the file that GitHub gives to download."""
        return _key().private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()).decode()

    def jwt_problem(self, token: str, now: datetime) -> str:
        """Why the JWT is refused; empty if it is right."""
        try:
            header, claims, signature = (urlsafe_b64decode(part + "==") for part in token.split("."))
            _key().public_key().verify(signature, token.rpartition(".")[0].encode(), PKCS1v15(), SHA256())
            told = msgspec.json.decode(claims)
        except (ValueError, InvalidSignature):
            return "A JSON web token could not be decoded"
        if msgspec.json.decode(header) != {"alg": "RS256", "typ": "JWT"} or told["iss"] != self.id:
            return "Integration not found"
        if told["iat"] > now.timestamp():
            return "'Issued at' claim ('iat') must be an Integer representing the time that the assertion was issued"
        if not now.timestamp() < told["exp"] <= now.timestamp() + 600:
            return "'Expiration time' claim ('exp') is too far in the future"
        return ""

    def make_token(self, asked: dict[str, Any], known: dict[str, int], now: datetime) -> tuple[int, dict[str, Any]]:
        """The status and the answer; `known` are the numbers of the repositories that it is installed for."""
        names, numbers = asked.get("repositories", []), asked.get("repository_ids", [])
        wanted = [known.get(name.lower()) for name in names] + [n if n in known.values() else None for n in numbers]
        if None in wanted:
            return 422, {"message": "There is at least one repository that does not exist or is not accessible"}
        for name, level in asked.get("permissions", {}).items():
            if _LEVELS.index(level) > _LEVELS.index(self.permissions.get(name, "read")) or name not in self.permissions:
                return 422, {"message": "The permissions requested are not granted to this installation."}
        value = f"ghs_{next(self._numbers)}"
        permissions = asked.get("permissions", self.permissions)
        self.tokens[value] = AppToken(
            repositories=frozenset(number for number in wanted or known.values() if number is not None),
            permissions=permissions,
            usable_at=now + timedelta(seconds=self.late),
            expires_at=now + LIFETIME,
        )
        ends = (now + LIFETIME).strftime("%Y-%m-%dT%H:%M:%SZ")
        return 201, {"token": value, "expires_at": ends, "permissions": permissions}

    def describe(self) -> dict[str, Any]:
        return {
            "id": int(self.id),
            "slug": self.slug,
            "name": "Harken for Acme",
            "html_url": f"https://github.com/apps/{self.slug}",
            "events": ["issues", "issue_comment"],
            "permissions": self.permissions,
        }

    def installation(self) -> dict[str, Any]:
        return {"id": INSTALLATION, "app_slug": self.slug, "permissions": self.permissions}


@cache
def _key() -> RSAPrivateKey:
    return generate_private_key(public_exponent=65537, key_size=2048)
