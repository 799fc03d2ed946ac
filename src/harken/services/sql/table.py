"""The rows of a query as a table that can be asked for its columns, its newest watermark and a page."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from harken.errors import NeedsAttention
from harken.services.sql.account import Account
from harken.services.sql.drivers import Database, Rows, Session, slow
from harken.services.sql.drivers.mysql import MySql
from harken.services.sql.drivers.postgres import Postgres
from harken.services.sql.drivers.sqlite import Sqlite
from harken.services.sql.query import Query
from harken.services.sql.statements import Statements
from harken.suggest import suggest_clause

__all__ = ["Table", "database_of", "opened"]

_SHOWN = 20


def database_of(account: Account) -> Database:
    address = account.address
    if address.engine == "sqlite":
        return Sqlite(address)
    return Postgres(address) if address.engine == "postgresql" else MySql(address)


@asynccontextmanager
async def opened(database: Database, where: str, seconds: float) -> AsyncIterator[Session]:
    """A session that ends after so many seconds, with all that was asked in it."""
    try:
        async with asyncio.timeout(seconds), database.session(seconds) as session:
            yield session
    except TimeoutError:
        raise slow(where, seconds) from None


class Table:
    """Errors name it by `where`: the database, without any credential."""

    def __init__(self, query: Query, account: Account) -> None:
        self.where = account.address.shown
        self._query = query
        self._database = database_of(account)
        self._sql = Statements(self._database, query.query, query.watermark, query.key)

    def session(self) -> AbstractAsyncContextManager[Session]:
        return opened(self._database, self.where, self._query.timeout)

    async def columns(self, session: Session) -> Sequence[str]:
        """The names of the columns; each must be there once."""
        names = (await session.ask(self._sql.columns())).names
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            fix = "Give the columns different names with AS"
            raise NeedsAttention(f"the query has several columns named {', '.join(twice)}", fix=fix)
        return names

    def lacks(self, name: str, names: Sequence[str]) -> str:
        """A sentence about a column that is not there."""
        shown = ", ".join([*names[:_SHOWN], *(["…"] if len(names) > _SHOWN else [])])
        return f"the query shows no column {name}; its columns are {shown}{suggest_clause(name, names)}"

    async def newest(self, session: Session) -> Any:
        """The highest watermark; None when there are no rows. A row that no order could show is an error."""
        names = await self.columns(session)
        for name, what in ((self._query.watermark, "watermark"), (self._query.key, "key")):
            if name not in names:
                fix = f"Name {what} as the query shows it, or SELECT it as well"
                raise NeedsAttention(self.lacks(name, names), fix=fix)
            if (await session.ask(self._sql.empty(key=what == "key"))).rows:
                fix = f"Fill it, or leave such rows out on purpose: WHERE {name} IS NOT NULL"
                raise NeedsAttention(f"a row of the query at {self.where} has no {name}, which is its {what}", fix=fix)
        rows = (await session.ask(self._sql.newest())).rows
        return rows[0][0] if rows else None

    async def page(self, session: Session, lower: Sequence[Any], limit: int) -> Rows:
        sql, values = self._sql.page(lower, limit)
        return await session.ask(sql, values)
