"""Where a store is, for people: never with a password."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

__all__ = ["bare_url", "place_of"]


def _bare(url: str) -> SplitResult:
    """The parts of a URL without user, password or options."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="")


def bare_url(url: str) -> str:
    """The URL without user, password or options."""
    return _bare(url).geturl()


def place_of(server: str, url: str) -> str:
    """Server and database of a URL in words."""
    parts = _bare(url)
    port = f":{parts.port}" if parts.port else ""
    return f"{server} at {parts.hostname or 'its socket'}{port}{parts.path}"
