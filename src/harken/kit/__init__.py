"""What authors of services share, built-in or not. The names that most services need can be imported from here.

The other modules each have one purpose, which their first line tells: docs/how-to/write-a-service.md has the table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harken.kit.credential_field_validation import basic_auth, configure_hint, one_word
from harken.kit.cursor_codec import dump_cursor, load_cursor
from harken.kit.models import AccountModel, ParamsModel, QueryModel
from harken.kit.values_from_payload import instant, text_of

if TYPE_CHECKING:
    from harken.kit.json_api import JsonApi

__all__ = [
    "AccountModel",
    "JsonApi",
    "ParamsModel",
    "QueryModel",
    "basic_auth",
    "configure_hint",
    "dump_cursor",
    "instant",
    "load_cursor",
    "one_word",
    "text_of",
]


def __getattr__(name: str) -> Any:
    """Import JsonApi on first use: it needs aiohttp, which services without HTTP and the CLI must not load."""
    if name == "JsonApi":
        from harken.kit.json_api import JsonApi

        return JsonApi
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
