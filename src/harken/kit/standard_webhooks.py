"""Standard Webhooks: a signature over id, time and body, with a shared key (v1) or a key pair (v1a, Ed25519).

https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

from __future__ import annotations

import binascii
import hmac
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime

from harken.errors import Refused, Unauthorized
from harken.kit.webhook_signatures import MAX_SIGNATURES, TOLERANCE, check_age
from harken.source import Request

__all__ = [
    "MEMORY_SECONDS",
    "SIGNING_TOKEN",
    "StandardWebhooks",
    "check_standard_webhook",
    "sign_message",
    "signed_headers",
]

SIGNING_TOKEN = "whsec_"
"""How the secrets of Standard Webhooks begin; the key itself follows in base64."""
PUBLIC_KEY, PRIVATE_KEY = "whpk_", "whsk_"
MEMORY_SECONDS = 84 * 3_600.0
"""How long ids are remembered: senders try for 75 hours, and the specification asks for 80."""
_Verify = Callable[[bytes, bytes], bool]


class StandardWebhooks:
    """Verifies with each of these keys; ValueError if one of them is none."""

    def __init__(self, secrets: Sequence[str], tolerance: float = TOLERANCE) -> None:
        self._tolerance = tolerance
        self._verifiers = [_verifier(_trimmed(secret)) for secret in secrets]

    def check(self, request: Request, now: datetime) -> None:
        """Raise Unauthorized unless one of the signatures that were sent is right, and fresh."""
        headers = request.headers
        id, stamp, given = (headers.get(f"webhook-{name}", "") for name in ("id", "timestamp", "signature"))
        if not (id and stamp and given):
            needed = "webhook-id, webhook-timestamp and webhook-signature are needed"
            raise Unauthorized(f"the signature is missing: {needed}")
        check_age(stamp, "webhook-timestamp", now, self._tolerance)
        signed = _signed(id, stamp, request.body)
        sent = list(_signatures(given))
        for version, verify in self._verifiers:
            for of_version, signature in sent:
                if of_version == version and verify(signed, signature):
                    return
        raise Unauthorized("the signature in webhook-signature is wrong")


def check_standard_webhook(request: Request, secret: str, now: datetime) -> None:
    """Check a request with one key; Unauthorized also when the key is none."""
    try:
        verifier = StandardWebhooks([secret])
    except ValueError:
        raise Unauthorized("the signing token in the configuration is not one, so nothing can be verified") from None
    verifier.check(request, now)


def signed_headers(secret: str, body: bytes, now: datetime) -> dict[str, str]:
    """The headers of a sample that was signed with a shared key; Refused for a public key, which signs nothing."""
    if secret.startswith(PUBLIC_KEY):
        raise Refused("a public key signs nothing: only the sender has the private one", fix="Let the sender send one")
    return sign_message([secret], f"sample-{int(now.timestamp() * 1e6)}", body, now)


def sign_message(secrets: Sequence[str], id: str, body: bytes, now: datetime) -> dict[str, str]:
    """The headers of a message, with a signature for each of the shared keys; ValueError if one of them is none."""
    stamp = str(int(now.timestamp()))
    signed = _signed(id, stamp, body)
    keys = [_decoded(_trimmed(secret).removeprefix(SIGNING_TOKEN)) for secret in secrets]
    signatures = " ".join(f"v1,{b64encode(hmac.digest(key, signed, 'sha256')).decode()}" for key in keys)
    return {"webhook-id": id, "webhook-timestamp": stamp, "webhook-signature": signatures}


def _signed(id: str, stamp: str, body: bytes) -> bytes:
    # headers are decoded as latin-1, so this gives their bytes back
    return b".".join((id.encode("latin-1", "backslashreplace"), stamp.encode(), body))


def _signatures(header: str) -> Iterator[tuple[str, bytes]]:
    for one in header.split(" ")[:MAX_SIGNATURES]:
        version, _, encoded = one.partition(",")
        try:
            yield version, b64decode(encoded, validate=True)
        except (binascii.Error, ValueError):
            continue


def _verifier(secret: str) -> tuple[str, _Verify]:
    """The version of the signatures that this key verifies, and how."""
    if secret.startswith(PRIVATE_KEY):
        raise ValueError("whsk_ is the sender's private key; the public one begins with whpk_")
    if secret.startswith(PUBLIC_KEY):
        return "v1a", _public_key(_decoded(secret.removeprefix(PUBLIC_KEY)))
    key = _decoded(secret.removeprefix(SIGNING_TOKEN))
    return "v1", lambda signed, given: hmac.compare_digest(hmac.digest(key, signed, "sha256"), given)


def _public_key(key: bytes) -> _Verify:
    # slow to import, and only asymmetric signatures need it
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    public = Ed25519PublicKey.from_public_bytes(key)

    def verify(signed: bytes, given: bytes) -> bool:
        try:
            public.verify(given, signed)
        except InvalidSignature:
            return False
        return True

    return verify


def _decoded(encoded: str) -> bytes:
    """The bytes of a key, whose base64 may be without its padding."""
    try:
        key = b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not key:
        raise ValueError("a key of Standard Webhooks is whsec_ or whpk_, and the key in base64")
    return key


def _trimmed(secret: str) -> str:
    # a secret that was read from a file often ends with a line end
    return secret.rstrip("\r\n")
