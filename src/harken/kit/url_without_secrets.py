"""The address of a webhook that a platform has registered, as it may be shown."""

from __future__ import annotations

from urllib.parse import urlsplit

__all__ = ["bare_address"]


def bare_address(url: object) -> str:
    """The address without user, password, query and fragment; empty for what is none."""
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
        port = f":{parts.port}" if parts.port is not None else ""
    except ValueError:
        return ""
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return ""
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}{port}{parts.path}"
