"""How services prove that a webhook is theirs: signatures of the raw bytes, tokens, and HTTP Basic.

Every check raises Unauthorized when the proof is missing or wrong, and compares in constant time. An empty secret never
verifies anything.
"""

from __future__ import annotations

import binascii
import hmac
from base64 import b64decode
from datetime import datetime

from harken.errors import Unauthorized
from harken.source import Request

__all__ = ["SIGNING_TOKEN", "check_basic", "check_hub_signature", "check_standard_webhook", "check_token"]

SIGNING_TOKEN = "whsec_"
"""How the secrets of Standard Webhooks begin; the key itself follows in base64."""
TOLERANCE = 300.0
"""Seconds that the signed time of a Standard Webhook may be off: an older request is a repeated one."""
# more signatures than any rotation of keys has
MAX_SIGNATURES = 20


def check_hub_signature(request: Request, header: str, secret: str) -> None:
    """`sha256=<hex>` of the body, as GitHub and Jira send it. SHA-1 does not count, even if it is right."""
    given = request.headers.get(header, "")
    expected = f"sha256={hmac.digest(_key(secret), request.body, 'sha256').hex()}"
    _compare(header, secret, expected.encode(), given)


def check_token(request: Request, header: str, secret: str) -> None:
    """The secret itself is in the header."""
    _compare(header, secret, _key(secret), request.headers.get(header, ""))


def check_basic(request: Request, secret: str) -> None:
    """HTTP Basic; the secret is the password, whoever the user is, or `user:password`."""
    scheme, _, encoded = request.headers.get("authorization", "").partition(" ")
    try:
        given = b64decode(encoded.strip(), validate=True) if scheme.lower() == "basic" else b""
    except (binascii.Error, ValueError):
        given = b""
    key, (_, colon, password) = _key(secret), given.partition(b":")
    right = hmac.compare_digest(given, key) | hmac.compare_digest(password, key)
    if not (key and colon and right):
        raise _unauthorized("authorization", given)


def check_standard_webhook(request: Request, secret: str, now: datetime) -> None:
    """webhook-signature over id, time and body; several signatures are sent while the key is being changed.

    https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
    """
    headers = request.headers
    id, stamp, given = (headers.get(f"webhook-{name}", "") for name in ("id", "timestamp", "signature"))
    if not (id and stamp and given):
        raise Unauthorized("the signature is missing: webhook-id, webhook-timestamp and webhook-signature are needed")
    if not (stamp.isascii() and stamp.isdigit() and len(stamp) <= 12):
        raise Unauthorized("the time in webhook-timestamp is not one")
    if abs(now.timestamp() - int(stamp)) > TOLERANCE:
        raise Unauthorized("the time in webhook-timestamp is too far from now")
    key = _signing_key(secret)
    signed = b".".join((id.encode("latin-1", "backslashreplace"), stamp.encode(), request.body))
    expected = hmac.digest(key, signed, "sha256")
    if not any([hmac.compare_digest(expected, one) for one in _versions(given)]) or not key:
        raise Unauthorized("the signature in webhook-signature is wrong")


def _versions(header: str) -> list[bytes]:
    """The signatures of version 1; others are of keys that we do not have."""
    found = []
    for one in header.split(" ")[:MAX_SIGNATURES]:
        version, _, encoded = one.partition(",")
        try:
            found += [b64decode(encoded, validate=True)] if version == "v1" else []
        except (binascii.Error, ValueError):
            continue
    return found


def _signing_key(secret: str) -> bytes:
    try:
        return b64decode(_key(secret).removeprefix(SIGNING_TOKEN.encode()), validate=True)
    except (binascii.Error, ValueError):
        raise Unauthorized("the signing token in the configuration is not one, so nothing can be verified") from None


def _key(secret: str) -> bytes:
    # a secret that was read from a file often ends with a line end
    return secret.rstrip("\r\n").encode()


def _compare(header: str, secret: str, expected: bytes, given: str) -> None:
    # headers are decoded as latin-1, so this gives their bytes back
    sent = given.encode("latin-1", "backslashreplace")
    if not hmac.compare_digest(expected, sent) or not _key(secret):
        raise _unauthorized(header, sent)


def _unauthorized(header: str, given: bytes) -> Unauthorized:
    return Unauthorized(f"the signature in {header} is {'wrong' if given else 'missing'}")
