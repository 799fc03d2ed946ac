"""Known secrets are taken out of text by their value, because no field name tells where a token will turn up."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import quote, quote_plus

from harken.errors import HarkenError

__all__ = ["hush", "redact", "scrub", "scrub_bytes"]

# shorter values would blot out ordinary words
_SHORTEST, _SHORTEST_BASE64 = 4, 8
# what is kept and decided upon is changed only where it can be nothing but a token
_SHORTEST_TOKEN, _SURELY = 12, 24
_MASK = "***"


def redact(text: str, secrets: Iterable[str]) -> str:
    """Replace every secret by `***`, also where it stands URL-encoded or inside base64 (as in Basic auth)."""
    forms = {form for secret in secrets if len(secret) >= _SHORTEST for form in _forms(secret)}
    for form in sorted(forms, key=len, reverse=True):
        text = text.replace(form, _MASK)
    return text


def hush(error: HarkenError, secrets: Iterable[str]) -> HarkenError:
    """The same error, without the secrets that somebody put into its words."""
    error.message, error.fix = redact(error.message, secrets), redact(error.fix, secrets)
    error.args = (error.message,)
    return error


def scrub(value: Any, secrets: Iterable[str]) -> Any:
    """JSON values without our own tokens: some servers send back what we sent. Words are never taken for a token."""
    tokens = [secret for secret in secrets if _is_token(secret)]
    return _scrubbed(value, tokens) if tokens else value


def scrub_bytes(body: bytes, secrets: Iterable[str]) -> bytes:
    """The same for an answer as it came."""
    for form in _token_forms(frozenset(secrets)):
        body = body.replace(form, _MASK.encode())
    return body


@lru_cache(maxsize=64)
def _token_forms(secrets: frozenset[str]) -> tuple[bytes, ...]:
    """The longest first, since one may contain another."""
    forms = {form.encode() for secret in secrets if _is_token(secret) for form in _forms(secret)}
    return tuple(sorted(forms, key=len, reverse=True))


def _scrubbed(value: Any, tokens: list[str]) -> Any:
    if isinstance(value, str):
        return redact(value, tokens)
    if isinstance(value, Mapping):
        return {_scrubbed(key, tokens): _scrubbed(inner, tokens) for key, inner in value.items()}
    return [_scrubbed(inner, tokens) for inner in value] if isinstance(value, list | tuple) else value


def _is_token(secret: str) -> bool:
    mixed = any(char.isdigit() for char in secret) and any(char.isalpha() for char in secret)
    return len(secret) >= _SURELY or (len(secret) >= _SHORTEST_TOKEN and mixed)


@lru_cache(maxsize=512)
def _forms(secret: str) -> frozenset[str]:
    quoted = quote(secret, safe="")
    plain = {secret, quoted, quoted.lower() if "%" in quoted else quoted, quote(secret), quote_plus(secret)}
    return frozenset({*plain, repr(secret)[1:-1], json.dumps(secret)[1:-1], *_base64_forms(secret.encode())})


def _base64_forms(secret: bytes) -> Iterator[str]:
    # base64 packs three bytes into four characters: what stands before the secret shifts it by 0, 1 or 2 bytes
    for shift, dirty in ((0, 0), (1, 2), (2, 3)):
        padded = bytes(shift) + secret
        clean = slice(dirty, len(padded) * 8 // 6)
        for encoded in (base64.b64encode(padded), base64.urlsafe_b64encode(padded)):
            core = encoded.decode()[clean]
            if len(core) >= _SHORTEST_BASE64:
                yield core
