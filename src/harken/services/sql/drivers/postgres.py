"""PostgreSQL, by asyncpg: a READ ONLY transaction with a statement_timeout.

Codes: https://www.postgresql.org/docs/current/errcodes-appendix.html
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from harken.errors import HarkenError
from harken.services.sql.drivers import Address, RowBuffer, Rows, Session, tls_context
from harken.services.sql.drivers.address_guard import GuardedLoop
from harken.services.sql.drivers.errors import (
    not_installed,
    refused_error,
    timed_out,
    unreachable,
    untrusted_certificate,
)

if TYPE_CHECKING:
    from asyncpg import Connection  # type: ignore[import-untyped]

__all__ = ["Postgres"]

_PREFETCH = 50
_GOODBYE_SECONDS = 2.0
# classes of codes: connections, rollbacks, resources, limits, operator intervention, system and internal errors
_TEMPORARY = ("08", "40", "53", "54", "55", "57", "58", "XX")
# names, grammar and permissions: these messages quote no row
_HARMLESS_TEXT = ("28", "3D", "3F", "42", "25", "0A")
_FIXES = {
    "28": "Check user and password, then: harken integrations sql configure",
    "3D": "Check the name of the database",
    "22": "A value does not fit its type: CAST it in the query. If a column's type was changed, reset the cursor",
    "25": "The query may only read; leave out what writes",
    "42501": "GRANT SELECT on what the query reads to this user",
    "42P01": "Check the name of the table, with its schema, and that this user has USAGE on that schema",
    "42703": "Check the names of the columns; one with capital letters needs double quotes in the query",
}


class Postgres:
    """The dialect and the connections of PostgreSQL."""

    def __init__(self, address: Address) -> None:
        self._address = address

    def name(self, name: str) -> str:
        return '"{}"'.format(name.replace('"', '""'))

    def mark(self, number: int) -> str:
        return f"${number}"

    def text(self, sql: str) -> str:
        return sql

    @asynccontextmanager
    async def session(self, seconds: float) -> AsyncIterator[Session]:
        where = self._address.label
        with _translate_errors(where, seconds):
            connection = await _connect(self._address, seconds)
        try:
            with _translate_errors(where, seconds):
                await connection.transaction(readonly=True).start()
                await connection.execute(f"SET LOCAL statement_timeout = {int(seconds * 1000):d}")
            yield _Transaction(connection, where, seconds)
        except BaseException:
            # do not wait: the query ends by its statement_timeout
            connection.terminate()
            raise
        await connection.close(timeout=_GOODBYE_SECONDS)


class _Transaction:
    def __init__(self, connection: Connection, where: str, seconds: float) -> None:
        self._connection = connection
        self._where = where
        self._seconds = seconds

    async def fetch(self, sql: str, values: Sequence[Any] = ()) -> Rows:
        with _translate_errors(self._where, self._seconds):
            statement = await self._connection.prepare(sql)
            columns = statement.get_attributes()
            types = [column.type.name for column in columns]
            buffer, cut = RowBuffer(), False
            async for record in statement.cursor(*values, prefetch=_PREFETCH):
                if buffer.full:
                    cut = True
                    break
                buffer.add([_decode(value, kind) for value, kind in zip(record, types, strict=True)])
        return Rows(names=[column.name for column in columns], rows=buffer.rows, cut=cut)

    async def whoami(self) -> Mapping[str, str]:
        sql = "SELECT current_user, current_database(), current_setting('server_version')"
        user, database, version = (await self.fetch(sql)).rows[0]
        return {"user": user, "database": database, "version": f"PostgreSQL {version}"}


def _decode(value: Any, kind: str) -> Any:
    if kind == "timestamptz" and isinstance(value, datetime) and value.tzinfo is None:
        # asyncpg's value for `infinity` has no zone
        return value.replace(tzinfo=UTC)
    return msgspec.json.decode(value) if kind in ("json", "jsonb") and value is not None else value


async def _connect(address: Address, seconds: float) -> Connection:
    try:
        import asyncpg
    except ImportError:
        raise not_installed("asyncpg") from None
    modes: dict[str, Any] = {"off": "disable", "verify": tls_context(address) if address.tls == "verify" else None}
    return await asyncpg.connect(
        host=address.host,
        port=address.port,
        user=address.user or None,
        password=address.password or None,
        database=address.database or None,
        ssl=modes.get(address.tls, address.tls),
        timeout=seconds,
        loop=GuardedLoop(),
        # a pooler may give each transaction another connection, which does not have our prepared statements
        statement_cache_size=0,
        server_settings={"application_name": "harken"},
    )


@contextmanager
def _translate_errors(where: str, seconds: float) -> Iterator[None]:
    """Turn asyncpg's errors into ours. No cause is kept: it holds the query, and perhaps values."""
    try:
        yield
    except HarkenError:
        raise
    except TimeoutError:
        raise timed_out(where, seconds) from None
    except ssl.SSLCertVerificationError:
        raise untrusted_certificate(where) from None
    except OSError as error:
        # asyncpg raises a plain ConnectionError if the server refuses TLS, or if it shuts down meanwhile
        why = "no encrypted connection" if type(error) is ConnectionError else type(error).__name__
        raise unreachable(where, why) from None
    except _errors() as error:
        raise _to_harken_error(error, where, seconds) from None


def _errors() -> tuple[type[Exception], ...]:
    from asyncpg import InterfaceError, InternalClientError, PostgresError

    return PostgresError, InterfaceError, InternalClientError


def _to_harken_error(error: Exception, where: str, seconds: float) -> HarkenError:
    code, name = str(getattr(error, "sqlstate", None) or ""), type(error).__name__
    if code == "57014":
        return timed_out(where, seconds)
    if not code or code.startswith(_TEMPORARY):
        return unreachable(where, f"{name} {code}".strip())
    text = str(error.args[0]) if code.startswith(_HARMLESS_TEXT) and error.args else name
    return refused_error(where, code, text, fix=_FIXES.get(code) or _FIXES.get(code[:2], ""))
