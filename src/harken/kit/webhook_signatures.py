"""How services prove that a webhook is theirs: signatures of the raw bytes, tokens, and HTTP Basic.

Every check raises Unauthorized when the proof is missing or wrong, and compares in constant time. An empty secret never
verifies anything.
"""

from __future__ import annotations

import binascii
import hmac
from base64 import b64decode
from collections.abc import Callable, Sequence
from datetime import datetime

from harken.errors import Unauthorized
from harken.source import Request

__all__ = [
    "BASIC_SAMPLE",
    "BEARER_SAMPLE",
    "TOLERANCE",
    "check_age",
    "check_any",
    "check_basic",
    "check_bearer",
    "check_hex_signature",
    "check_hub_signature",
    "check_signature_list",
    "check_token",
    "hex_signature",
]

BEARER_SAMPLE = {"Authorization": "Bearer $SECRET"}
BASIC_SAMPLE = {"Authorization": "Basic $SECRET"}
"""The headers of a sample, in which the secret stands for itself."""

TOLERANCE = 300.0
"""Seconds that a signed time may be off."""
# more signatures than any change of keys has
MAX_SIGNATURES = 20


def check_any(check: Callable[[str], None], secrets: Sequence[str]) -> None:
    """Check with each secret, as there are two while one replaces the other; the last one says what is wrong."""
    refused = Unauthorized("there is no secret to verify it with")
    for secret in secrets:
        try:
            return check(secret)
        except Unauthorized as error:
            refused = error
    raise refused


def check_hub_signature(request: Request, header: str, secret: str) -> None:
    """`sha256=<hex>` of the body, as GitHub and Jira send it. SHA-1 does not count, even if it is right."""
    check_hex_signature(request, header, secret, prefix="sha256=")


def hex_signature(secret: str, signed: bytes) -> str:
    return hmac.digest(_key(secret), signed, "sha256").hex()


def check_hex_signature(
    request: Request, header: str, secret: str, *, prefix: str = "", signed: bytes | None = None
) -> None:
    """HMAC-SHA256 in hex after a prefix; of the body, or of what else was signed."""
    expected = prefix + hex_signature(secret, request.body if signed is None else signed)
    _compare(header, secret, expected.encode(), request.headers.get(header, ""))


def check_signature_list(
    request: Request, header: str, secret: str, *, prefix: str, signed: bytes | None = None
) -> None:
    """One of the `<prefix><hex>` in a list with commas; there are several while the sender changes its key."""
    expected = (prefix + hex_signature(secret, request.body if signed is None else signed)).encode()
    given = request.headers.get(header, "").encode("latin-1", "backslashreplace")
    sent = [one.strip() for one in given.split(b",")[:MAX_SIGNATURES]]
    if not any([hmac.compare_digest(expected, one) for one in sent]) or not _key(secret):
        raise _unauthorized(header, given)


def check_age(stamp: str, header: str, now: datetime, tolerance: float = TOLERANCE) -> None:
    """The seconds in a header that is signed: an old time is that of a repeated request."""
    if not (stamp.isascii() and stamp.isdigit() and len(stamp) <= 12):
        raise Unauthorized(f"the time in {header} is {'not one' if stamp else 'missing'}")
    if abs(now.timestamp() - int(stamp)) > tolerance:
        raise Unauthorized(f"the time in {header} is too far from now")


def check_token(request: Request, header: str, secret: str) -> None:
    """The secret itself is in the header."""
    _compare(header, secret, _key(secret), request.headers.get(header, ""))


def check_bearer(request: Request, secret: str) -> None:
    """The secret is in `Authorization: Bearer`."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    given = token.strip().encode("latin-1", "backslashreplace") if scheme.lower() == "bearer" else b""
    if not hmac.compare_digest(given, _key(secret)) or not _key(secret):
        raise _unauthorized("authorization", given)


def check_basic(request: Request, secret: str, header: str = "authorization") -> None:
    """HTTP Basic; the secret is the password, whoever the user is, or `user:password`."""
    scheme, _, encoded = request.headers.get(header, "").partition(" ")
    try:
        given = b64decode(encoded.strip(), validate=True) if scheme.lower() == "basic" else b""
    except (binascii.Error, ValueError):
        given = b""
    key, (_, colon, password) = _key(secret), given.partition(b":")
    right = hmac.compare_digest(given, key) | hmac.compare_digest(password, key)
    if not (key and colon and right):
        raise _unauthorized(header, given)


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
