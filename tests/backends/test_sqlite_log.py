"""The write-ahead log is moved into the database by a thread of its own, and no commit waits for that."""

from __future__ import annotations

import threading
from contextlib import closing
from pathlib import Path

import apsw
import pytest
from structlog.testing import capture_logs

from harken.backends.sqlite import wal_checkpoints
from harken.backends.sqlite.wal_checkpoints import Checkpoints
from harken.testing import HandClock
from tests.backends.test_sqlite_file import given_at


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "harken.db"


@pytest.fixture
def movers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The threads that moved the log, one after the other."""
    found: list[str] = []
    move = Checkpoints._move

    def noted(self: Checkpoints, connection: apsw.Connection) -> int | None:
        found.append(threading.current_thread().name)
        return move(self, connection)

    monkeypatch.setattr(Checkpoints, "_move", noted)
    return found


async def test_the_log_is_moved_by_a_thread_of_its_own_and_begins_anew(
    path: Path, clock: HandClock, monkeypatch: pytest.MonkeyPatch, movers: list[str]
) -> None:
    monkeypatch.setattr(wal_checkpoints, "LOG_PAGES", 40)
    store, given = await given_at(path, clock)
    moving = store._database._checkpoints
    assert moving is not None
    for number in range(200):
        await given.commit(given.entry(f"s{number}"))
        moving.wait()
    assert movers[0] == "harken-checkpoint"
    # a commit of one event takes some pages: without beginning anew it would be longer than 4 MB
    assert path.with_name("harken.db-wal").stat().st_size < 1_000_000
    await store.close()
    with closing(apsw.Connection(str(path))) as connection:
        assert connection.execute("SELECT count(*) FROM events").fetchone() == (200,)
        assert connection.pragma("integrity_check") == "ok"


async def test_the_writer_moves_the_little_that_is_left_so_that_the_log_begins_anew(
    path: Path, clock: HandClock, monkeypatch: pytest.MonkeyPatch, movers: list[str]
) -> None:
    def leave_little(self: Checkpoints, pages: int) -> None:
        self._rest = True
        self._at_rest.set()

    monkeypatch.setattr(wal_checkpoints, "LOG_PAGES", 40)
    monkeypatch.setattr(Checkpoints, "_ask", leave_little)
    store, given = await given_at(path, clock)
    for number in range(200):
        await given.commit(given.entry(f"s{number}"))
    assert set(movers) == {"harken-store"}
    assert path.with_name("harken.db-wal").stat().st_size < 1_000_000
    await store.close()


async def test_no_commit_moves_the_log_itself(path: Path, clock: HandClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wal_checkpoints, "LOG_PAGES", 10)
    asked: list[int] = []
    monkeypatch.setattr(Checkpoints, "_ask", lambda self, pages: asked.append(pages))
    store, given = await given_at(path, clock)
    size = path.stat().st_size
    for number in range(60):
        await given.commit(given.entry(f"s{number}"))
    assert asked
    assert path.stat().st_size == size
    await store.close()
    assert path.stat().st_size > size


def test_a_log_that_cannot_be_moved_is_said_once(path: Path) -> None:
    class Failing:
        def execute(self, sql: str) -> None:
            raise apsw.IOError

    with closing(apsw.Connection(str(path))) as writer, capture_logs() as logs:
        moving = Checkpoints(writer, Failing())  # type: ignore[arg-type]
        for _ in range(3):
            moving._ask(wal_checkpoints.LOG_PAGES)
        moving._asked.put(None)
        assert moving._thread is not None
        moving._thread.join()
    assert [(line["event"], line["reason"]) for line in logs] == [("store.log_not_moved", "IOError")]
