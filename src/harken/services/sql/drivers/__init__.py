"""What the three drivers share: addresses, rows, sessions and TLS."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal, Protocol, TypeAlias

import msgspec

from harken.errors import Misconfigured
from harken.services.sql.statements import Dialect
from harken.services.sql.values import row_size

__all__ = [
    "MOST_BYTES",
    "Address",
    "Database",
    "Engine",
    "RowBuffer",
    "Rows",
    "Session",
    "Tls",
    "tls_context",
]

Engine: TypeAlias = Literal["postgresql", "mysql", "sqlite"]
Tls: TypeAlias = Literal["off", "prefer", "require", "verify"]

MOST_BYTES = 16_777_216
"""Bytes of rows that one page may have; the rest becomes the next page."""


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """How a database is reached. `host` may be the path of a socket; `database` of SQLite is the path of the file."""

    engine: Engine
    database: str
    host: str = ""
    port: int = 0
    user: str = ""
    password: str = ""
    tls: Tls = "prefer"
    ca: str = ""

    def __repr__(self) -> str:
        return f"Address({self.label})"

    @property
    def label(self) -> str:
        """The name of the database in errors."""
        if self.engine == "sqlite":
            return self.database
        where = self.host if self.host.startswith("/") else f"{self.host}:{self.port}"
        return f"{self.database or 'the default database'} at {where}"


class Rows(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a query. `cut`: there were more rows than a page may have."""

    names: Sequence[str]
    rows: Sequence[Sequence[Any]]
    cut: bool = False


class RowBuffer:
    """Collects the rows of a page. At least two: the first may be the last row of the page before."""

    def __init__(self) -> None:
        self.rows: list[Sequence[Any]] = []
        self._left = MOST_BYTES

    @property
    def full(self) -> bool:
        return self._left < 0 and len(self.rows) > 1

    def add(self, row: Sequence[Any]) -> None:
        self.rows.append(row)
        self._left -= row_size(row)


class Session(Protocol):
    """A read-only transaction."""

    async def fetch(self, sql: str, values: Sequence[Any] = ()) -> Rows:
        """The rows of a statement; raises RetryLater or NeedsAttention."""
        ...

    async def whoami(self) -> Mapping[str, str]: ...


class Database(Dialect, Protocol):
    """A driver. Each session has its own connection: none is left open between two reads."""

    def session(self, seconds: float) -> AbstractAsyncContextManager[Session]: ...


def tls_context(address: Address) -> ssl.SSLContext:
    """With `verify` it checks the certificate and its name, else it only encrypts."""
    try:
        context = ssl.create_default_context(cafile=address.ca or None)
    except (OSError, ssl.SSLError):
        raise Misconfigured(f"no certificates can be read from {address.ca}", fix="Correct ca") from None
    if address.tls != "verify":
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context
