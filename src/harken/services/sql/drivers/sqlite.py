"""SQLite, by the standard library in a thread: opened read-only, with query_only on top.

Codes: https://www.sqlite.org/rescode.html
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from harken.errors import HarkenError
from harken.services.sql.drivers import MOST_BYTES, Address, RowBuffer, Rows, Session
from harken.services.sql.drivers.errors import refused_error, timed_out, unreachable

__all__ = ["Sqlite"]

T = TypeVar("T")
_TEMPORARY = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_PROTOCOL,
}
_FIXES = {
    sqlite3.SQLITE_CANTOPEN: "Check the path, and that this user may read the file and its folder",
    sqlite3.SQLITE_NOTADB: "Check the path: this file is no SQLite database, or it is encrypted",
    sqlite3.SQLITE_PERM: "Let this user read the file",
    sqlite3.SQLITE_READONLY: "The query may only read; leave out what writes",
}


class Sqlite:
    """The dialect and the connections of SQLite."""

    def __init__(self, address: Address) -> None:
        self._path = Path(address.database).expanduser()

    def name(self, name: str) -> str:
        return '"{}"'.format(name.replace('"', '""'))

    def mark(self, number: int) -> str:
        return "?"

    def text(self, sql: str) -> str:
        return sql

    @asynccontextmanager
    async def session(self, seconds: float) -> AsyncIterator[Session]:
        where = str(self._path)
        connection = await _run_in_thread(lambda: _open(self._path, seconds), where, seconds)
        try:
            yield _Transaction(connection, where, seconds)
        finally:
            connection.close()


class _Transaction:
    def __init__(self, connection: sqlite3.Connection, where: str, seconds: float) -> None:
        self._connection = connection
        self._where = where
        self._seconds = seconds

    async def fetch(self, sql: str, values: Sequence[Any] = ()) -> Rows:
        # a cancelled query must not go on in its thread
        return await _run_in_thread(
            lambda: _execute(self._connection, sql, values), self._where, self._seconds, self._connection.interrupt
        )

    async def whoami(self) -> Mapping[str, str]:
        return {"database": self._where, "version": f"SQLite {sqlite3.sqlite_version}"}


def _open(path: Path, seconds: float) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"file:{quote(str(path.absolute()))}?mode=ro",
        uri=True,
        timeout=seconds,
        check_same_thread=False,
        isolation_level=None,
    )
    try:
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 4 * MOST_BYTES)
        connection.execute("PRAGMA query_only = ON")
        connection.execute("BEGIN")
        # read the file now: raises if it is missing or not a database
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


def _execute(connection: sqlite3.Connection, sql: str, values: Sequence[Any]) -> Rows:
    cursor = connection.execute(sql, values)
    buffer, cut = RowBuffer(), False
    for row in cursor:
        if buffer.full:
            cut = True
            break
        buffer.add(row)
    return Rows(names=[column[0] for column in cursor.description], rows=buffer.rows, cut=cut)


async def _run_in_thread(
    work: Callable[[], T], where: str, seconds: float, stop: Callable[[], None] = lambda: None
) -> T:
    """Run in a thread and always wait for it, so that the connection is not closed while in use."""
    future = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        stop()
        await asyncio.wait([future])
        future.exception()
        raise
    except sqlite3.Error as error:
        raise _to_harken_error(error, where, seconds) from None


def _to_harken_error(error: sqlite3.Error, where: str, seconds: float) -> HarkenError:
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    if code == sqlite3.SQLITE_INTERRUPT:
        return timed_out(where, seconds)
    if code in _TEMPORARY:
        return unreachable(where, name)
    return refused_error(where, name, str(error), fix=_FIXES.get(code, ""))
