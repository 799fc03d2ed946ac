"""What most accounts ask of their settings: a token is one word, and an address leads to a server and nothing else."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, SecretStr

__all__ = ["check_word", "one_word", "split_server_address"]


def one_word(what: str) -> AfterValidator:
    """For a SecretStr: the token without the blanks around it; an error says `what` it is not when it cannot be one."""
    said = f"{what}: it is one word, without spaces"
    return AfterValidator(lambda value: SecretStr(check_word(value.get_secret_value(), said)))


def check_word(value: str, what: str) -> str:
    """The text without the blanks around it; ValueError, which says `what` it is not, when it is not one word."""
    text = value.strip()
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError(f"this is not {what}")
    return text


def split_server_address(value: str, what: str) -> SplitResult:
    """The parts of an address; ValueError, which says `what` it is not, unless it is an http one without a query."""
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ValueError(f"this is not {what}")
    return parts
