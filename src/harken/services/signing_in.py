"""What most accounts ask of their settings: a token is one word, and an address leads to a server and nothing else."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

from pydantic import SecretStr

__all__ = ["one_word", "server_address"]


def one_word(value: SecretStr, what: str) -> SecretStr:
    """The token without the blanks around it; ValueError, which says `what` it is not, when it cannot be one."""
    token = value.get_secret_value().strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise ValueError(f"this is not {what}: it is one word, without spaces")
    return SecretStr(token)


def server_address(value: str, what: str) -> SplitResult:
    """The parts of an address; ValueError, which says `what` it is not, unless it is an http one without a query."""
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ValueError(f"this is not {what}")
    return parts
