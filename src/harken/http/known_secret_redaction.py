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
from harken.http.secret_search import TextSearch

__all__ = [
    "contains_token",
    "hide_tokens",
    "prepare_search",
    "redact",
    "redact_error",
    "restore_tokens",
    "scrub",
    "scrub_bytes",
]

# shorter values occur in ordinary words
_SHORTEST, _SHORTEST_BASE64 = 4, 8
# data is only changed where the value is certainly a token, not a word
_SHORTEST_TOKEN, _LONG_TOKEN = 12, 24
# larger sets of secrets are few, and take memory
_FEW = 32
_MASK = "***"
_MASK_BYTES = b"***"
_STAND_IN = re.compile(r"\*\*\*([0-9a-f]{32})\.([0-9]{1,3})\*\*\*")


def redact(text: str, secrets: Iterable[str]) -> str:
    """Replace every secret by `***`, also in URL-encoded form and in base64 (as in Basic auth)."""
    known = frozenset(secrets)
    return _words_of(known).mask_text(text) if known else text


def prepare_search(secrets: frozenset[str]) -> None:
    """Get ready to look for these. Thousands take some time, which the first event should not have to wait for."""
    _words_of(secrets)
    _tokens_of(secrets)


def redact_error(error: HarkenError, secrets: Iterable[str]) -> HarkenError:
    """Redact the error's message and fix in place, and return it."""
    error.message, error.fix = redact(error.message, secrets), redact(error.fix, secrets)
    error.args = (error.message,)
    return error


def scrub(value: Any, secrets: Iterable[str]) -> Any:
    """Return JSON values with our own tokens replaced by `***`: some servers repeat what we sent."""
    tokens = _tokens_of(secrets)
    if not tokens.forms or not value:
        # a record of a step has an error and warnings, which are nearly always empty
        return value
    try:
        # all at once: faster than text by text, and at any depth
        encoded = msgspec.json.encode(value)
        clean = tokens.mask_bytes(encoded)
        return value if clean == encoded else msgspec.json.decode(clean)
    except (TypeError, ValueError, msgspec.MsgspecError):
        return _map_texts(value, tokens.mask_text)


def scrub_bytes(body: bytes, secrets: Iterable[str]) -> bytes:
    """As `scrub`, for the bytes of a response."""
    return _tokens_of(secrets).mask_bytes(body)


def contains_token(body: bytes, secrets: Iterable[str]) -> bool:
    """Whether the bytes contain one of our tokens."""
    return _tokens_of(secrets).search.occurs_in(body)


def hide_tokens(value: Any, secrets: Iterable[str]) -> Any:
    """Return JSON values with a stand-in for each of our tokens, which `restore_tokens` replaces by the token again."""
    tokens = _tokens_of(secrets)
    return _map_texts(value, tokens.hide) if tokens.forms else value


def restore_tokens(value: Any, secrets: Iterable[str]) -> Any:
    """Return what `hide_tokens` was given. Raise LookupError when one of the tokens is no longer known."""
    if _MASK_BYTES not in msgspec.json.encode(value):
        # the usual case: cursors rarely contain a token
        return value
    known = [secret for secret in secrets if _is_token(secret)]
    return _map_texts(value, lambda text: _STAND_IN.sub(lambda found: _resolve_stand_in(found, known), text))


class _Forms:
    """Every form of some secrets with its secret; the longest first, since one may contain another."""

    __slots__ = ("_in_masks", "forms", "search")

    def __init__(self, secrets: Iterable[str]) -> None:
        forms = {form: secret for secret in sorted(secrets) for form in _forms(secret)}
        self.forms = sorted(forms.items(), key=lambda pair: len(pair[0]), reverse=True)
        self.search = TextSearch([form.encode("utf-8", "surrogatepass") for form, _ in self.forms])
        # a mask and what stands beside it may be such a form, although the text had none
        self._in_masks = [at for at, (form, _) in enumerate(self.forms) if "*" in form]

    def mask_bytes(self, body: bytes) -> bytes:
        for at in self._found_in(body):
            body = body.replace(self.search.texts[at], _MASK_BYTES)
        return body

    def mask_text(self, text: str) -> str:
        for at in self._found_in(text.encode("utf-8", "surrogatepass")):
            text = text.replace(self.forms[at][0], _MASK)
        return text

    def hide(self, text: str) -> str:
        """Replace each form by its stand-in."""
        done = -1
        # one form at a time: a stand-in may complete another form
        while found := [at for at in self.search.found_in(text.encode("utf-8", "surrogatepass")) if at > done]:
            done = found[0]
            form, secret = self.forms[done]
            text = text.replace(form, _make_stand_in(form, secret))
        return text

    def _found_in(self, body: bytes) -> list[int]:
        found = self.search.found_in(body)
        return sorted({*found, *self._in_masks}) if found and self._in_masks else found


def _make_stand_in(form: str, secret: str) -> str:
    return f"***{_fingerprint(secret)}.{sorted(_forms(secret)).index(form)}***"


def _resolve_stand_in(found: re.Match[str], known: Iterable[str]) -> str:
    secret = next((secret for secret in known if _fingerprint(secret) == found[1]), None)
    if secret is None:
        raise LookupError("the token has been changed")
    return sorted(_forms(secret))[int(found[2])]


@lru_cache(maxsize=16_384)
def _fingerprint(secret: str) -> str:
    # a slow hash, because it is stored: it must not help to guess the secret
    return scrypt(secret.encode(), salt=b"harken stand-in", n=2**14, r=8, p=1, dklen=16).hex()


def _words_of(secrets: frozenset[str]) -> _Forms:
    return _words(secrets) if len(secrets) <= _FEW else _many_words(secrets)


def _tokens_of(secrets: Iterable[str]) -> _Forms:
    known = frozenset(secrets)
    return _tokens(known) if len(known) <= _FEW else _many_tokens(known)


def _build_tokens(secrets: frozenset[str]) -> _Forms:
    return _Forms(secret for secret in secrets if _is_token(secret))


def _build_words(secrets: frozenset[str]) -> _Forms:
    return _Forms(secret for secret in secrets if len(secret) >= _SHORTEST)


# an installation has one large set, which changes at a reload; services have small ones of their own
_tokens, _many_tokens = lru_cache(maxsize=256)(_build_tokens), lru_cache(maxsize=3)(_build_tokens)
_words, _many_words = lru_cache(maxsize=256)(_build_words), lru_cache(maxsize=3)(_build_words)


def _map_texts(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {_map_texts(key, change): _map_texts(inner, change) for key, inner in value.items()}
    return [_map_texts(inner, change) for inner in value] if isinstance(value, list | tuple) else value


def _is_token(secret: str) -> bool:
    mixed = any(char.isdigit() for char in secret) and any(char.isalpha() for char in secret)
    return len(secret) >= _LONG_TOKEN or (len(secret) >= _SHORTEST_TOKEN and mixed)


@lru_cache(maxsize=16_384)
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
