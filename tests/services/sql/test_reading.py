"""The rows of a query on PostgreSQL, MariaDB and SQLite: none is missed, and nothing old is taken for new."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest

from harken.errors import CursorExpired, NeedsAttention
from harken.source import Host
from harken.testing import START, HandClock
from harken.testing.source import Service, SourceContract
from tests.services.reading import events, page, read, subjects
from tests.services.sql.databases import Db, Hand, MariaDb, order, rows_of, written

pytestmark = pytest.mark.worker_group("sql")


class OnOrders:
    """Orders ten seconds apart, or all at one time."""

    page_size = 3
    since = START - timedelta(seconds=1)

    def __init__(self, source: Any, hand: Hand, clock: HandClock) -> None:
        self.source = source
        self._hand = hand
        self._clock = clock
        # downwards: a twin in time that comes later has the smaller key
        self._numbers = count(10_000, -1)

    async def put(self, count: int, *, tied: bool = False) -> Sequence[str]:
        ids = [next(self._numbers) for _ in range(count)]
        for id in ids:
            self._clock.advance(0 if tied else 10)
            await self._hand.do(order(id, self._clock.now(), 20_000 - id))
        return [str(id) for id in ids]

    async def expire(self) -> bool:
        return False


class TestTimes(SourceContract):
    @pytest.fixture
    def service(self, db: Db, hand: Hand, host: Host, clock: HandClock) -> Service:
        return OnOrders(rows_of(host, db.url, page_size=3), hand, clock)


class TestSerialNumbers(SourceContract):
    """From the beginning: the first read of a table without times shows only its end."""

    @pytest.fixture
    async def service(self, db: Db, hand: Hand, host: Host, clock: HandClock) -> Service:
        service = OnOrders(rows_of(host, db.url, watermark="seq", page_size=3, initial=0), hand, clock)
        source, began = service.source, (await service.source.poll(None, START)).cursor

        class Begun:
            async def poll(self, cursor: Any, since: datetime) -> Any:
                return await source.poll(began if cursor is None else cursor, since)

        service.source = Begun()
        return service


class TestEveryRowIsRead:
    async def test_5000_rows_behind_pages_are_read_once_each(self, db: Db, hand: Hand, host: Host):
        await hand.do("BEGIN")
        for start in range(1, 5001, 500):
            values = (
                f"({n}, {written(START + timedelta(seconds=n // 40))}, {n}, '')" for n in range(start, start + 500)
            )
            await hand.do(f"INSERT INTO orders VALUES {', '.join(values)}")
        await hand.do("COMMIT")
        batches = await read(rows_of(host, db.url, page_size=130))
        assert sorted(map(int, subjects(batches))) == list(range(1, 5001))

    async def test_rows_come_oldest_first(self, db: Db, hand: Hand, host: Host):
        await hand.do(order(1, START + timedelta(seconds=9)), order(2), order(3, START + timedelta(seconds=4)))
        assert subjects(await read(rows_of(host, db.url))) == ["2", "3", "1"]

    async def test_a_row_of_a_long_transaction_is_found_within_the_lookback(self, db: Db, hand: Hand, host: Host):
        source, late = rows_of(host, db.url), await db.hand()
        await hand.do(order(1, START + timedelta(seconds=30)))
        await late.do("BEGIN", order(2, START + timedelta(seconds=10)))
        first = await read(source)
        await late.do("COMMIT")
        await late.close()
        again = await read(source, first[-1].cursor, START + timedelta(seconds=5))
        assert (subjects(first), subjects(again)) == (["1"], ["2", "1"])

    async def test_a_number_that_is_committed_late_is_found_within_the_overlap(self, db: Db, hand: Hand, host: Host):
        source, late = rows_of(host, db.url, watermark="id"), await db.hand()
        await hand.do(order(1000))
        await late.do("BEGIN", order(950))
        first = await read(source)
        await late.do("COMMIT")
        await late.close()
        await hand.do(order(1001))
        again = await read(source, first[-1].cursor)
        assert (subjects(first), subjects(again)) == (["1000"], ["950", "1000", "1001"])

    async def test_an_overlap_of_none_reads_only_the_newest_again(self, db: Db, hand: Hand, host: Host):
        source = rows_of(host, db.url, watermark="id", overlap=0)
        await hand.do(*(order(id) for id in range(1, 6)))
        cursor = (await read(source))[-1].cursor
        await hand.do(order(6))
        assert subjects(await read(source, cursor)) == ["5", "6"]

    async def test_a_row_that_is_changed_is_shown_in_its_new_version(self, db: Db, hand: Hand, host: Host):
        source = rows_of(host, db.url)
        await hand.do(order(1))
        (before,) = events(await read(source))
        await hand.do(f"UPDATE orders SET note = 'paid', at = {written(START + timedelta(seconds=60))}")
        (after,) = events(await read(source))
        assert (before.subject, after.subject, after.data["note"]) == ("1", "1", "paid")
        assert before.state != after.state

    async def test_deleted_newest_rows_do_not_make_old_ones_new(self, db: Db, hand: Hand, host: Host):
        source = rows_of(host, db.url, watermark="id", overlap=2)
        await hand.do(*(order(id) for id in range(1, 11)))
        cursor = (await read(source))[-1].cursor
        await hand.do("DELETE FROM orders WHERE id > 8")
        for _ in range(3):
            batches = await read(source, cursor)
            cursor = batches[-1].cursor
            assert subjects(batches) == ["8"]


class TestTheFirstRead:
    async def test_shows_only_the_end_of_a_table_in_the_order_of_numbers(self, db: Db, hand: Hand, host: Host):
        await hand.do(*(order(id) for id in range(1, 301)))
        batches = await read(rows_of(host, db.url, watermark="id", overlap=5))
        assert subjects(batches) == ["295", "296", "297", "298", "299", "300"]
        assert all(event.occurred_at is None for event in events(batches))

    async def test_shows_only_what_happened_since_the_start(self, db: Db, hand: Hand, host: Host):
        await hand.do(order(1, START - timedelta(days=1)), order(2, START + timedelta(seconds=1)))
        (event,) = events(await read(rows_of(host, db.url)))
        assert (event.subject, event.occurred_at) == ("2", START + timedelta(seconds=1))

    async def test_of_an_empty_table_makes_all_of_its_later_rows_new(self, db: Db, hand: Hand, host: Host):
        source = rows_of(host, db.url, watermark="id")
        empty = await read(source)
        await hand.do(*(order(id) for id in range(1, 400)))
        assert subjects(empty) == []
        assert len(subjects(await read(source, empty[-1].cursor))) == 399

    async def test_leaves_what_initial_asks_for_to_the_second(self, db: Db, hand: Hand, host: Host):
        source = rows_of(host, db.url, watermark="id", initial="4")
        await hand.do(*(order(id) for id in range(1, 7)))
        first = await read(source)
        assert subjects(first) == []
        assert subjects(await read(source, first[-1].cursor)) == ["4", "5", "6"]


class TestWhatCannotBeOrdered:
    async def test_a_row_without_a_watermark_is_said_and_not_skipped(self, db: Db, hand: Hand, host: Host):
        await hand.do(order(1), "INSERT INTO orders VALUES (2, NULL, 2, '')")
        with pytest.raises(NeedsAttention, match=r"has no at, which is its watermark.*WHERE at IS NOT NULL"):
            await read(rows_of(host, db.url))
        assert subjects(await read(rows_of(host, db.url, query="SELECT * FROM orders WHERE at IS NOT NULL"))) == ["1"]

    async def test_a_row_without_a_key_is_said(self, db: Db, hand: Hand, host: Host):
        await hand.do(order(1), f"INSERT INTO orders VALUES (2, {written(START)}, NULL, '')")
        with pytest.raises(NeedsAttention, match="has no seq, which is its key"):
            await read(rows_of(host, db.url, key="seq"))

    @pytest.mark.parametrize("size", [1, 2, 500])
    async def test_a_key_that_is_not_unique_is_said(self, db: Db, hand: Hand, host: Host, size: int):
        await hand.do(*(order(id, seq=7) for id in range(1, 5)))
        with pytest.raises(NeedsAttention, match="several rows have the same at and seq"):
            await read(rows_of(host, db.url, key="seq", page_size=size))

    async def test_keys_that_differ_only_in_case_are_all_read(self, db: Db, hand: Hand, host: Host):
        await hand.do(*(order(id, note=name) for id, name in enumerate(("a", "A", "b", "B", "c"), 1)))
        batches = await read(rows_of(host, db.url, key="note", page_size=2))
        assert set(subjects(batches)) == {"a", "A", "b", "B", "c"}

    async def test_a_missing_column_is_named_with_those_that_are_there(self, db: Db, hand: Hand, host: Host):
        with pytest.raises(
            NeedsAttention, match=r"no column nota; its columns are id, at, seq, note; did you mean note\?"
        ):
            await read(rows_of(host, db.url, watermark="nota"))

    async def test_a_cursor_of_another_watermark_is_expired(self, db: Db, hand: Hand, host: Host):
        await hand.do(order(1))
        cursor = (await read(rows_of(host, db.url, watermark="id")))[-1].cursor
        with pytest.raises(CursorExpired, match="another watermark"):
            await read(rows_of(host, db.url, watermark="seq"), cursor)

    async def test_a_watermark_that_became_a_text_makes_the_cursor_useless(self, db: Db, hand: Hand, host: Host):
        await hand.do(order(1, note="x"))
        cursor = (await read(rows_of(host, db.url, watermark="mark", query="SELECT id, id AS mark FROM orders")))[
            -1
        ].cursor
        with pytest.raises(CursorExpired, match="another type"):
            await read(rows_of(host, db.url, watermark="mark", query="SELECT id, note AS mark FROM orders"), cursor)


class TestTheQuery:
    async def test_may_be_edited_without_losing_its_place(self, db: Db, hand: Hand, host: Host):
        await hand.do(*(order(id) for id in range(1, 4)))
        cursor = (await read(rows_of(host, db.url, watermark="id", overlap=0)))[-1].cursor
        await hand.do(order(4, note="big"), order(5))
        edited = rows_of(host, db.url, watermark="id", overlap=0, query="SELECT * FROM orders WHERE note = 'big'")
        assert subjects(await read(edited, cursor)) == ["4"]

    async def test_may_have_its_own_order_limit_percent_signs_and_with(self, db: Db, hand: Hand, host: Host):
        await hand.do(order(1, note="100% sure?"), order(2, note="no"), order(3, note="50% ;--)"))
        query = "WITH few AS (SELECT * FROM orders WHERE note LIKE '%0%%') SELECT * FROM few ORDER BY id DESC LIMIT 9;"
        found = events(await read(rows_of(host, db.url, query=query)))
        assert [event.data["note"] for event in found] == ["100% sure?", "50% ;--)"]

    async def test_may_join_and_name_columns_anew(self, db: Db, hand: Hand, host: Host):
        await hand.do(order(1), order(2))
        query = "SELECT a.id, b.id AS other, a.at FROM orders a JOIN orders b ON b.id = 3 - a.id"
        found = events(await read(rows_of(host, db.url, query=query)))
        assert [(event.data["id"], event.data["other"]) for event in found] == [(1, 2), (2, 1)]

    async def test_may_name_columns_as_no_one_should(self, db: Db, hand: Hand, host: Host):
        quote = "`" if isinstance(db, MariaDb) else '"'
        await hand.do(order(1))
        name = "at: ' OR 1=1 %s"
        source = rows_of(host, db.url, query=f"SELECT id, at AS {quote}{name}{quote} FROM orders", watermark=name)
        assert subjects(await read(source)) == ["1"]


async def test_a_page_that_was_read_is_followed_by_the_next_after_a_deletion(db: Db, hand: Hand, host: Host):
    source = rows_of(host, db.url, page_size=2)
    await hand.do(*(order(id) for id in range(1, 8)))
    first = await page(source)
    await hand.do("DELETE FROM orders WHERE id <= 3")
    rest = await read(source, first.cursor)
    assert subjects([first, *rest]) == ["1", "2", "3", "4", "5", "6", "7"]


async def test_local_times_of_the_hour_that_comes_twice_are_read_again(
    hand: Hand, db: Db, host: Host, clock: HandClock
):
    # in Berlin clocks go back from 3 to 2 o'clock on the 25th of October, at 1 o'clock in UTC
    back = datetime(2026, 10, 25, 1, 0, tzinfo=UTC)
    kind = {"timestamptz": "timestamp", "timestamp(6)": "datetime"}.get(db.time, "text")
    await hand.do(f"CREATE TABLE visits (id integer PRIMARY KEY, at {kind})")
    source = rows_of(host, db.url, query="SELECT * FROM visits", timezone="Europe/Berlin")
    await hand.do("INSERT INTO visits VALUES (1, '2026-10-25 02:59:00')")
    first = await read(source, None, back - timedelta(minutes=30))
    clock.jump((back + timedelta(minutes=5)).timestamp() - clock.time())
    await hand.do("INSERT INTO visits VALUES (2, '2026-10-25 02:04:00')")
    again = await read(source, first[-1].cursor, back - timedelta(minutes=3))
    assert [event.occurred_at for event in events(first)] == [back - timedelta(minutes=1)]
    assert subjects(again) == ["2", "1"]
