"""A tap's catalog, with the wanted streams marked as selected."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from harken.errors import NeedsAttention, RetryLater
from harken.suggest import suggest_clause

__all__ = ["read_catalog", "select_streams"]


def read_catalog(text: bytes, name: str) -> dict[str, Any]:
    """The catalog in the output of --discover."""
    try:
        catalog = msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        catalog = None
    if not isinstance(catalog, dict) or not isinstance(catalog.get("streams"), list):
        raise RetryLater(f"{name} --discover did not write a catalog")
    return catalog


def stream_names(catalog: dict[str, Any]) -> list[str]:
    return [_name(stream) for stream in catalog["streams"] if isinstance(stream, dict)]


def select_streams(catalog: dict[str, Any], wanted: Sequence[str], tap: str) -> dict[str, Any]:
    """The catalog with only these streams selected, with all their fields."""
    known = stream_names(catalog)
    for name in wanted:
        if name not in known:
            fix = f"It has: {', '.join(known)[:300] or 'none'}{suggest_clause(name, known)}"
            raise NeedsAttention(f"{tap} has no stream {name}", fix=fix)
    streams = [
        _mark_stream(stream, _name(stream) in wanted) for stream in catalog["streams"] if isinstance(stream, dict)
    ]
    return {**catalog, "streams": streams}


def _name(stream: dict[str, Any]) -> str:
    return str(stream.get("stream") or stream.get("tap_stream_id") or "")


def _mark_stream(stream: dict[str, Any], wanted: bool) -> dict[str, Any]:
    """Old taps read `selected` of the stream, newer ones its metadata, some both."""
    listed = stream.get("metadata")
    entries = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    fields = [_field(entry) if wanted else entry for entry in entries if entry.get("breadcrumb")]
    whole = next((entry.get("metadata") for entry in entries if not entry.get("breadcrumb")), None) or {}
    return {
        **stream,
        "selected": wanted,
        "metadata": [{"breadcrumb": [], "metadata": {**whole, "selected": wanted}}, *fields],
    }


def _field(entry: dict[str, Any]) -> dict[str, Any]:
    metadata = entry.get("metadata")
    if not isinstance(metadata, dict) or metadata.get("inclusion") != "available" or "selected" in metadata:
        return entry
    return {**entry, "metadata": {**metadata, "selected": True}}
