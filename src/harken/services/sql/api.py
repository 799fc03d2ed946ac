"""A database account, and the rows of a query there as a table that can be read page by page.

Error messages name a database by its host and name only.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Literal
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec
from pydantic import Field, SecretStr, field_validator, model_validator

from harken.errors import NeedsAttention
from harken.kit import AccountModel
from harken.services.sql.drivers import Address, Database, Engine, Rows, Session, Tls
from harken.services.sql.drivers.errors import timed_out
from harken.services.sql.drivers.mysql import MySql
from harken.services.sql.drivers.postgres import Postgres
from harken.services.sql.drivers.sqlite import Sqlite
from harken.services.sql.query import Query
from harken.services.sql.statements import Statements
from harken.suggest import suggest_clause

__all__ = ["Account", "Table", "database_of", "open_session"]

_ENGINES: dict[str, Engine] = {
    "postgresql": "postgresql",
    "postgres": "postgresql",
    "mysql": "mysql",
    "mariadb": "mysql",
    "sqlite": "sqlite",
}
_PORTS: dict[Engine, int] = {"postgresql": 5432, "mysql": 3306, "sqlite": 0}
_TLS: dict[str, Tls] = {
    "disable": "off",
    "allow": "prefer",
    "prefer": "prefer",
    "require": "require",
    "verify-ca": "verify",
    "verify-full": "verify",
}
_ENCODE = "Write special characters of the user and password as %XX, or give the parts instead of a url"
_SHOWN = 20


class Account(AccountModel):
    """A database, by `url` or by its parts."""

    url: SecretStr | None = Field(
        None, description="postgresql://user:password@host:port/database, mysql://…, mariadb://… or sqlite:///path"
    )
    engine: Literal["postgresql", "mysql", "mariadb", "sqlite"] | None = Field(
        None, description="instead of url: postgresql, mysql, mariadb or sqlite, with the fields below"
    )
    host: str = Field("", description="name or address of the server, or the path of its socket")
    port: int = Field(0, ge=0, le=65535, description="0 for the usual one: 5432 (PostgreSQL) or 3306 (MySQL, MariaDB)")
    database: str = Field("", description="name of the database; for sqlite the path of the file")
    user: str = Field("", description="to sign in; one that may only SELECT is enough")
    password: SecretStr | None = Field(None, description="of the user")
    tls: Tls | None = Field(
        None, description="off, prefer (default), require, or verify: encrypted, and the certificate must be valid"
    )
    ca: str = Field("", description="file of certificates to trust, if your own authority signs the server's")

    @field_validator("url")
    @classmethod
    def _is_url(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None:
            _parse_url(value.get_secret_value())
        return value

    @model_validator(mode="after")
    def _one_way(self) -> Account:
        parts = [self.engine, self.host, self.port, self.database, self.user, self.password]
        if self.url is not None and any(parts):
            raise ValueError("write url or the parts, not both")
        if self.url is None and self.engine is None:
            raise ValueError(
                "no database: write url: postgresql://user:password@host/database, or engine and its parts"
            )
        if self.url is None and self.engine != "sqlite" and not self.host:
            raise ValueError("host is missing")
        if self.address.engine == "sqlite" and not self.address.database:
            raise ValueError("the path of the SQLite file is missing")
        return self

    @property
    def address(self) -> Address:
        """How the database is reached."""
        if self.url is not None:
            found = _parse_url(self.url.get_secret_value())
        else:
            engine = _ENGINES[self.engine or ""]
            found = Address(
                engine=engine,
                database=self.database,
                host=self.host,
                port=self.port or _PORTS[engine],
                user=self.user,
                password=self.password.get_secret_value() if self.password else "",
            )
        return msgspec.structs.replace(found, tls=self.tls or found.tls, ca=self.ca)


class Table:
    """The rows of a query. `where` names the database in errors, without any credential."""

    def __init__(self, query: Query, account: Account) -> None:
        self.where = account.address.label
        self._query = query
        self._database = database_of(account)
        self._sql = Statements(self._database, query.query, query.watermark, query.key)

    def session(self) -> AbstractAsyncContextManager[Session]:
        return open_session(self._database, self.where, self._query.timeout)

    async def columns(self, session: Session) -> Sequence[str]:
        """The names of the columns, which must be unique."""
        names = (await session.fetch(self._sql.columns())).names
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            fix = "Give the columns different names with AS"
            raise NeedsAttention(f"the query has several columns named {', '.join(twice)}", fix=fix)
        return names

    def missing_column_text(self, name: str, names: Sequence[str]) -> str:
        """A sentence that says that a column is missing."""
        label = ", ".join([*names[:_SHOWN], *(["…"] if len(names) > _SHOWN else [])])
        return f"the query shows no column {name}; its columns are {label}{suggest_clause(name, names)}"

    async def newest(self, session: Session) -> Any:
        """The highest watermark; None if there are no rows. A row without watermark or key raises."""
        names = await self.columns(session)
        for name, what in ((self._query.watermark, "watermark"), (self._query.key, "key")):
            if name not in names:
                fix = f"Name {what} as the query shows it, or SELECT it as well"
                raise NeedsAttention(self.missing_column_text(name, names), fix=fix)
            if (await session.fetch(self._sql.empty(key=what == "key"))).rows:
                fix = f"Fill it, or leave such rows out on purpose: WHERE {name} IS NOT NULL"
                raise NeedsAttention(f"a row of the query at {self.where} has no {name}, which is its {what}", fix=fix)
        rows = (await session.fetch(self._sql.newest())).rows
        return rows[0][0] if rows else None

    async def page(self, session: Session, lower: Sequence[Any], limit: int) -> Rows:
        sql, values = self._sql.page(lower, limit)
        return await session.fetch(sql, values)


def database_of(account: Account) -> Database:
    address = account.address
    if address.engine == "sqlite":
        return Sqlite(address)
    return Postgres(address) if address.engine == "postgresql" else MySql(address)


@asynccontextmanager
async def open_session(database: Database, where: str, seconds: float) -> AsyncIterator[Session]:
    """A session that is closed after so many seconds, with its queries."""
    try:
        async with asyncio.timeout(seconds), database.session(seconds) as session:
            yield session
    except TimeoutError:
        raise timed_out(where, seconds) from None


def _parse_url(url: str) -> Address:
    try:
        parts = urlsplit(url.strip())
        port = parts.port
    except ValueError:
        # the parser's message may hold a piece of the password
        raise ValueError(f"this is not an address. {_ENCODE}") from None
    engine = _ENGINES.get(parts.scheme.partition("+")[0])
    if engine is None:
        raise ValueError("the address must begin with postgresql://, mysql://, mariadb:// or sqlite:///")
    if parts.fragment:
        raise ValueError(f"the address has a # in it. {_ENCODE}")
    if engine == "sqlite":
        if parts.netloc or parts.query:
            raise ValueError("write sqlite:///path, with four slashes for one from the root: sqlite:////var/lib/app.db")
        return Address(engine=engine, database=unquote(parts.path[1:]))
    options = _options(parts.query)
    host = options.get("host") or unquote(parts.hostname or "")
    if not host:
        raise ValueError(f"the address names no host. {_ENCODE}")
    return Address(
        engine=engine,
        database=unquote(parts.path[1:]),
        host=host,
        port=port or _PORTS[engine],
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        tls=_tls(options),
    )


def _options(query: str) -> dict[str, Any]:
    options = dict(parse_qsl(query, keep_blank_values=True))
    if set(options) - {"sslmode", "host"}:
        raise ValueError("only sslmode and host may follow the ? of the address")
    return options


def _tls(options: dict[str, Any]) -> Tls:
    mode = options.get("sslmode", "prefer")
    if mode not in _TLS:
        raise ValueError(f"sslmode is one of {', '.join(_TLS)}")
    return _TLS[mode]
