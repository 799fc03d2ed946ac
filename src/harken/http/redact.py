"""Known secrets are taken out of text by their value, because no field name tells where a token will turn up."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from urllib.parse import quote, quote_plus

__all__ = ["redact"]

# shorter values would blot out ordinary words
_SHORTEST, _SHORTEST_BASE64 = 4, 8


def redact(text: str, secrets: Iterable[str]) -> str:
    """Replace every secret by `***`, also where it stands URL-encoded or inside base64 (as in Basic auth)."""
    forms = {form for secret in secrets if len(secret) >= _SHORTEST for form in _forms(secret)}
    for form in sorted(forms, key=len, reverse=True):
        text = text.replace(form, "***")
    return text


def _forms(secret: str) -> Iterator[str]:
    quoted = quote(secret, safe="")
    yield from (secret, quoted, quoted.lower() if "%" in quoted else quoted, quote(secret), quote_plus(secret))
    yield repr(secret)[1:-1]
    yield from _base64_forms(secret.encode())


def _base64_forms(secret: bytes) -> Iterator[str]:
    # base64 packs three bytes into four characters: what stands before the secret shifts it by 0, 1 or 2 bytes
    for shift, dirty in ((0, 0), (1, 2), (2, 3)):
        padded = bytes(shift) + secret
        clean = slice(dirty, len(padded) * 8 // 6)
        for encoded in (base64.b64encode(padded), base64.urlsafe_b64encode(padded)):
            core = encoded.decode()[clean]
            if len(core) >= _SHORTEST_BASE64:
                yield core
