"""A process that is killed in the middle of a migration leaves a store in which every row is as it was before it.

The next start finishes the migration. SQLite is killed at points spread over all that the migration executes; with
PostgreSQL, where the server takes everything back, while the migration waits for a table that somebody has locked.
"""

from __future__ import annotations

import asyncio
import lzma
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from harken.backends.sqlite.connection import connect, migrate
from tests.backends.make_earlier_store import STORES
from tests.backends.test_earlier_sqlite_files import SCHEMAS, tables
from tests.backends.test_earlier_stores import EarlierPostgres, differences, in_order, opened
from tests.servers.postgres import PostgresServer
from tests.system.fleet.replica_processes import until

pytestmark = [pytest.mark.process, pytest.mark.worker_group("earlier-servers")]

KILLS = 9
# dies when SQLite has done so much; prints how much it did if it comes to the end
MIGRATING = """
import os, signal, sys
from pathlib import Path
from harken.backends.sqlite.connection import connect, migrate
done = 0
def count():
    global done
    done += 1
    if done > int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    return False
connection = connect(Path(sys.argv[1]))
connection.set_progress_handler(count, 20)
migrate(connection)
print(done)
"""
OPENING = """
import asyncio, sys
from harken.backends.postgres import PostgresStore, Settings
asyncio.run(PostgresStore.at(sys.argv[1], None, settings=Settings(pool=2)).connect())
"""


def migrated_until(store: Path, work: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", MIGRATING, str(store), str(work)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def schema(store: Path) -> int:
    connection = apsw.Connection(str(store))
    try:
        assert connection.pragma("integrity_check") == "ok"
        return int(str(connection.pragma("user_version")))
    finally:
        connection.close()


@pytest.mark.parametrize("file", SCHEMAS, ids=lambda file: file.name.split(".")[0])
def test_a_file_whose_migration_was_killed_is_whole_and_is_migrated_by_the_next_start(
    file: Path, tmp_path: Path
) -> None:
    earlier = tmp_path / "earlier.db"
    earlier.write_bytes(lzma.decompress(file.read_bytes()))
    before, first = tables(earlier), schema(earlier)
    whole = Path(shutil.copy(earlier, tmp_path / "whole.db"))
    work = int(migrated_until(whole, 10**9).stdout.split()[-1])
    newest, reached = schema(whole), set()
    for number in range(KILLS):
        store = Path(shutil.copy(earlier, tmp_path / f"killed-{number}.db"))
        killed = migrated_until(store, work * number // KILLS)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        reached.add(schema(store))
        after_kill = tables(store)
        connection = connect(store)
        migrate(connection)
        connection.close()
        assert schema(store) == newest
        after = tables(store)
        assert [name for name in before if not before[name].items() <= after_kill[name].items()] == []
        assert [name for name in before if not before[name].items() <= after[name].items()] == []
        assert after == tables(whole)
    # it was killed between steps, or in several of them, and not always before the first
    assert reached <= set(range(first, newest))
    assert len(reached) > 1


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


async def test_a_database_whose_migration_was_killed_is_as_it_was_and_is_migrated_by_the_next_start(
    postgres: PostgresServer,
) -> None:
    earlier = await EarlierPostgres.loaded(postgres, min(STORES.glob("b7ac51a")), "engine")
    somebody = await postgres.connect(earlier.url.rpartition("/")[2].partition("?")[0])
    was = await somebody.fetch("SELECT number, name FROM harken_migrations ORDER BY number")
    locking = somebody.transaction()
    await locking.start()
    await somebody.execute("LOCK TABLE runs IN ACCESS EXCLUSIVE MODE")
    opening = await asyncio.create_subprocess_exec(sys.executable, "-c", OPENING, earlier.url)

    async def waits() -> bool:
        return bool(await somebody.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"))

    await until(waits, 60, lambda: f"the migration does not wait: exit code {opening.returncode}")
    opening.kill()
    assert await opening.wait() == -signal.SIGKILL
    await locking.rollback()
    assert await somebody.fetch("SELECT number, name FROM harken_migrations ORDER BY number") == was
    await somebody.close()
    found = await opened(earlier, None)
    assert list(differences(in_order(earlier.written), in_order(found))) == []
    assert found["faults"] == []
