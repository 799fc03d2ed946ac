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
from harken.services.sql.account import Address
from harken.services.sql.drivers import MOST_BYTES, Held, Rows, Session, away, refused, slow

__all__ = ["Sqlite"]

T = TypeVar("T")
_LATER = {
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
    """How SQLite is written and opened."""

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
        connection = await _in_thread(lambda: _open(self._path, seconds), where, seconds)
        try:
            yield _Transaction(connection, where, seconds)
        finally:
            connection.close()


class _Transaction:
    def __init__(self, connection: sqlite3.Connection, where: str, seconds: float) -> None:
        self._connection = connection
        self._where = where
        self._seconds = seconds

    async def ask(self, sql: str, values: Sequence[Any] = ()) -> Rows:
        # a query that was given up must not go on for ever in its thread
        return await _in_thread(
            lambda: _asked(self._connection, sql, values), self._where, self._seconds, self._connection.interrupt
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
        # this reads the file: a missing or foreign one shows itself here
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


def _asked(connection: sqlite3.Connection, sql: str, values: Sequence[Any]) -> Rows:
    cursor = connection.execute(sql, values)
    held, cut = Held(), False
    for row in cursor:
        if held.full:
            cut = True
            break
        held.add(row)
    return Rows(names=[column[0] for column in cursor.description], rows=held.rows, cut=cut)


async def _in_thread(work: Callable[[], T], where: str, seconds: float, stop: Callable[[], None] = lambda: None) -> T:
    """The thread is always waited for, so that nobody closes what it still uses."""
    future = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        stop()
        await asyncio.wait([future])
        future.exception()
        raise
    except sqlite3.Error as error:
        raise _sorted(error, where, seconds) from None


def _sorted(error: sqlite3.Error, where: str, seconds: float) -> HarkenError:
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    if code == sqlite3.SQLITE_INTERRUPT:
        return slow(where, seconds)
    if code in _LATER:
        return away(where, name)
    return refused(where, name, str(error), fix=_FIXES.get(code, ""))
