"""What every database answers with: rows, or an error that says what happens next.

Errors are sorted by the database's codes. None of them holds a value of a row; where a message of the database may
quote one, only its code is told.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import msgspec

from harken.errors import Misconfigured, NeedsAttention, RetryLater
from harken.services.sql.account import Address
from harken.services.sql.statements import Dialect
from harken.services.sql.values import weight

__all__ = [
    "MOST_BYTES",
    "Database",
    "Held",
    "Rows",
    "Session",
    "away",
    "not_installed",
    "refused",
    "slow",
    "tls_context",
    "untrusted",
]


MOST_BYTES = 16_777_216

"""So much of a page is held at once; what follows is the next page."""

_LONGEST = 300


class Rows(msgspec.Struct, frozen=True, kw_only=True):
    """An answer. `cut`: there was more than may be held at once."""

    names: Sequence[str]
    rows: Sequence[Sequence[Any]]
    cut: bool = False


class Held:
    """The rows of a page, as they come. Two are held at least: the first may be the last of the page before."""

    def __init__(self) -> None:
        self.rows: list[Sequence[Any]] = []
        self._room = MOST_BYTES

    @property
    def full(self) -> bool:
        return self._room < 0 and len(self.rows) > 1

    def add(self, row: Sequence[Any]) -> None:
        self.rows.append(row)
        self._room -= weight(row)


class Session(Protocol):
    """A read-only transaction."""

    async def ask(self, sql: str, values: Sequence[Any] = ()) -> Rows:
        """Raise RetryLater or NeedsAttention when there is no answer."""
        ...

    async def whoami(self) -> Mapping[str, str]: ...


class Database(Dialect, Protocol):
    """One way to reach a database. A session is a connection of its own: nothing is left open between two reads."""

    def session(self, seconds: float) -> AbstractAsyncContextManager[Session]: ...


def away(where: str, why: str) -> RetryLater:
    return RetryLater(f"{where} cannot be reached or is busy ({why})", fix="Look whether the database runs there")


def slow(where: str, seconds: float) -> RetryLater:
    fix = "Give the watermark column an index, or raise timeout (and page_timeout of the trigger)"
    return RetryLater(f"{where} gave no answer within {seconds:g} s", reason="timeout", fix=fix)


def refused(where: str, code: str, said: str = "", *, fix: str = "") -> NeedsAttention:
    """`said` is what the database says, where it can only be about names and grammar."""
    told = " ".join(said.split())[:_LONGEST].rstrip(".")
    message = f"{where} refused the query: {told} ({code})" if told else f"{where} refused the query ({code})"
    return NeedsAttention(message, fix=fix or "Correct the query, then: harken triggers test")


def untrusted(where: str) -> NeedsAttention:
    fix = "Name the authority that signed it: ca: /path/to/ca.pem; or use the name that the certificate was made for"
    return NeedsAttention(f"the certificate of {where} is not trusted", fix=fix)


def tls_context(address: Address) -> ssl.SSLContext:
    """For `verify` one that checks the certificate and its name, else one that only encrypts."""
    try:
        context = ssl.create_default_context(cafile=address.ca or None)
    except (OSError, ssl.SSLError):
        raise Misconfigured(f"no certificates can be read from {address.ca}", fix="Correct ca") from None
    if address.tls != "verify":
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def not_installed(package: str) -> Misconfigured:
    return Misconfigured(f"{package} is not installed", fix="Install it with: pip install 'harken[sql]'")
