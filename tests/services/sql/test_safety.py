"""Nothing is ever written, no query runs for ever, and one SELECT is all that is taken."""

from __future__ import annotations

import asyncio

import pytest
from pydantic import ValidationError

from harken.errors import NeedsAttention, Refused, RetryLater
from harken.services.sql import Account, Query
from harken.services.sql.check import whoami
from harken.services.sql.statements import one_select
from harken.source import Host
from harken.testing import START
from tests.services.names import Names
from tests.services.reading import read, subjects
from tests.services.sql.databases import Db, Hand, MariaDb, PostgresDb, SqliteDb, order, rows_of

pytestmark = pytest.mark.worker_group("sql")

only = pytest.mark.parametrize
SERVERS = only("db", ["postgres", "mariadb"], indirect=True)
POSTGRES = only("db", ["postgres"], indirect=True)
MARIADB = only("db", ["mariadb"], indirect=True)
SQLITE = only("db", ["sqlite"], indirect=True)
WRITER = (
    """CREATE FUNCTION sneak() RETURNS integer LANGUAGE sql AS 'INSERT INTO orders (id) VALUES (99) RETURNING id'"""
)
MARIA_WRITER = "CREATE FUNCTION sneak() RETURNS integer BEGIN INSERT INTO orders (id) VALUES (99); RETURN 99; END"


async def ids(db: Db, host: Host) -> list[str]:
    query = "SELECT id FROM orders"
    source = rows_of(host, db.url, query=query, watermark="id", initial=0)
    return subjects(await read(source, (await source.poll(None, START)).cursor))


class TestReadOnly:
    @only(("db", "writer"), [("postgres", WRITER), ("mariadb", MARIA_WRITER)], indirect=["db"])
    async def test_a_function_that_writes_is_refused(self, db: Db, hand: Hand, host: Host, writer: str):
        await hand.do(order(1), writer)
        with pytest.raises(NeedsAttention, match=r"(?i)read.?only.*leave out what writes"):
            await read(rows_of(host, db.url, query="SELECT sneak() AS id, sneak() AS at", watermark="id"))
        assert await ids(db, host) == ["1"]

    @POSTGRES
    @only(
        "query",
        [
            "WITH gone AS (DELETE FROM orders RETURNING *) SELECT * FROM gone",
            "WITH new AS (INSERT INTO orders (id) VALUES (9) RETURNING *) SELECT * FROM new",
            "SELECT * FROM orders FOR UPDATE",
            "SELECT id, at, set_config('transaction_read_only', 'off', false) FROM orders",
            "SELECT id, at, nextval('numbers') FROM orders",
        ],
    )
    async def test_nothing_that_writes_passes_as_a_select(self, db: Db, hand: Hand, host: Host, query: str):
        await hand.do(order(1), "CREATE SEQUENCE numbers")
        with pytest.raises(NeedsAttention):
            await read(rows_of(host, db.url, query=query))
        assert await ids(db, host) == ["1"]

    @MARIADB
    async def test_no_file_is_written_by_a_server(self, db: Db, hand: Hand, host: Host):
        await hand.do(order(1))
        with pytest.raises(NeedsAttention, match="1064"):
            await read(rows_of(host, db.url, query="SELECT * FROM orders INTO OUTFILE '/tmp/harken-was-here'"))

    @MARIADB
    async def test_no_row_is_locked(self, db: Db, hand: Hand, host: Host):
        await hand.do(order(1))
        with pytest.raises(NeedsAttention, match="1792"):
            await read(rows_of(host, db.url, query="SELECT * FROM orders FOR UPDATE"))

    @SQLITE
    async def test_a_file_is_opened_for_reading_only(self, db: SqliteDb, hand: Hand, host: Host):
        await hand.do(order(1))
        await hand.close()
        db.path.chmod(0o444)
        before = (db.path.read_bytes(), sorted(db.path.parent.iterdir()))
        assert await ids(db, host) == ["1"]
        assert (db.path.read_bytes(), sorted(db.path.parent.iterdir())) == before

    @SQLITE
    async def test_a_file_that_is_not_there_is_not_made(self, db: SqliteDb, host: Host):
        with pytest.raises(NeedsAttention, match=r"unable to open.*Check the path"):
            await read(rows_of(host, db.url))
        assert not db.path.exists()


class TestOneSelect:
    @only(
        "sql",
        [
            "DELETE FROM orders",
            "INSERT INTO orders VALUES (1)",
            "SELECT 1; DROP TABLE orders",
            "SELECT 1) AS found; DROP TABLE orders; SELECT * FROM (SELECT 1",
            "SELECT 1) AS found INTO OUTFILE '/tmp/x' FROM (SELECT 2",
            "SELECT 1 -- )",
            "SELECT 1 /*! ) */",
            "SELECT 'it\\'s; DROP TABLE orders'",
            "SELECT 'open",
            "SELECT (1",
            "SELECT $$ ) $$",
            "SELECT $1",
            "EXPLAIN SELECT 1",
            "selection",
            "",
        ],
    )
    def test_is_all_that_is_taken(self, sql: str):
        with pytest.raises(ValidationError):
            Query(query=sql, watermark="at")

    @only(
        "sql",
        [
            "SELECT ';', '--', '/*', ')' FROM t WHERE a = 'it''s (' AND \"odd(name\" > 1",
            "select data #>> '{a,b}' from t where tags ? 'x'",
            "WITH a AS (SELECT 1) SELECT * FROM a",
            "SELECT * FROM t WHERE name ~ '^\\d+$'",
            "SELECT `order` FROM t",
        ],
    )
    def test_may_hold_anything_in_quotes(self, sql: str):
        assert one_select(f"  {sql} ; ") == sql

    @MARIADB
    async def test_a_hash_is_no_way_out_in_mariadb(self, db: Db, host: Host):
        with pytest.raises(NeedsAttention, match="begins a comment"):
            rows_of(host, db.url, query="SELECT 1 # (\n)")


class TestTime:
    @only(
        ("db", "query"),
        [
            ("postgres", "SELECT 1 AS id, now() AS at FROM pg_sleep(60)"),
            ("mariadb", "SELECT 1 AS id, sleep(60) AS at"),
            (
                "sqlite",
                "WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n) "
                "SELECT id, id AS at FROM n WHERE id < 0",
            ),
        ],
        indirect=["db"],
    )
    async def test_a_query_that_takes_too_long_is_given_up(self, db: Db, hand: Hand, host: Host, query: str):
        with pytest.raises(RetryLater, match=r"gave no answer within 0\.3 s") as caught:
            await read(rows_of(host, db.url, query=query, timeout=0.3))
        assert caught.value.reason == "timeout"

    @SERVERS
    async def test_the_server_gives_it_up_as_well(self, db: PostgresDb | MariaDb, hand: Hand, host: Host):
        sleep = "pg_sleep(600)" if isinstance(db, PostgresDb) else "(SELECT sleep(600)) AS nap"
        with pytest.raises(RetryLater):
            await read(rows_of(host, db.url, query=f"SELECT 1 AS id, 2 AS at FROM {sleep}", timeout=0.3))
        await nobody_sleeps(db)

    @SERVERS
    async def test_a_read_that_is_cancelled_leaves_no_connection(
        self, db: PostgresDb | MariaDb, hand: Hand, host: Host
    ):
        # long enough to be seen on a busy machine; its server ends the query by itself
        sleep = "pg_sleep(6)" if isinstance(db, PostgresDb) else "(SELECT sleep(6)) AS nap"
        task = asyncio.create_task(
            read(rows_of(host, db.url, query=f"SELECT 1 AS id, 2 AS at FROM {sleep}", timeout=300))
        )
        await somebody_sleeps(db)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await nobody_sleeps(db)


async def asleep(db: PostgresDb | MariaDb) -> int:
    """How many connections of Harken the server has at work."""
    connection = await db.server.connect("postgres" if isinstance(db, PostgresDb) else "mysql")
    if isinstance(db, PostgresDb):
        sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'harken' AND wait_event = 'PgSleep'"
        count = await connection.fetchval(sql)
        await connection.close()
        return int(count)
    cursor = await connection.cursor()
    await cursor.execute("SELECT count(*) FROM information_schema.processlist WHERE state = 'User sleep'")
    (count,) = await cursor.fetchone()
    await connection.ensure_closed()
    return int(count)


async def somebody_sleeps(db: PostgresDb | MariaDb) -> None:
    async with asyncio.timeout(120):
        while not await asleep(db):
            pass


async def nobody_sleeps(db: PostgresDb | MariaDb) -> None:
    async with asyncio.timeout(120):
        while await asleep(db):
            pass


@SERVERS
class TestAddress:
    @only("address", ["169.254.169.254", "fe80::1", "224.0.0.1"])
    async def test_a_name_that_leads_to_an_address_that_is_never_allowed_is_refused(
        self, db: Db, host: Host, monkeypatch: pytest.MonkeyPatch, address: str
    ):
        Names(monkeypatch, db_example_com=[["127.0.0.1", address]])
        with pytest.raises(Refused, match=f"db.example.com is at {address}"):
            await read(rows_of(host, by_name(db)))

    async def test_a_name_that_leads_elsewhere_after_the_check_is_not_asked_again(
        self, db: Db, hand: Hand, host: Host, monkeypatch: pytest.MonkeyPatch
    ):
        await hand.do(order(1))
        names = Names(monkeypatch, db_example_com=[["127.0.0.1"], ["169.254.169.254"]])
        assert await whoami(Account.model_validate({"url": by_name(db)}), host)
        assert names.asked == ["db.example.com"]

    async def test_the_next_address_of_a_name_is_tried_when_one_does_not_answer(
        self, db: Db, hand: Hand, host: Host, monkeypatch: pytest.MonkeyPatch
    ):
        Names(monkeypatch, db_example_com=[["127.0.0.9", "127.0.0.1"]])
        assert await whoami(Account.model_validate({"url": by_name(db)}), host)

    async def test_the_certificate_is_checked_for_the_name_and_not_for_the_address(
        self, db: PostgresDb | MariaDb, hand: Hand, host: Host, monkeypatch: pytest.MonkeyPatch
    ):
        Names(monkeypatch, db_example_com=[["127.0.0.1"]])
        trusted = {"tls": "verify", "ca": str(db.server.certificate)}
        with pytest.raises(NeedsAttention, match="not trusted"):
            await whoami(Account.model_validate({"url": by_name(db), **trusted}), host)


def by_name(db: Db) -> str:
    """The address of the server with a name for its host."""
    return db.url.replace("127.0.0.1", "db.example.com")
