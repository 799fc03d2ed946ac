"""What the databases know becomes JSON, and a watermark comes back from the cursor exactly as it was."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pytest

from harken.errors import NeedsAttention
from harken.services.sql.values import LONGEST_CELL, LONGEST_ROW, data_of, pack, unpack
from harken.services.sql.watermark_times_and_bounds import is_time, lower_bound, step_back, watermark_time
from harken.source import Host
from harken.testing import START
from tests.services.reading import events, read, subjects
from tests.services.sql.databases import Db, Hand, MariaDb, order, rows_of, written

pytestmark = pytest.mark.worker_group("sql")

UTC_ZONE = ZoneInfo("UTC")
POSTGRES = """SELECT 1 AS id, timestamptz '2026-01-05 10:00:00.123456+01' AS at,
    timestamp '2026-01-05 10:00:00.5' AS local, date '2026-01-05' AS day, time '10:00' AS clock,
    interval '90 seconds' AS length, 9007199254740993 AS large, 12345678901234567890.50 AS exact, 'é' AS text,
    bytea '\\x00ff' AS bytes, uuid '00000000-0000-0000-0000-00000000000a' AS uuid, '{"a": [1, null]}'::jsonb AS json,
    ARRAY[1, 2] AS list, NULL AS void, true AS truth, 1.5::float8 AS part, 'NaN'::float8 AS nan,
    inet '10.0.0.1' AS address, int4range(1, 5) AS span, ROW(1, 'x') AS pair"""
MARIADB = """SELECT 1 AS id, CAST('2026-01-05 10:00:00.123456' AS datetime(6)) AS at, DATE '2026-01-05' AS day,
    TIME '10:00:00' AS clock, 9007199254740993 AS large, 18446744073709551615 AS largest,
    12345678901234567890.50 AS exact, 'é' AS text, x'00ff' AS bytes, NULL AS void, 1.5e0 AS part"""
SQLITE = """SELECT 1 AS id, '2026-01-05 10:00:00' AS at, 9007199254740993 AS large, 'é' AS text, x'00ff' AS bytes,
    NULL AS void, 1.5 AS part"""


class TestCells:
    @pytest.mark.parametrize("db", ["postgres"], indirect=True)
    async def test_of_postgresql(self, db: Db, host: Host):
        (event,) = events(await read(rows_of(host, db.url, query=POSTGRES)))
        assert event.data == {
            "id": 1,
            "at": "2026-01-05T09:00:00.123456Z",
            "local": "2026-01-05T10:00:00.500000",
            "day": "2026-01-05",
            "clock": "10:00:00",
            "length": 90.0,
            "large": 9007199254740993,
            "exact": "12345678901234567890.50",
            "text": "é",
            "bytes": "AP8=",
            "uuid": "00000000-0000-0000-0000-00000000000a",
            "json": {"a": [1, None]},
            "list": [1, 2],
            "void": None,
            "truth": True,
            "part": 1.5,
            "nan": "nan",
            "address": "10.0.0.1",
            "span": "<Range [1, 5)>",
            "pair": [1, "x"],
        }
        assert msgspec.json.decode(event.payload()) == event.data

    @pytest.mark.parametrize("db", ["mariadb"], indirect=True)
    async def test_of_mariadb(self, db: Db, host: Host):
        (event,) = events(await read(rows_of(host, db.url, query=MARIADB)))
        assert event.data == {
            "id": 1,
            "at": "2026-01-05T10:00:00.123456",
            "day": "2026-01-05",
            "clock": 36000.0,
            "large": 9007199254740993,
            "largest": 18446744073709551615,
            "exact": "12345678901234567890.50",
            "text": "é",
            "bytes": "AP8=",
            "void": None,
            "part": 1.5,
        }

    @pytest.mark.parametrize("db", ["sqlite"], indirect=True)
    async def test_of_sqlite(self, db: Db, hand: Hand, host: Host):
        (event,) = events(await read(rows_of(host, db.url, query=SQLITE)))
        assert event.data == {
            "id": 1,
            "at": "2026-01-05 10:00:00",
            "large": 9007199254740993,
            "text": "é",
            "bytes": "AP8=",
            "void": None,
            "part": 1.5,
        }

    def test_that_are_long_are_cut_and_say_so(self):
        names = [str(number) for number in range(20)]
        data = data_of(names, ["x" * 50_000] * 20)
        assert data["0"] == "x" * LONGEST_CELL + "… (cut, 50000 characters)"
        assert len(msgspec.json.encode(data)) < LONGEST_ROW + 2_000
        assert data["19"] == "… (cut, 50000 characters)"


class TestWatermarks:
    @pytest.mark.parametrize(
        "value",
        [
            2**63 + 1,
            -5,
            Decimal("12345678901234567890.0000000001"),
            0.1,
            "it's ✓",
            datetime(2026, 1, 5, 9, 0, 0, 1, tzinfo=UTC),
            datetime(2026, 1, 5, 9, 0, 0, 999999),
            date(2026, 1, 5),
            UUID(int=10),
            b"\x00\xff",
        ],
    )
    def test_come_back_from_a_cursor_as_they_were(self, value: Any):
        kept = msgspec.json.decode(msgspec.json.encode(pack(value)))
        assert (unpack(kept), type(unpack(kept))) == (value, type(value))

    async def test_a_microsecond_apart_are_told_apart_at_a_page_border(self, db: Db, hand: Hand, host: Host):
        await hand.do(*(order(id, START + timedelta(microseconds=id)) for id in range(1, 10)))
        batches = await read(rows_of(host, db.url, page_size=2))
        assert subjects(batches) == [str(id) for id in range(1, 10)]

    async def test_beyond_what_a_float_can_hold_are_told_apart(self, db: Db, hand: Hand, host: Host):
        await hand.do(*(order(id, seq=2**53 + id) for id in range(1, 8)))
        source = rows_of(host, db.url, watermark="seq", overlap=0, page_size=2)
        first = await read(source)
        await hand.do(order(8, seq=2**53 + 8))
        assert first[-1].cursor["top"] == ["int", str(2**53 + 7)]
        assert subjects(await read(source, first[-1].cursor)) == ["7", "8"]

    @pytest.mark.parametrize(("unit", "per_second"), [("s", 1), ("ms", 1_000), ("us", 1_000_000)])
    async def test_that_count_since_1970_are_times(self, db: Db, hand: Hand, host: Host, unit: str, per_second: int):
        second = int(START.timestamp())
        await hand.do(order(1, seq=(second - 1) * per_second), order(2, seq=(second + 1) * per_second))
        (event,) = events(await read(rows_of(host, db.url, watermark="seq", epoch=unit)))
        assert (event.subject, event.occurred_at) == ("2", START + timedelta(seconds=1))

    @pytest.mark.parametrize("kind", ["varchar(40)", "decimal(30, 10)", "double precision"])
    async def test_that_are_texts_and_fractions_put_rows_in_order(self, db: Db, hand: Hand, host: Host, kind: str):
        await hand.do(f"CREATE TABLE marks (id integer PRIMARY KEY, mark {kind})")
        await hand.do(*(f"INSERT INTO marks VALUES ({id}, '{id}.25')" for id in range(1, 8)))
        source = rows_of(host, db.url, query="SELECT * FROM marks", watermark="mark", page_size=2, initial="1.25")
        batches = await read(source, (await read(source))[-1].cursor)
        assert subjects(batches) == ["1", "2", "3", "4", "5", "6", "7"]

    async def test_that_are_days_are_read_again_for_a_day(self, db: Db, hand: Hand, host: Host):
        kind = "date" if db.time != "text" else "text"
        await hand.do(f"CREATE TABLE days (id integer PRIMARY KEY, day {kind})")
        await hand.do(*(f"INSERT INTO days VALUES ({id}, '2026-01-0{id}')" for id in range(1, 6)))
        source = rows_of(host, db.url, query="SELECT * FROM days", watermark="day")
        first = await read(source)
        await hand.do("INSERT INTO days VALUES (9, '2026-01-05')")
        again = subjects(await read(source, first[-1].cursor))
        assert again[-2:] == ["5", "9"]
        assert all(event.occurred_at is None for event in events(first))

    @pytest.mark.parametrize("db", ["postgres"], indirect=True)
    async def test_that_are_uuids_of_version_7_put_rows_in_order(self, db: Db, hand: Hand, host: Host):
        await hand.do("CREATE TABLE things (id uuid PRIMARY KEY)")
        ids = [UUID(int=id << 80) for id in range(1, 6)]
        await hand.do(*(f"INSERT INTO things VALUES ('{id}')" for id in ids[:3]))
        source = rows_of(host, db.url, query="SELECT * FROM things", watermark="id")
        cursor = (await read(source))[-1].cursor
        await hand.do(*(f"INSERT INTO things VALUES ('{id}')" for id in ids[3:]))
        assert subjects(await read(source, cursor)) == [str(id) for id in ids[2:]]

    @pytest.mark.parametrize("db", ["postgres", "mariadb"], indirect=True)
    async def test_without_a_zone_are_in_the_zone_that_is_said(self, db: Db, hand: Hand, host: Host):
        kind = "datetime" if isinstance(db, MariaDb) else "timestamp"
        await hand.do(f"CREATE TABLE visits (id integer PRIMARY KEY, at {kind})")
        await hand.do("INSERT INTO visits VALUES (1, '2026-01-05 09:59:59'), (2, '2026-01-05 10:00:01')")
        (event,) = events(await read(rows_of(host, db.url, query="SELECT * FROM visits", timezone="Europe/Berlin")))
        assert (event.subject, event.occurred_at) == ("2", START + timedelta(seconds=1))

    @pytest.mark.parametrize("db", ["sqlite"], indirect=True)
    async def test_of_different_types_in_one_column_are_said(self, db: Db, hand: Hand, host: Host):
        await hand.do(order(1), "INSERT INTO orders VALUES (2, 'soon', 2, '')")
        with pytest.raises(NeedsAttention, match="at has values of different types"):
            await read(rows_of(host, db.url, initial="2026"), {"of": rows_of(host, db.url)._of})

    @pytest.mark.parametrize("db", ["postgres"], indirect=True)
    async def test_without_any_order_are_said(self, db: Db, hand: Hand, host: Host):
        with pytest.raises(NeedsAttention, match="mark is of type bool, which has no useful order"):
            await read(rows_of(host, db.url, query="SELECT 1 AS id, true AS mark", watermark="mark", overlap=0))

    @pytest.mark.parametrize("db", ["postgres"], indirect=True)
    async def test_of_infinity_are_no_trouble(self, db: Db, hand: Hand, host: Host):
        await hand.do(order(1), "INSERT INTO orders VALUES (2, 'infinity', 2, '')")
        assert subjects(await read(rows_of(host, db.url))) == ["1", "2"]


class TestTextsOfTimes:
    @pytest.mark.parametrize(
        ("sample", "bound"),
        [
            ("2026-01-05 09:00:00", "2026-01-05 09:00"),
            ("2026-01-05T09:00:00.123Z", "2026-01-05T09:00"),
            ("2026-01-05T11:00:00+02:00", "2026-01-05T11:00"),
        ],
    )
    def test_are_asked_for_in_their_own_format(self, sample: str, bound: str):
        since = START + timedelta(seconds=59)
        assert lower_bound(since, since, sample, None, UTC_ZONE) == bound
        assert is_time(sample, None)
        assert bound <= sample

    @pytest.mark.parametrize("text", ["2026-01-05", "soon", "20260105T0900", "09:00", "1.2.3"])
    def test_are_not_seen_in_other_texts(self, text: str):
        assert not is_time(text, None)

    def test_may_have_nanoseconds(self):
        assert watermark_time("2026-01-05 09:00:00.123456789", None, UTC_ZONE) == START + timedelta(microseconds=123456)


def test_an_overlap_of_texts_is_refused():
    with pytest.raises(NeedsAttention, match="overlap is for numbers and days"):
        step_back("abc", 5)


async def test_rows_that_are_large_together_come_in_smaller_pages(db: Db, hand: Hand, host: Host):
    await hand.do("CREATE TABLE letters (id integer PRIMARY KEY, body text)")
    await hand.do("ALTER TABLE letters MODIFY body longtext") if isinstance(db, MariaDb) else None
    for id in range(1, 7):
        many = "repeat('x', 6000000)" if db.time != "text" else "replace(hex(zeroblob(3000000)), '0', 'x')"
        await hand.do(f"INSERT INTO letters VALUES ({id}, {many})")
    source = rows_of(host, db.url, query="SELECT * FROM letters", watermark="id", timeout=60)
    batches = await read(source)
    assert subjects(batches) == ["1", "2", "3", "4", "5", "6"]
    assert len(batches) > 1


def test_written_times_are_what_the_tests_mean():
    assert written(START) == "'2026-01-05 09:00:00.000000'"
