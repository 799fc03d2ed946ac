"""What goes wrong is said with what to do, and without a secret in it."""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic import ValidationError

from harken.errors import HarkenError, Misconfigured, NeedsAttention, RetryLater
from harken.services.sql import Account, Query, plugin
from harken.source import Host
from harken.testing import START
from tests.services.reading import read, subjects
from tests.services.sql.databases import Db, Hand, MariaDb, PostgresDb, SqliteDb, order, rows_of

pytestmark = pytest.mark.worker_group("sql")

only = pytest.mark.parametrize
SERVERS = only("db", ["postgres", "mariadb"], indirect=True)
POSTGRES = only("db", ["postgres"], indirect=True)
MARIADB = only("db", ["mariadb"], indirect=True)
SQLITE = only("db", ["sqlite"], indirect=True)


async def whoami(host: Host, **account: Any) -> dict[str, Any]:
    assert plugin.whoami
    return dict(await plugin.whoami(Account.model_validate(account), host))


class TestTrouble:
    @SERVERS
    async def test_a_restart_between_two_pages_is_survived(self, db: PostgresDb | MariaDb, hand: Hand, host: Host):
        source = rows_of(host, db.url, page_size=2)
        await hand.do(*(order(id) for id in range(1, 6)))
        first = await source.poll(None, START)
        db.server.stop()
        with pytest.raises(RetryLater, match=r"cannot be reached or is busy.*Look whether the database runs"):
            await source.poll(first.cursor, START)
        db.server.start()
        assert subjects([first, *await read(source, first.cursor)]) == ["1", "2", "3", "4", "5"]

    @SERVERS
    async def test_a_wrong_password_is_not_in_the_error(self, db: PostgresDb | MariaDb, host: Host):
        url = db.server.url("test", password="wr0ng-s3cret")
        with pytest.raises(
            NeedsAttention, match=r"Check user and password.*harken integrations sql configure"
        ) as caught:
            await read(rows_of(host, url))
        assert "wr0ng" not in repr(caught.value) + str(caught.value) + repr(caught.value.__cause__)

    @SERVERS
    async def test_a_database_that_is_not_there_is_named(self, db: PostgresDb | MariaDb, host: Host):
        with pytest.raises(NeedsAttention, match="nowhere"):
            await read(rows_of(host, db.server.url("nowhere")))

    @only(
        ("db", "grants"),
        [
            ("postgres", ["CREATE ROLE guest LOGIN PASSWORD 'guest'", "GRANT USAGE ON SCHEMA public TO guest"]),
            ("mariadb", ["CREATE OR REPLACE USER guest IDENTIFIED BY 'guest'", "GRANT SHOW VIEW ON test.* TO guest"]),
        ],
        indirect=["db"],
    )
    async def test_a_table_that_may_not_be_read_is_named(
        self, db: PostgresDb | MariaDb, hand: Hand, host: Host, grants: list[str]
    ):
        await hand.do(*grants)
        name = "postgres" if isinstance(db, PostgresDb) else "test"
        with pytest.raises(NeedsAttention, match=r"orders.*GRANT SELECT"):
            await read(rows_of(host, db.server.url(name, "guest", "guest")))

    async def test_a_table_that_is_not_there_is_named(self, db: Db, hand: Hand, host: Host):
        with pytest.raises(NeedsAttention, match="ordres"):
            await read(rows_of(host, db.url, query="SELECT * FROM ordres"))

    async def test_a_grammar_that_nobody_knows_is_quoted(self, db: Db, hand: Hand, host: Host):
        with pytest.raises(NeedsAttention, match=r"near ['\"]FROM"):
            await read(rows_of(host, db.url, query="SELECT id FROM FROM orders"))

    @POSTGRES
    async def test_a_value_that_does_not_fit_is_not_quoted(self, db: Db, hand: Hand, host: Host):
        await hand.do(order(1, note="t0p-s3cret"))
        with pytest.raises(NeedsAttention, match="22P02") as caught:
            await read(rows_of(host, db.url, query="SELECT id, at, note::integer FROM orders"))
        assert "t0p" not in str(caught.value)

    @SQLITE
    async def test_a_file_that_is_no_database_is_said(self, db: SqliteDb, host: Host):
        db.path.write_text("no database at all, " * 100)
        with pytest.raises(NeedsAttention, match="no SQLite database"):
            await read(rows_of(host, db.url))

    @SQLITE
    async def test_a_file_that_is_locked_is_tried_later(self, db: SqliteDb, hand: Hand, host: Host):
        await hand.do("BEGIN EXCLUSIVE")
        with pytest.raises(RetryLater):
            await read(rows_of(host, db.url, timeout=0.2))

    @only("db", ["mariadb"], indirect=True)
    async def test_several_columns_of_one_name_are_said(self, db: Db, hand: Hand, host: Host):
        with pytest.raises(NeedsAttention, match="different names with AS"):
            await read(rows_of(host, db.url, query="SELECT a.*, b.* FROM orders a JOIN orders b ON a.id = b.id"))

    @POSTGRES
    async def test_several_columns_of_one_name_are_said_in_postgresql(self, db: Db, hand: Hand, host: Host):
        with pytest.raises(NeedsAttention, match="several columns named at, id, note, seq"):
            await read(rows_of(host, db.url, query="SELECT a.*, b.* FROM orders a JOIN orders b ON a.id = b.id"))

    async def test_a_library_that_is_missing_is_named(self, host: Host, monkeypatch: pytest.MonkeyPatch):
        import_ = builtins.__import__

        def without(name: str, *rest: Any) -> Any:
            if name in ("asyncpg", "aiomysql"):
                raise ImportError(name)
            return import_(name, *rest)

        monkeypatch.setattr(builtins, "__import__", without)
        for url in ("postgresql://a@127.0.0.1:1/b", "mysql://a@127.0.0.1:1/b"):
            with pytest.raises(Misconfigured, match=r"pip install 'harken\[sql\]'"):
                await rows_of(host, url).poll(None, START)


class TestEncryption:
    @pytest.fixture
    async def plain(self, db: PostgresDb | MariaDb) -> AsyncIterator[PostgresDb | MariaDb]:
        """A server that offers no TLS."""
        db.server.stop()
        db.server.start(tls=False)
        yield db
        db.server.stop()
        db.server.start()

    @SERVERS
    async def test_a_certificate_must_be_trusted_where_that_is_asked_for(self, db: PostgresDb | MariaDb, host: Host):
        assert await whoami(host, url=db.url, tls="verify", ca=str(db.server.certificate))
        with pytest.raises(NeedsAttention, match=r"certificate of .* is not trusted"):
            await whoami(host, url=db.url, tls="verify")

    @SERVERS
    async def test_no_password_is_sent_in_the_clear_where_encryption_is_required(
        self, plain: PostgresDb | MariaDb, host: Host
    ):
        with pytest.raises(HarkenError, match=r"no TLS|no encrypted connection"):
            await read(rows_of(host, plain.url, {"tls": "require"}))


class TestAccount:
    @only(
        "fields",
        [
            {},
            {"url": "postgresql://u:s3cr3t@h/d", "host": "h"},
            {"url": "oracle://u:s3cr3t@h/d"},
            {"url": "postgresql://u:s3cr3t#x@h/d"},
            {"url": "postgresql://u:s3cr3t/x@h/d"},
            {"url": "postgresql://u:s3cr3t@h/d?sslmode=maybe"},
            {"url": "postgresql://u:s3cr3t@h/d?options=-c"},
            {"url": "sqlite://s3cr3t.db"},
            {"url": "sqlite:///"},
            {"engine": "postgresql", "password": "s3cr3t"},
        ],
    )
    def test_that_cannot_be_used_is_refused_without_its_secret(self, fields: dict[str, Any]):
        with pytest.raises(ValidationError) as caught:
            Account.model_validate(fields)
        assert "s3cr3t" not in str(caught.value)

    def test_shows_no_password(self):
        account = Account.model_validate({"url": "postgresql://u:s3cr%40t@db.example/shop?sslmode=verify-full"})
        address = account.address
        assert (address.user, address.password, address.port, address.tls) == ("u", "s3cr@t", 5432, "verify")
        assert "s3cr" not in repr(account) + repr(address) + str(address) + address.label
        assert address.label == "shop at db.example:5432"

    def test_by_its_parts_is_the_same(self):
        whole = Account.model_validate({"url": "mariadb://u:p%3Aq@10.0.0.1:3307/shop", "tls": "require"})
        parts = {"host": "10.0.0.1", "port": 3307, "database": "shop", "user": "u", "password": "p:q"}
        assert Account.model_validate({"engine": "mariadb", "tls": "require", **parts}).address == whole.address

    async def test_is_told_by_whoami(self, db: Db, hand: Hand, host: Host):
        who = await whoami(host, url=db.url)
        assert set(who) >= {"database", "version"}
        assert who["version"].split()[0] in ("PostgreSQL", "MariaDB", "SQLite")


class TestCheck:
    async def run_check(self, db: Db, host: Host, **query: Any) -> Any:
        model = Query.model_validate({"query": "SELECT * FROM orders", "watermark": "at", **query})
        assert plugin.check
        return await plugin.check(model, Account.model_validate({"url": db.url}), host)

    async def test_tells_what_the_columns_are(self, db: Db, hand: Hand, host: Host):
        await hand.do(order(1, seq=77))
        result = await self.run_check(db, host)
        assert result.found["at"].startswith("a time; the newest is 2026-01-05")
        assert (await self.run_check(db, host, watermark="seq")).found["seq"] == "an order; the newest is 77"

    async def test_names_a_column_that_is_not_there(self, db: Db, hand: Hand, host: Host):
        result = await self.run_check(db, host, watermark="att", key="key")
        assert result.unknown[0].startswith("the query shows no column att; its columns are id, at, seq, note")
        assert result.unknown[1].startswith("the query shows no column key")

    async def test_says_that_initial_is_not_for_times(self, db: Db, hand: Hand, host: Host):
        await hand.do(order(1))
        assert (await self.run_check(db, host, initial=5)).unknown == ["initial is for watermarks that are not times"]
