"""A file that an older Harken wrote opens with everything in it."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import apsw
import msgspec
import pytest

from harken.backends.sqlite import SqliteStore
from harken.errors import LeaseLost, Misconfigured
from harken.store import Generation
from harken.testing import HandClock
from harken.testing.store.world import INBOX, definitions

LINE = 1_767_600_000_000_000
OLD_TRIGGER = b'{"name":"mail","feed":"inbox","workflow":"triage","workflow_rev":"r1"}'


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def first(tmp_path: Path) -> Path:
    """Schema 1, with a feed, a trigger and a run that is ready."""
    path = tmp_path / "harken.db"
    connection = apsw.Connection(str(path))
    schema = files("harken.backends.sqlite").joinpath("migrations", "0001_start.sql").read_text()
    connection.execute(f"{schema}; PRAGMA user_version=1")
    connection.execute(
        "INSERT INTO feeds (id, name, definition, revision, created_at) VALUES (1, 'inbox', ?, 7, ?)",
        (msgspec.json.encode(INBOX), LINE),
    )
    connection.execute(
        """INSERT INTO triggers (id, uid, name, feed, definition, start_line, created_at)
        VALUES (1, 'u', 'mail', 'inbox', ?, ?, ?)""",
        (OLD_TRIGGER, LINE, LINE),
    )
    connection.execute(
        "INSERT INTO runs (id, trigger, workflow_rev, state, due_at, created_at) VALUES (x'01', 1, 'r1', 2, ?, ?)",
        (LINE, LINE),
    )
    connection.close()
    return path


async def test_what_an_older_file_still_has_is_counted(first: Path, clock: HandClock) -> None:
    connection = apsw.Connection(str(first))
    connection.execute(
        "INSERT INTO runs (id, trigger, workflow_rev, state, due_at, created_at) VALUES (x'02', 1, 'r1', 6, ?, ?)",
        (LINE, LINE),
    )
    connection.execute(
        """INSERT INTO ticks (feed, started_at, ended_at, count, result, seen, new, seconds)
        VALUES (1, ?, ?, 1, 'events', 20, 5, 0)""",
        (LINE, LINE),
    )
    connection.close()
    store = SqliteStore.at(first, clock, inline=True)
    assert [state.done for state in await store.triggers()] == [1]
    assert [state.seen for state in await store.feeds()] == [5]
    store.abandon()


async def test_a_file_of_the_first_version_keeps_its_start_lines_and_runs(first: Path, clock: HandClock) -> None:
    store = SqliteStore.at(first, clock, inline=True)
    [before] = await store.triggers()
    assert (before.start_line, before.reads_from) == (before.created_at, before.created_at)
    assert not before.backfilling
    opened = await store.open(definitions())
    assert (opened.triggers["mail"].uid, opened.feeds["inbox"].created_at) == ("u", before.created_at)
    assert [claim.trigger for claim in await store.claim("w", 10, 60)] == ["mail"]
    assert await store.check() == []
    store.abandon()


async def test_the_feeds_of_an_older_file_are_of_the_first_shard(first: Path, clock: HandClock) -> None:
    connection = apsw.Connection(str(first))
    connection.execute("INSERT INTO leases (shard, holder, token, until) VALUES (0, 'a', 7, 1)")
    connection.close()
    store = SqliteStore.at(first, clock, inline=True)
    assert await store.generation() == Generation()
    other, lease = await store.lease(1, "b", 30), await store.lease(0, "a", 30)
    assert other is not None
    assert lease is not None
    assert 7 < other.token < lease.token
    assert await store.forget("inbox", lease.token, [], clock.now()) == 0
    with pytest.raises(LeaseLost):
        await store.forget("inbox", other.token, [], clock.now())
    assert (await store.open(definitions())).epoch == 1
    store.abandon()


def test_who_only_reads_is_told_to_start_once(first: Path, clock: HandClock) -> None:
    with pytest.raises(Misconfigured, match=r"an older Harken\. Start once: harken start"):
        SqliteStore.at(first, clock, readonly=True)
