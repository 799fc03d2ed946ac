"""The body of a webhook as an object, whatever was sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs

import msgspec

from harken.http import mended
from harken.source import Request

__all__ = ["FORM", "MAX_BYTES", "form_in", "json_in", "media_type", "object_in"]

MAX_BYTES = 10_000_000
"""Largest webhook about a ticket that is read: its text may be a million characters, and be shown three times."""
MAX_FIELDS = 1_000
FORM = "application/x-www-form-urlencoded"
_decode = msgspec.json.Decoder().decode


def object_in(request: Request, *, form_field: str = "") -> Mapping[str, Any] | None:
    """The JSON object that was sent, in the `form_field` of a form or alone; None if it is none."""
    body: bytes | None = request.body
    if form_field and media_type(request) == FORM:
        body = _field(request, form_field)
    value = None if body is None else json_in(body)[0]
    return value if isinstance(value, dict) else None


def media_type(request: Request) -> str:
    """The content-type in lower case, without parameters; empty if there is none."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def json_in(body: bytes) -> tuple[Any, bytes]:
    """The JSON value that was sent, and its bytes if they can be stored as they are; (None, b"") if it is none."""
    try:
        return _decode(body), body
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return mended(body), b""
    except (ValueError, RecursionError):
        return None, b""


def form_in(request: Request) -> dict[str, str] | None:
    """The fields of a form, of several with one name the first; None if it is none."""
    if media_type(request) != FORM:
        return None
    try:
        fields = parse_qs(request.body.decode(), keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS)
    except ValueError:
        return None
    return {name: values[0] for name, values in fields.items()}


def _field(request: Request, name: str) -> bytes | None:
    found = (form_in(request) or {}).get(name)
    return found.encode() if found else None
