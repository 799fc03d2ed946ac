"""The file gives unused space back while it is used; one that cannot says what helps."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import apsw
import msgspec
import pytest

from harken.backends.sqlite import SqliteStore
from harken.errors import Refused
from harken.store import Entry
from harken.testing import HandClock
from harken.testing.store import Given
from harken.testing.store.upkeep import DAY, prune_all
from tests.backends.test_sqlite_file import given_at


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "harken.db"


def large(given: Given, subject: str) -> Entry:
    entry = given.entry(subject)
    event = msgspec.structs.replace(entry.event, data={"text": "x" * 4_000})
    return msgspec.structs.replace(entry, event=event)


async def test_the_file_shrinks_when_its_rows_are_gone(path: Path, clock: HandClock) -> None:
    store, given = await given_at(path, clock)
    for page in range(20):
        await given.commit(*(large(given, f"s{page}-{number}") for number in range(100)))
    clock.advance(2 * DAY)
    await prune_all(given.store)
    full = (await store.space()).bytes
    while await store.shrink():
        pass
    kept = await store.space()
    assert await store.check() == []
    await store.close()
    assert full > 8_000_000
    assert path.stat().st_size == kept.bytes < full / 4
    # some are kept, because the next rows need them again
    assert 0 < kept.unused < 2_000_000


@pytest.fixture
def plain(path: Path, clock: HandClock) -> Path:
    """A store that was made without auto_vacuum, with two megabytes of unused pages."""
    SqliteStore.at(path, clock, inline=True).abandon()
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute("PRAGMA journal_mode=DELETE").fetchall()
        connection.execute("PRAGMA auto_vacuum=NONE; VACUUM")
        connection.execute("CREATE TABLE large AS SELECT zeroblob(2100000); DROP TABLE large")
    return path


async def test_a_file_that_cannot_shrink_says_what_helps_once(plain: Path, clock: HandClock) -> None:
    store = SqliteStore.at(plain, clock)
    before = await store.space()
    assert await store.shrink() == 0
    assert "harken store compact" in before.advice
    assert before.unused > 2_000_000
    with pytest.raises(Refused, match="another Harken process writes"):
        SqliteStore.compact(plain)
    await store.close()
    large, small = SqliteStore.compact(plain)
    assert small < large - 2_000_000
    again = SqliteStore.at(plain, clock)
    after = await again.space()
    assert (after.advice, after.unused) == ("", 0)
    await again.close()
