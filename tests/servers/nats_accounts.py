"""An operator, an account and a user of NATS, as its `nsc` would make them: keys, JWTs and a .creds file."""

from __future__ import annotations

import base64
import json
import secrets
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

__all__ = ["NatsAccounts"]

SEED = 18 << 3
OPERATOR, ACCOUNT, USER = 14 << 3, 0, 20 << 3
ENDLESS = -1


class Key:
    """A private key of the kind, with its names as NATS writes them: https://docs.nats.io/reference/nats-protocol"""

    def __init__(self, kind: int) -> None:
        self._key = Ed25519PrivateKey.generate()
        self.public = _encode(bytes([kind]) + self._key.public_key().public_bytes_raw())
        two = bytes([SEED | (kind >> 5), (kind & 31) << 3])
        self.seed = _encode(two + self._key.private_bytes_raw())

    def sign(self, subject: Key, claims: dict[str, Any]) -> str:
        about = {"jti": secrets.token_hex(8), "iat": 1_700_000_000, "iss": self.public, "sub": subject.public}
        content = {**about, "name": "tests", "nats": {**claims, "version": 2}}
        parts = [_base64({"typ": "JWT", "alg": "ed25519-nkey"}), _base64(content)]
        signature = base64.urlsafe_b64encode(self._key.sign(".".join(parts).encode())).rstrip(b"=").decode()
        return ".".join([*parts, signature])


class NatsAccounts:
    def __init__(self) -> None:
        self._operator, self._account, self._user = Key(OPERATOR), Key(ACCOUNT), Key(USER)

    def settings(self) -> str:
        """What a server that trusts this operator has in its configuration."""
        names = ("subs", "data", "payload", "imports", "exports", "conn", "leaf")
        storage = {"mem_storage": ENDLESS, "disk_storage": ENDLESS, "streams": ENDLESS, "consumer": ENDLESS}
        limits = {**dict.fromkeys(names, ENDLESS), "wildcards": True, **storage}
        operator = self._operator.sign(self._operator, {"type": "operator"})
        account = self._operator.sign(self._account, {"type": "account", "limits": limits})
        system = Key(ACCOUNT)
        of_system = self._operator.sign(
            system, {"type": "account", "limits": {**dict.fromkeys(names, ENDLESS), "wildcards": True}}
        )
        preload = f"{{ {self._account.public}: {account}, {system.public}: {of_system} }}"
        return f"operator: {operator}\nsystem_account: {system.public}\nresolver: MEMORY\nresolver_preload: {preload}"

    def credentials(self) -> str:
        limits = {"subs": ENDLESS, "data": ENDLESS, "payload": ENDLESS}
        jwt = self._account.sign(self._user, {"type": "user", "pub": {}, "sub": {}, **limits})
        return (
            f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n"
            f"-----BEGIN USER NKEY SEED-----\n{self._user.seed}\n------END USER NKEY SEED------\n"
        )


def _base64(value: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def _encode(raw: bytes) -> str:
    return base64.b32encode(raw + _checksum(raw).to_bytes(2, "little")).rstrip(b"=").decode()


def _checksum(raw: bytes) -> int:
    """CRC-16/XMODEM."""
    found = 0
    for byte in raw:
        found ^= byte << 8
        for _ in range(8):
            found = (found << 1 ^ 0x1021 if found & 0x8000 else found << 1) & 0xFFFF
    return found
