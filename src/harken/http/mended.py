"""JSON as many programs write it: one torn emoji or NaN must not hide the items beside it."""

from __future__ import annotations

import json
import re
from typing import Any

__all__ = ["mended"]

_LONE = re.compile("[\ud800-\udfff]")
_LARGEST = 4_000_000


def mended(body: bytes) -> Any:
    """Decode an object or array; NaN and numbers out of range become null, half a surrogate pair U+FFFD.

    Raises ValueError or RecursionError for everything else, and for what is too large to be read twice.
    """
    if len(body) > _LARGEST:
        raise ValueError("too large to be mended")
    value = json.loads(body)
    if not isinstance(value, dict | list):
        raise ValueError("a plain value that is not JSON")
    whole = _LONE.sub("\ufffd", json.dumps(value, ensure_ascii=False))
    return json.loads(whole, parse_constant=lambda name: None)
