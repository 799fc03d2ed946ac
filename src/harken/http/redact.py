"""Remove known secrets from texts and JSON by their value, since a service may repeat a token in any field."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from hashlib import scrypt
from typing import Any
from urllib.parse import quote, quote_plus

import msgspec

from harken.errors import HarkenError

__all__ = ["contains_token", "hide_tokens", "redact", "redact_error", "restore_tokens", "scrub", "scrub_bytes"]

# shorter values occur in ordinary words
_SHORTEST, _SHORTEST_BASE64 = 4, 8
# data is only changed where the value is certainly a token, not a word
_SHORTEST_TOKEN, _LONG_TOKEN = 12, 24
_MASK = "***"
_MASK_BYTES = b"***"
_STAND_IN = re.compile(r"\*\*\*([0-9a-f]{32})\.([0-9]{1,3})\*\*\*")


def redact(text: str, secrets: Iterable[str]) -> str:
    """Replace every secret by `***`, also in URL-encoded form and in base64 (as in Basic auth)."""
    forms = {form for secret in secrets if len(secret) >= _SHORTEST for form in _forms(secret)}
    for form in sorted(forms, key=len, reverse=True):
        text = text.replace(form, _MASK)
    return text


def redact_error(error: HarkenError, secrets: Iterable[str]) -> HarkenError:
    """Redact the error's message and fix in place, and return it."""
    error.message, error.fix = redact(error.message, secrets), redact(error.fix, secrets)
    error.args = (error.message,)
    return error


def scrub(value: Any, secrets: Iterable[str]) -> Any:
    """Return JSON values with our own tokens replaced by `***`: some servers repeat what we sent."""
    forms = _token_forms(frozenset(secrets))
    if not forms or value is None:
        return value
    try:
        # all at once: faster than text by text, and at any depth
        encoded = msgspec.json.encode(value)
        clean = scrub_bytes(encoded, secrets)
        return value if clean == encoded else msgspec.json.decode(clean)
    except (TypeError, ValueError, msgspec.MsgspecError):
        return _map_texts(value, lambda text: _replace_forms(text, forms))


def scrub_bytes(body: bytes, secrets: Iterable[str]) -> bytes:
    """As `scrub`, for the bytes of a response."""
    for form in _token_bytes(frozenset(secrets)):
        if form in body:
            body = body.replace(form, _MASK.encode())
    return body


def contains_token(body: bytes, secrets: Iterable[str]) -> bool:
    """Whether the bytes contain one of our tokens."""
    # faster than any(): every webhook is checked
    for form in _token_bytes(frozenset(secrets)):  # noqa: SIM110
        if form in body:
            return True
    return False


def hide_tokens(value: Any, secrets: Iterable[str]) -> Any:
    """Return JSON values with a stand-in for each of our tokens, which `unveil` can replace by the token again."""
    forms = _token_forms(frozenset(secrets))
    return _map_texts(value, lambda text: _replace_forms(text, forms, _make_stand_in)) if forms else value


def restore_tokens(value: Any, secrets: Iterable[str]) -> Any:
    """Return what `veil` was given. Raise LookupError when one of the tokens is no longer known."""
    if _MASK_BYTES not in msgspec.json.encode(value):
        # the usual case: cursors rarely contain a token
        return value
    known = [secret for secret in secrets if _is_token(secret)]
    return _map_texts(value, lambda text: _STAND_IN.sub(lambda found: _resolve_stand_in(found, known), text))


def _replace_forms(text: str, forms: Mapping[str, str], mask: Callable[[str, str], str] | None = None) -> str:
    for form, secret in forms.items():
        if form in text:
            text = text.replace(form, mask(form, secret) if mask else _MASK)
    return text


def _make_stand_in(form: str, secret: str) -> str:
    return f"***{_fingerprint(secret)}.{sorted(_forms(secret)).index(form)}***"


def _resolve_stand_in(found: re.Match[str], known: Iterable[str]) -> str:
    secret = next((secret for secret in known if _fingerprint(secret) == found[1]), None)
    if secret is None:
        raise LookupError("the token has been changed")
    return sorted(_forms(secret))[int(found[2])]


@lru_cache(maxsize=256)
def _fingerprint(secret: str) -> str:
    # a slow hash, because it is stored: it must not help to guess the secret
    return scrypt(secret.encode(), salt=b"harken stand-in", n=2**14, r=8, p=1, dklen=16).hex()


@lru_cache(maxsize=64)
def _token_forms(secrets: frozenset[str]) -> Mapping[str, str]:
    """Return every form of every token with the token; the longest first, since one may contain another."""
    forms = {form: secret for secret in sorted(secrets) if _is_token(secret) for form in _forms(secret)}
    return dict(sorted(forms.items(), key=lambda pair: len(pair[0]), reverse=True))


@lru_cache(maxsize=64)
def _token_bytes(secrets: frozenset[str]) -> tuple[bytes, ...]:
    return tuple(form.encode() for form in _token_forms(secrets))


def _map_texts(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {_map_texts(key, change): _map_texts(inner, change) for key, inner in value.items()}
    return [_map_texts(inner, change) for inner in value] if isinstance(value, list | tuple) else value


def _is_token(secret: str) -> bool:
    mixed = any(char.isdigit() for char in secret) and any(char.isalpha() for char in secret)
    return len(secret) >= _LONG_TOKEN or (len(secret) >= _SHORTEST_TOKEN and mixed)


@lru_cache(maxsize=512)
def _forms(secret: str) -> frozenset[str]:
    quoted = quote(secret, safe="")
    plain = {secret, quoted, quoted.lower() if "%" in quoted else quoted, quote(secret), quote_plus(secret)}
    return frozenset({*plain, repr(secret)[1:-1], json.dumps(secret)[1:-1], *_base64_forms(secret.encode())})


def _base64_forms(secret: bytes) -> Iterator[str]:
    # base64 packs three bytes into four characters: what precedes the secret shifts it by 0, 1 or 2 bytes
    for shift, dirty in ((0, 0), (1, 2), (2, 3)):
        padded = bytes(shift) + secret
        clean = slice(dirty, len(padded) * 8 // 6)
        for encoded in (base64.b64encode(padded), base64.urlsafe_b64encode(padded)):
            core = encoded.decode()[clean]
            if len(core) >= _SHORTEST_BASE64:
                yield core
