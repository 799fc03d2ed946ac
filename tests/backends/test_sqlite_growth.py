"""It grows without stalling: no table is read as a whole, and retention works in slices."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

import apsw
import pytest
from structlog.testing import capture_logs

from harken.backends.sqlite import SqliteStore
from harken.backends.sqlite.feeds_and_triggers import COUNT_MEMORY
from harken.event import Verdict
from harken.feed import MEMORY_COUNTED
from harken.operate.context import Context
from harken.operate.explain import explain
from harken.store import Lease
from harken.testing import HandClock
from harken.testing.store import Given
from harken.testing.store.subject_index import index_all
from harken.testing.store.upkeep import DAY, HOOK, prune_all
from harken.testing.store.world import INBOX, INTERNAL_FEED, definitions, feed
from harken.timings import Timings

GROWING = "memory|events|runs|run_events|journal|ticks|buried"
LISTING = feed("listing", identity="once")


async def given_at(path: Path, clock: HandClock, *, inline: bool = True) -> Given:
    store = SqliteStore.at(path, clock, inline=inline)
    opened = await store.open(definitions(feeds=(INBOX, INTERNAL_FEED, LISTING, HOOK)))
    lease = await store.lease(0, "a", 30)
    assert isinstance(lease, Lease)
    return Given(store, clock, opened, lease)


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "harken.db"


@pytest.fixture
async def given(path: Path, clock: HandClock) -> Any:
    given = await given_at(path, clock)
    yield given
    connection_of(given).set_exec_trace(None)
    sqlite(given).abandon()


def sqlite(given: Given) -> SqliteStore:
    assert isinstance(given.store, SqliteStore)
    return given.store


def connection_of(given: Given) -> apsw.Connection:
    return sqlite(given)._database.tx.connection


@contextmanager
def statements(given: Given) -> Iterator[dict[str, Any]]:
    """The statements that are executed, with the bindings of the last time."""
    found: dict[str, Any] = {}

    def note(cursor: apsw.Cursor, sql: str, bindings: Any) -> bool:
        found[sql] = bindings
        return True

    connection_of(given).set_exec_trace(note)
    yield found
    connection_of(given).set_exec_trace(None)


def scans(given: Given, found: dict[str, Any]) -> list[tuple[str, str]]:
    """Steps of their plans that read a table from its beginning to its end."""
    asked = {sql: bindings for sql, bindings in found.items() if re.match(r"\s*(SELECT|DELETE|UPDATE)", sql)}
    assert asked
    plans = [
        (sql, row[3])
        for sql, bindings in asked.items()
        for row in connection_of(given).execute(f"EXPLAIN QUERY PLAN {sql}", bindings)
    ]
    return [(sql, step) for sql, step in plans if re.match(rf"SCAN (?:{GROWING}|[megr])\b", step)]


async def some_rows(given: Given) -> None:
    """Two events that fired, one gathered by hand, a pushed one, and one that was dead-lettered."""
    for subject in ("a", "b"):
        await given.settle(await given.running(subject))
    revision = given.opened.feeds["hook"].revision
    await given.commit(given.entry("pushed"), feed="hook", revision=revision, token=None)


async def test_retention_scans_no_table(given: Given) -> None:
    await some_rows(given)
    given.clock.advance(40 * DAY)
    await given.renew()
    with statements(given) as found:
        await given.store.forget("inbox", given.lease.token, ["a"], given.now(-DAY))
        await given.store.forget("listing", given.lease.token, ["a"], given.now(-DAY))
        assert await prune_all(given.store) > 0
    assert {"runs", "events", "memory", "ticks", "buried"} <= set(re.findall(r"FROM (\w+)", " ".join(found)))
    assert scans(given, found) == []
    aged = {sql: bindings for sql, bindings in found.items() if "last_seen<" in sql}
    assert len(aged) == 3
    for sql, bindings in aged.items():
        plan = [row[3] for row in connection_of(given).execute(f"EXPLAIN QUERY PLAN {sql}", bindings)]
        assert any(re.search(r"memory USING (?:COVERING )?INDEX memory_\w+ \(.*last_seen<\?\)", step) for step in plan)


@pytest.mark.parametrize("key", ["a@1", "nothing of this name", "#1"])
async def test_explain_scans_no_table(given: Given, key: str) -> None:
    await some_rows(given)
    context = Context(given.store, None, None, given.clock, Timings())
    with statements(given) as found:
        await explain(context, name="mail", key=key)
    assert scans(given, found) == []


async def test_explain_of_a_key_that_nobody_knows_reads_few_events_however_many_there_are(given: Given) -> None:
    verdict = Verdict(trigger="mail", outcome="filtered", reason="no")
    for begin in range(0, 4000, 500):
        await given.commit(*(given.entry(f"s{n}", verdict, state="open") for n in range(begin, begin + 500)))
    await index_all(given.store)
    context = Context(given.store, None, None, given.clock, Timings())
    with rows_read(given) as read:
        assert (await explain(context, name="mail", key="nobody"))["outcome"] == "never_seen"
    assert 0 < len(read) < 200
    with rows_read(given) as read:
        assert (await explain(context, name="mail", key="s17"))["details"]["key"] == "s17:open"
    assert 0 < len(read) < 20


@contextmanager
def rows_read(given: Given) -> Iterator[list[Any]]:
    """The rows that statements return."""
    found: list[Any] = []

    def note(cursor: apsw.Cursor, row: Any) -> Any:
        found.append(row)
        return row

    connection_of(given).set_row_trace(note)
    yield found
    connection_of(given).set_row_trace(None)


@pytest.mark.parametrize("status", ["failed", "dead", "cancelled"])
async def test_runs_of_an_event_or_that_ended_badly_are_found_by_an_index(given: Given, status: str) -> None:
    await some_rows(given)
    with statements(given) as found:
        await given.store.runs(event_id=1)
        await given.store.runs(status=status)
        await given.store.dead()
    assert scans(given, found) == []


async def test_runs_that_moved_are_found_by_an_index_that_has_only_them(given: Given) -> None:
    await some_rows(given)
    await given.fires("watched", watched=True)
    with statements(given) as found:
        [moved] = await given.store.moved_runs()
        assert await given.store.moved_runs({moved.id: moved.seen}) == []
    assert scans(given, found) == []
    [(sql, bindings)] = [(sql, bindings) for sql, bindings in found.items() if sql.startswith("SELECT seq, id")]
    plan = [row[3] for row in connection_of(given).execute(f"EXPLAIN QUERY PLAN {sql}", bindings)]
    assert plan[0].startswith("SEARCH runs USING INDEX runs_moved")


async def test_a_key_is_looked_for_among_its_namesakes_and_not_among_all_events_of_the_feed(given: Given) -> None:
    await some_rows(given)
    with statements(given) as found:
        await given.store.events(feed="inbox", key="a")
    [(sql, bindings)] = [(sql, bindings) for sql, bindings in found.items() if "e.kid" in sql]
    plan = [row[3] for row in connection_of(given).execute(f"EXPLAIN QUERY PLAN {sql}", bindings)]
    assert plan[0] == "SEARCH e USING INDEX events_by_key (kid=?)"


def test_a_memory_of_millions_is_not_counted_to_its_end(given: Given) -> None:
    connection = connection_of(given)
    rows = ((4, number.to_bytes(16, "big")) for number in range(MEMORY_COUNTED + 5))
    connection.executemany(
        "INSERT INTO memory (feed, mid, seq, event, first_seen, last_seen) VALUES (?,?,1,1,0,0)", rows
    )
    [(name,)] = connection.execute("SELECT name FROM feeds WHERE id=4")
    assert connection.execute(COUNT_MEMORY, (name,)).fetchone() == (MEMORY_COUNTED,)


class Ticking(HandClock):
    """A clock on which each look takes two milliseconds."""

    def monotonic(self) -> float:
        self._monotonic += 0.002
        return self._monotonic


async def test_a_slice_of_retention_ends_after_some_milliseconds(path: Path) -> None:
    given = await given_at(path, Ticking())
    await given.commit(*(given.entry(f"s{n}") for n in range(400)))
    given.clock.advance(2 * DAY)
    first = await given.store.prune(events=DAY, ticks=DAY, runs=DAY, pushed=DAY, audit=DAY)
    assert 0 < first < 50
    assert await prune_all(given.store) > 300
    sqlite(given).abandon()


async def test_a_file_of_the_schema_before_gets_its_indexes_and_keeps_its_rows(path: Path, clock: HandClock) -> None:
    given = await given_at(path, clock)
    await some_rows(given)
    sqlite(given).abandon()
    migrations = files("harken.backends.sqlite").joinpath("migrations")
    steps = ("0005_growth.sql", "0006_moved.sql", "0007_objects.sql", "0008_gather.sql", "0009_bank.sql")
    added = "".join(migrations.joinpath(step).read_text() for step in steps)
    grown = re.findall(r"CREATE INDEX (\w+)", added)
    with closing(apsw.Connection(str(path))) as connection:
        for index in grown:
            connection.execute(f"DROP INDEX {index}")
        for table, column in re.findall(r"ALTER TABLE (\w+) ADD COLUMN (\w+)", added):
            connection.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
        for table in re.findall(r"CREATE TABLE (\w+)", added):
            connection.execute(f"DROP TABLE {table}")
        connection.execute("PRAGMA user_version=4")
    with capture_logs() as logs:
        store = SqliteStore.at(path, clock, inline=True)
    assert [(line["event"], line["schema"]) for line in logs] == [
        ("store.migrating", number) for number in (5, 6, 7, 8, 9)
    ]
    found = store._database.tx.execute("SELECT name FROM sqlite_schema WHERE type='index'").fetchall()
    assert set(grown) <= {row[0] for row in found}
    assert (await store.counts())["events"] == 3
    assert await store.check() == []
    store.abandon()
