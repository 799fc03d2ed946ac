"""MySQL and MariaDB, by aiomysql: a READ ONLY transaction with a limit on the time of a statement, in UTC.

Codes: https://dev.mysql.com/doc/mysql-errors/8.0/en/server-error-reference.html
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from harken.errors import HarkenError, NeedsAttention
from harken.services.sql.drivers import Address, RowBuffer, Rows, Session, tls_context
from harken.services.sql.drivers.address_guard import checked_addresses
from harken.services.sql.drivers.errors import (
    not_installed,
    refused_error,
    timed_out,
    unreachable,
    untrusted_certificate,
)

if TYPE_CHECKING:
    from aiomysql import Connection  # type: ignore[import-untyped]

__all__ = ["MySql"]

_TIMESTAMP, _JSON = 7, 245
_STATEMENT_TIMEOUT = {1969, 3024}
# too many connections, deadlocks and locks, shutdown, killed, out of memory or disk, lost packets
_TEMPORARY = {
    1021,
    1037,
    1038,
    1040,
    1041,
    1053,
    1077,
    1079,
    1129,
    1135,
    1152,
    1158,
    1159,
    1160,
    1161,
    1184,
    1203,
    1205,
}
_TEMPORARY |= {1213, 1226, 1317, 1637, 1927, 3169, 4031}
_CLIENT = range(2000, 3000)
# names, grammar and permissions: these messages quote no row
_HARMLESS_TEXT = {1044, 1045, 1049, 1052, 1054, 1055, 1060, 1064, 1140, 1142, 1143, 1146, 1305, 1370, 1698, 1792}
_SIGN_IN = "Check user and password, then: harken integrations sql configure"
_FIXES = {
    1044: "GRANT SELECT on the database to this user",
    1045: _SIGN_IN,
    1049: "Check the name of the database",
    1054: "Check the names of the columns",
    1060: "Give the columns of the query different names with AS",
    1142: "GRANT SELECT on what the query reads to this user",
    1143: "GRANT SELECT on what the query reads to this user",
    1146: "Check the name of the table",
    1698: _SIGN_IN,
    1792: "The query may only read; leave out what writes",
}


class MySql:
    """The dialect and the connections of MySQL and MariaDB."""

    def __init__(self, address: Address) -> None:
        self._address = address

    def name(self, name: str) -> str:
        return "`{}`".format(name.replace("`", "``").replace("%", "%%"))

    def mark(self, number: int) -> str:
        return "%s"

    def text(self, sql: str) -> str:
        if "#" in sql:
            raise NeedsAttention("the query has a #, which begins a comment in MySQL", fix="Leave it out")
        return sql.replace("%", "%%")

    @asynccontextmanager
    async def session(self, seconds: float) -> AsyncIterator[Session]:
        where = self._address.label
        connection = _connection(self._address, seconds)
        try:
            with _translate_errors(where, seconds):
                await connection.ping()
                for setting in _settings(connection.get_server_info(), seconds):
                    await connection.query(setting)
            yield _Transaction(connection, where, seconds)
        except BaseException:
            connection.close()
            raise
        with _translate_errors(where, seconds):
            await connection.ensure_closed()


class _Transaction:
    def __init__(self, connection: Connection, where: str, seconds: float) -> None:
        self._connection = connection
        self._where = where
        self._seconds = seconds

    async def fetch(self, sql: str, values: Sequence[Any] = ()) -> Rows:
        from aiomysql import SSCursor

        given = [value.astimezone(UTC).replace(tzinfo=None) if _has_zone(value) else value for value in values]
        with _translate_errors(self._where, self._seconds):
            cursor = await self._connection.cursor(SSCursor)
            # always pass values, so that a doubled % becomes one again
            await cursor.execute(sql, given or ())
            columns = cursor.description or ()
            buffer, cut = RowBuffer(), False
            async for row in cursor:
                if buffer.full:
                    # read and drop the rest: otherwise the connection cannot be used again
                    cut = True
                    continue
                buffer.add([_decode(value, column[1]) for value, column in zip(row, columns, strict=True)])
        return Rows(names=[column[0] for column in columns], rows=buffer.rows, cut=cut)

    async def whoami(self) -> Mapping[str, str]:
        user, database, version = (await self.fetch("SELECT CURRENT_USER(), DATABASE(), VERSION()")).rows[0]
        engine = "MariaDB" if "mariadb" in version.lower() else "MySQL"
        return {"user": user, "database": database or "", "version": f"{engine} {version.partition('-')[0]}"}


def _has_zone(value: Any) -> bool:
    return isinstance(value, datetime) and value.tzinfo is not None


def _decode(value: Any, code: int) -> Any:
    if code == _TIMESTAMP and isinstance(value, datetime):
        # in the time zone of the session, which is UTC
        return value.replace(tzinfo=UTC)
    return msgspec.json.decode(value) if code == _JSON and isinstance(value, str) else value


def _settings(version: str, seconds: float) -> list[str]:
    limit = f"max_statement_time = {seconds:.3f}"
    if "mariadb" not in version.lower():
        limit = f"max_execution_time = {int(seconds * 1000):d}"
    return [f"SET SESSION {limit}", "SET SESSION time_zone = '+00:00'", "START TRANSACTION READ ONLY"]


def _connection(address: Address, seconds: float) -> Connection:
    try:
        import aiomysql
        from pymysql.constants import CLIENT, CR  # type: ignore[import-untyped]
    except ImportError:
        raise not_installed("aiomysql") from None

    class Guarded(aiomysql.Connection):  # type: ignore[misc]
        """Connects to a checked address of its host; for the rest, such as the certificate, the name counts."""

        async def _connect(self) -> None:
            if self._unix_socket:
                await super()._connect()
                return
            problem: Exception = OSError("no address")
            for found in await checked_addresses(address.host, address.port):
                self._host = found
                try:
                    await super()._connect()
                    return
                except aiomysql.OperationalError as error:
                    if error.args[0] != CR.CR_CONN_HOST_ERROR:
                        raise
                    problem = error
            raise problem

        async def _request_authentication(self) -> None:
            self._host = address.host
            if address.tls in ("require", "verify") and not self.server_capabilities & CLIENT.SSL:
                # aiomysql would go on unencrypted, and might send the password
                raise NeedsAttention(f"{address.label} offers no TLS", fix="Switch it on there, or write tls: prefer")
            await super()._request_authentication()

    socket = address.host if address.host.startswith("/") else None
    connection = Guarded(
        host="localhost" if socket else address.host,
        port=address.port,
        unix_socket=socket,
        user=address.user or None,
        # the library encodes as Latin-1; this results in the UTF-8 bytes that servers compare
        password=address.password.encode().decode("latin-1"),
        db=address.database or None,
        charset="utf8mb4",
        connect_timeout=seconds,
        program_name="harken",
        ssl=None if socket or address.tls == "off" else tls_context(address),
    )
    # allow one statement only
    connection.client_flag &= ~CLIENT.MULTI_STATEMENTS
    return connection


@contextmanager
def _translate_errors(where: str, seconds: float) -> Iterator[None]:
    """Turn aiomysql's errors into ours. No cause is kept: it may quote values."""
    from aiomysql import MySQLError

    try:
        yield
    except HarkenError:
        raise
    except MySQLError as error:
        raise _to_harken_error(error, where, seconds) from None
    except ssl.SSLCertVerificationError:
        raise untrusted_certificate(where) from None
    except OSError as error:
        raise unreachable(where, type(error).__name__) from None


def _to_harken_error(error: Exception, where: str, seconds: float) -> HarkenError:
    code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    if isinstance(error.__cause__, ssl.SSLCertVerificationError):
        return untrusted_certificate(where)
    if code in _STATEMENT_TIMEOUT or isinstance(error.__cause__, TimeoutError):
        return timed_out(where, seconds)
    if not code or code in _TEMPORARY or code in _CLIENT:
        return unreachable(where, f"{type(error).__name__} {code or ''}".strip())
    text = str(error.args[-1]) if code in _HARMLESS_TEXT else type(error).__name__
    return refused_error(where, str(code), text, fix=_FIXES.get(code, ""))
