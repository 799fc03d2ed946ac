"""What most accounts need: checks of tokens and server addresses, the Basic header, and how to say "configure it"."""

from __future__ import annotations

import base64
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, SecretStr

__all__ = ["basic_auth", "check_word", "configure_hint", "one_word", "split_server_address"]


def one_word(what: str) -> AfterValidator:
    """A validator for a SecretStr that strips it; the error says that the value is not `what` ("an access token")."""
    problem = f"{what}: it is one word, without spaces"
    return AfterValidator(lambda value: SecretStr(check_word(value.get_secret_value(), problem)))


def check_word(value: str, what: str) -> str:
    """Return the stripped text. Raise ValueError ("this is not …") unless it is one printable ASCII word."""
    text = value.strip()
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError(f"this is not {what}")
    return text


def split_server_address(value: str, what: str) -> SplitResult:
    """Split an address. Raise ValueError ("this is not …") unless it is http or https, without query and fragment."""
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ValueError(f"this is not {what}")
    return parts


def basic_auth(user: str, password: str) -> str:
    """The value of an Authorization header for HTTP Basic."""
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


def configure_hint(kind: str) -> str:
    """The command that stores a new credential, for the `fix` of an error: `f"Make a new token, then: {…}"`."""
    return f"harken integrations {kind} configure"
