"""The three databases for tests of the service `sql`: an empty one each, with a hand that writes into it."""

from __future__ import annotations

import sqlite3
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from harken.services.sql import Account, Query, TableRows
from harken.source import Host
from harken.testing import START
from tests.servers.mariadb import MariaDbServer
from tests.servers.postgres import PostgresServer


class Hand(Protocol):
    """A connection that writes. Within `begin` and `commit` nobody else sees what it wrote."""

    async def do(self, *statements: str) -> None: ...
    async def close(self) -> None: ...


class Db(Protocol):
    """A database of a test. `time` is the type of an instant there, `url` the address of who may do everything."""

    time: str
    url: str

    async def hand(self) -> Hand: ...
    async def empty(self) -> None: ...


class PostgresHand:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def do(self, *statements: str) -> None:
        for statement in statements:
            await self._connection.execute(statement)

    async def close(self) -> None:
        await self._connection.close()


class PostgresDb:
    time = "timestamptz"

    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        self.url = server.url("postgres")

    async def hand(self) -> Hand:
        return PostgresHand(await self.server.connect("postgres"))

    async def empty(self) -> None:
        hand = await self.hand()
        await hand.do("DROP SCHEMA public CASCADE", "CREATE SCHEMA public")
        await hand.close()


class MariaHand:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def do(self, *statements: str) -> None:
        for statement in statements:
            await self._connection.query(statement)

    async def close(self) -> None:
        await self._connection.ensure_closed()


class MariaDb:
    time = "timestamp(6)"

    def __init__(self, server: MariaDbServer) -> None:
        self.server = server
        self.url = server.url("test")

    async def empty(self) -> None:
        hand = MariaHand(await self.server.connect("mysql"))
        await hand.do("DROP DATABASE IF EXISTS test", "CREATE DATABASE test CHARACTER SET utf8mb4")
        await hand.close()

    async def hand(self) -> Hand:
        hand = MariaHand(await self.server.connect("test"))
        await hand.do("SET time_zone = '+00:00'")
        return hand


class SqliteHand:
    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("PRAGMA synchronous = OFF")

    async def do(self, *statements: str) -> None:
        for statement in statements:
            self._connection.execute(statement)

    async def close(self) -> None:
        self._connection.close()


class SqliteDb:
    time = "text"

    def __init__(self, path: Path) -> None:
        self.path = path
        self.url = f"sqlite:///{path}"

    async def hand(self) -> Hand:
        return SqliteHand(self.path)

    async def empty(self) -> None:
        self.path.unlink(missing_ok=True)


def rows_of(host: Host, url: str, account: dict[str, Any] | None = None, **query: Any) -> TableRows:
    """A source on the table `orders` unless told otherwise."""
    asked = {"query": "SELECT * FROM orders", "watermark": "at", **query}
    return TableRows(Query.model_validate(asked), Account.model_validate({"url": url, **(account or {})}), host)


def written(moment: datetime) -> str:
    """An instant as all three take it for one: their sessions are in UTC."""
    return f"'{moment:%Y-%m-%d %H:%M:%S.%f}'"


def order(id: int, at: datetime = START, seq: int | None = None, note: str = "") -> str:
    """The statement that writes an order."""
    return f"INSERT INTO orders VALUES ({id}, {written(at)}, {id if seq is None else seq}, '{note}')"
