"""The body of a webhook as an object, whatever was sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs

import msgspec

from harken.http import mended
from harken.source import Request

__all__ = ["MAX_BYTES", "object_in"]

MAX_BYTES = 10_000_000
"""Largest webhook about a ticket that is read: its text may be a million characters, and be shown three times."""
_FORM = "application/x-www-form-urlencoded"
_decode = msgspec.json.Decoder().decode


def object_in(request: Request, *, form_field: str = "") -> Mapping[str, Any] | None:
    """The JSON object that was sent, in the `form_field` of a form or alone; None if it is none."""
    body: bytes | None = request.body
    if form_field and request.headers.get("content-type", "").partition(";")[0].strip().lower() == _FORM:
        body = _field(request.body, form_field)
    value = None if body is None else _value(body)
    return value if isinstance(value, dict) else None


def _value(body: bytes) -> Any:
    try:
        return _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return mended(body)
    except (ValueError, RecursionError):
        return None


def _field(body: bytes, name: str) -> bytes | None:
    try:
        found = parse_qs(body.decode(), errors="strict").get(name)
    except ValueError:
        return None
    return found[0].encode() if found else None
