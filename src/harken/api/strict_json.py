"""JSON of strangers: what no store keeps, or what two readers may understand differently, is refused."""

from __future__ import annotations

import json
import math
from typing import Any

from harken.errors import Malformed

__all__ = ["decode", "refuse_odd_text"]

DEEPEST = 100
LARGEST = 2**63 - 1
FIX = "Send a JSON object"


def decode(body: bytes) -> Any:
    """The value. Raise Malformed for what is not JSON, has a key twice, a number without a value, or is too deep."""
    try:
        value = json.loads(
            body.decode(),
            object_pairs_hook=_no_key_twice,
            parse_float=_finite,
            parse_int=_whole,
            parse_constant=_no_constant,
        )
    except RecursionError as error:
        raise _too_deep() from error
    except ValueError as error:
        # of the decoder or of UTF-8; its text quotes nothing that we would not say, but says it in its own way
        raise Malformed("the body is not JSON", fix=FIX) from error
    _refuse_odd(value)
    return value


def refuse_odd_text(text: str) -> None:
    """Raise Malformed for a text that no store keeps as it is: with NUL, or half of a surrogate pair."""
    if "\0" in text:
        raise Malformed("a text has a NUL character", fix="Leave it away")
    if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
        raise Malformed("a text has half of a surrogate pair", fix="Send whole characters")


def _refuse_odd(value: Any) -> None:
    left: list[tuple[Any, int]] = [(value, 1)]
    while left:
        found, depth = left.pop()
        if isinstance(found, str):
            refuse_odd_text(found)
        elif isinstance(found, (dict, list)):
            if depth > DEEPEST:
                raise _too_deep()
            inner = [*found, *found.values()] if isinstance(found, dict) else found
            left += [(one, depth + 1) for one in inner]


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in found if names.count(name) > 1)
        raise Malformed(f"the key {twice[:100]!a} stands twice", fix="Give it once")
    return found


def _finite(text: str) -> float:
    found = float(text)
    if not math.isfinite(found):
        raise Malformed("a number is too large", fix="Send a smaller one, or a text")
    return found


def _whole(text: str) -> int:
    # longer texts are refused before Python tries to read them
    if len(text) > 20 or abs(int(text)) > LARGEST:
        raise Malformed("a number is too large", fix="Send a smaller one, or a text")
    return int(text)


def _no_constant(text: str) -> float:
    raise Malformed(f"{text} is not JSON", fix=FIX)


def _too_deep() -> Malformed:
    return Malformed(f"the body is nested more than {DEEPEST} levels deep", fix=FIX)
