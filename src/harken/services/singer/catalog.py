"""Which streams a tap is to send: its own catalog, with the wanted ones marked in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from harken.errors import NeedsAttention, RetryLater
from harken.suggest import suggest_clause

__all__ = ["names_in", "read_catalog", "selected"]


def read_catalog(text: bytes, name: str) -> dict[str, Any]:
    """What the tap answered to --discover."""
    try:
        catalog = msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        catalog = None
    if not isinstance(catalog, dict) or not isinstance(catalog.get("streams"), list):
        raise RetryLater(f"{name} answered --discover with something that is no catalog")
    return catalog


def names_in(catalog: dict[str, Any]) -> list[str]:
    return [_name(stream) for stream in catalog["streams"] if isinstance(stream, dict)]


def selected(catalog: dict[str, Any], wanted: Sequence[str], tap: str) -> dict[str, Any]:
    """The catalog with these streams and all their fields selected, and no others."""
    known = names_in(catalog)
    for name in wanted:
        if name not in known:
            fix = f"It has: {', '.join(known)[:300] or 'none'}{suggest_clause(name, known)}"
            raise NeedsAttention(f"{tap} has no stream {name}", fix=fix)
    streams = [_marked(stream, _name(stream) in wanted) for stream in catalog["streams"] if isinstance(stream, dict)]
    return {**catalog, "streams": streams}


def _name(stream: dict[str, Any]) -> str:
    return str(stream.get("stream") or stream.get("tap_stream_id") or "")


def _marked(stream: dict[str, Any], wanted: bool) -> dict[str, Any]:
    """Old taps look at `selected` of the stream, newer ones into its metadata; those in between at both."""
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
    told = entry.get("metadata")
    if not isinstance(told, dict) or told.get("inclusion") != "available" or "selected" in told:
        return entry
    return {**entry, "metadata": {**told, "selected": True}}
