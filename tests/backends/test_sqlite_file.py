"""What only SQLite has: one private file, one writer, one fsync for many writes, and a disk that may be full."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from importlib.resources import files
from pathlib import Path

import apsw
import msgspec
import pytest

from harken.backends.sqlite import SqliteStore
from harken.backends.sqlite.claims import claim
from harken.backends.sqlite.connection import refuse_network
from harken.backends.sqlite.damage import CHECK_SECONDS
from harken.backends.sqlite.errors import opening
from harken.backends.sqlite.replaced_file_check import LOOK_SECONDS, FileGuard
from harken.backends.sqlite.transaction_with_row_cache import Transaction
from harken.errors import LeaseLost, Misconfigured, Refused, StoreBusy, StoreUnavailable
from harken.feed import Budget
from harken.store import Committed, Lease
from harken.testing import HandClock
from harken.testing.store import Given
from harken.testing.store.gathered_and_held_runs import gathers
from harken.testing.store.world import MAIL, OTHER, definitions

KEY = "a long key of the operator"


async def given_at(
    path: Path, clock: HandClock, *, limit: int = 10_000, key: str = "", inline: bool = False
) -> tuple[SqliteStore, Given]:
    store = SqliteStore.at(path, clock, limit=limit, key=key, inline=inline)
    opened = await store.open(definitions())
    lease = await store.lease(0, "a", 30)
    assert isinstance(lease, Lease)
    return store, Given(store, clock, opened, lease)


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "harken.db"


@pytest.fixture
async def given(path: Path, clock: HandClock) -> AsyncIterator[Given]:
    store, given = await given_at(path, clock)
    yield given
    store.abandon()


def sqlite(given: Given) -> SqliteStore:
    assert isinstance(given.store, SqliteStore)
    return given.store


def pragma(given: Given, name: str, *value: int) -> int | str:
    found: int | str = sqlite(given)._database.tx.connection.pragma(name, *value)
    return found


def recorded(path: Path) -> set[str]:
    """The events in the file, read without Harken."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    return {bytes(row[0]).decode() for row in connection.execute("SELECT subject FROM events")}


def in_another_process(code: str, *args: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)


async def test_files_are_private(given: Given, path: Path) -> None:
    await given.commit(given.entry("s"))
    modes = {file.name: oct(file.stat().st_mode & 0o777) for file in [path.parent, *path.parent.iterdir()]}
    assert modes.pop("state") == "0o700"
    assert set(modes.values()) == {"0o600"}
    assert "harken.db-wal" in modes


async def test_every_commit_is_synced_to_a_write_ahead_log(given: Given) -> None:
    assert (pragma(given, "journal_mode"), pragma(given, "synchronous")) == ("wal", 2)


async def test_a_second_writer_is_refused_and_told_what_to_do(given: Given, path: Path) -> None:
    with pytest.raises(Refused, match=r"another Harken process writes .*harken\.db.*Stop it first"):
        SqliteStore.at(path, given.clock)


@pytest.mark.process
async def test_a_second_process_is_refused_too(given: Given, path: Path) -> None:
    code = """
import sys
from harken.clock import SystemClock
from harken.errors import Refused
from harken.backends.sqlite import SqliteStore
try:
    SqliteStore.at(sys.argv[1], SystemClock())
except Refused as refused:
    print(refused)
"""
    assert "another Harken process writes" in in_another_process(code, path).stdout


async def test_a_reader_sees_what_is_committed_and_writes_nothing(given: Given, path: Path) -> None:
    await given.commit(given.entry("s"))
    reader = SqliteStore.at(path, given.clock, readonly=True)
    assert [event.subject for event in (await reader.events()).items] == ["s"]
    with pytest.raises(Misconfigured):
        await reader.put("token", "t", 1)
    reader.abandon()


async def test_a_reader_of_nothing_is_told_to_start_first(path: Path, clock: HandClock) -> None:
    with pytest.raises(Misconfigured, match="harken start"):
        SqliteStore.at(path, clock, readonly=True)


async def test_verbs_that_wait_together_share_a_transaction(given: Given) -> None:
    writer = sqlite(given)._database.writer
    assert writer is not None
    groups, writes = writer.groups, writer.writes
    await asyncio.gather(*(given.commit(given.entry(f"s{n}")) for n in range(200)))
    assert writer.writes - writes == 200
    assert writer.groups - groups < 50


async def test_an_error_in_one_verb_leaves_the_others_of_its_group_whole(given: Given) -> None:
    pages = [given.page(given.entry(f"s{n}"), token=given.lease.token + n % 2) for n in range(40)]
    answers = await asyncio.gather(*(given.store.commit(page) for page in pages), return_exceptions=True)
    assert [type(answer) for answer in answers] == [Committed, LeaseLost] * 20
    assert set(await given.subjects(limit=100)) == {f"s{n}" for n in range(0, 40, 2)}


async def test_a_full_queue_is_said_to_be_busy_and_writes_nothing_of_that(path: Path, clock: HandClock) -> None:
    store, given = await given_at(path, clock, limit=5)
    pages = [given.page(given.entry(f"s{n}")) for n in range(50)]
    answers = await asyncio.gather(*(store.commit(page) for page in pages), return_exceptions=True)
    kept = {f"s{n}" for n, answer in enumerate(answers) if isinstance(answer, Committed)}
    assert {type(answer) for answer in answers} == {Committed, StoreBusy}
    assert set(await given.subjects(limit=100)) == kept
    assert isinstance(await store.commit(given.page(given.entry("later"))), Committed)
    store.abandon()


async def test_a_full_disk_acknowledges_nothing_says_so_and_recovers(given: Given, path: Path) -> None:
    await given.commit(given.entry("before"))
    pragma(given, "max_page_count", int(pragma(given, "page_count")))
    full = given.page(*(given.entry(f"s{n}") for n in range(2000)), cursor=[1])
    with pytest.raises(StoreUnavailable, match="full"):
        await given.store.commit(full)
    assert "full" in given.store.trouble
    assert (await given.feed()).cursor is None
    pragma(given, "max_page_count", 2**30)
    assert isinstance(await given.store.commit(full), Committed)
    assert given.store.trouble == ""
    assert recorded(path) == {"before", *(f"s{n}" for n in range(2000))}


FILL = """
import asyncio, resource, signal, sys
from harken.errors import StoreUnavailable
from harken.store import Committed
from harken.backends.sqlite import SqliteStore
from harken.testing import HandClock
from harken.testing.store import Given
from harken.testing.store.world import definitions

async def main():
    clock = HandClock()
    store = SqliteStore.at(sys.argv[1], clock)
    given = Given(store, clock, await store.open(definitions()), await store.lease(0, "a", 30))
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, hard))
    kept, refused = [], 0
    for n in range(400):
        try:
            await given.commit(given.entry(f"s{n}" + "x" * 3000))
            kept.append(n)
        except StoreUnavailable:
            refused += 1
    trouble = store.trouble
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    await given.commit(given.entry("after"))
    subjects = await given.subjects(limit=1000)
    sound = [f"s{n}" + "x" * 3000 for n in kept] + ["after"] == subjects and not await store.check()
    print(bool(kept), refused > 0, bool(trouble), store.trouble == "", sound)

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
asyncio.run(main())
"""


@pytest.mark.process
def test_a_file_that_cannot_grow_loses_nothing_that_was_acknowledged(path: Path) -> None:
    done = in_another_process(FILL, path)
    answers = [word for word in done.stdout.split() if word in ("True", "False")]
    assert answers == ["True"] * 5, done.stderr


async def test_a_claim_that_was_undone_does_not_forget_what_a_budget_holds(given: Given) -> None:
    limited = msgspec.structs.replace(MAIL, budget=Budget(runs_per_hour=1))
    await given.open(definitions(triggers=(limited, OTHER)))
    await given.refresh()
    [_, held] = await given.fires("a", "b")
    await given.claims()
    given.clock.advance(3600)

    def undone(tx: Transaction) -> None:
        claim(tx, "w", 10, 60.0)
        raise ValueError("the disk went away")

    with pytest.raises(ValueError, match="went away"):
        await sqlite(given)._database.write(undone)
    assert [claimed.id for claimed in await given.claims()] == [held]


async def test_closing_writes_what_is_queued(path: Path, clock: HandClock) -> None:
    store, given = await given_at(path, clock)
    waiting = [asyncio.ensure_future(store.commit(given.page(given.entry(f"s{n}")))) for n in range(100)]
    await asyncio.sleep(0)
    await store.close()
    assert {type(answer) for answer in await asyncio.gather(*waiting)} == {Committed}
    assert recorded(path) == {f"s{n}" for n in range(100)}


async def test_a_backup_of_a_running_store_is_whole(given: Given, tmp_path: Path) -> None:
    await given.fires("a", "b")
    target = tmp_path / "copy.db"
    await given.store.backup(str(target))
    assert oct(target.stat().st_mode & 0o777) == "0o600"
    copy = SqliteStore.at(target, given.clock)
    assert [event.subject for event in (await copy.events()).items] == ["b", "a"]
    assert await copy.check() == []
    copy.abandon()


async def test_who_cannot_read_the_file_is_told_to_come_back(path: Path, clock: HandClock) -> None:
    store, given = await given_at(path, clock)
    await given.fires("s")
    store._database._idle_readers.clear()  # as when more read at once than have a connection
    away = path.rename(path.with_name("away.db"))
    with pytest.raises(StoreUnavailable, match="was removed or moved away"):
        await store.feeds()
    away.rename(path)
    assert {state.name for state in await store.feeds()} >= {"inbox"}
    store.abandon()


def remove(file: Path) -> None:
    file.rename(file.with_name("away"))


def exchange(file: Path) -> None:
    away = file.rename(file.with_name("away"))
    file.write_bytes(away.read_bytes())


@pytest.mark.parametrize("inline", [False, True])
@pytest.mark.parametrize("lose", [remove, exchange])
@pytest.mark.parametrize("name", ["harken.db", "harken.db-wal"])
async def test_a_file_that_is_removed_or_exchanged_acknowledges_nothing_until_it_is_back(
    path: Path, clock: HandClock, name: str, lose: Callable[[Path], None], inline: bool
) -> None:
    store, given = await given_at(path, clock, inline=inline)
    await given.commit(given.entry("before"))
    lose(path.with_name(name))
    clock.advance(LOOK_SECONDS)
    for subject in ("first", "second"):
        with pytest.raises(StoreUnavailable, match=rf"{name} was (removed|exchanged)"):
            await given.commit(given.entry(subject))
    assert name in store.trouble
    path.with_name("away").replace(path.with_name(name))
    await given.commit(given.entry("after"))
    assert store.trouble == ""
    await store.close()
    assert recorded(path) >= {"before", "after"}


async def test_a_lost_file_is_said_without_a_write(given: Given, path: Path) -> None:
    path.rename(path.with_name("away"))
    assert given.store.trouble == ""
    given.clock.advance(LOOK_SECONDS)
    assert "was removed or moved away" in given.store.trouble


async def test_a_file_that_was_emptied_stays_down(given: Given, path: Path) -> None:
    before = path.read_bytes()
    os.truncate(path, 0)
    given.clock.advance(LOOK_SECONDS)
    with pytest.raises(StoreUnavailable, match="was emptied"):
        await given.commit(given.entry("s"))
    with path.open("r+b") as file:
        file.write(before)
    with pytest.raises(StoreUnavailable, match=r"was emptied.*store restore"):
        await given.commit(given.entry("s"))


async def test_what_was_in_a_removed_log_is_saved_in_the_database(given: Given, path: Path) -> None:
    await given.fires("kept")
    path.with_name("harken.db-wal").unlink()
    given.clock.advance(LOOK_SECONDS)
    with pytest.raises(StoreUnavailable, match="Restart Harken"):
        await given.commit(given.entry("refused"))
    copied = path.with_name("as-after-a-kill.db")
    shutil.copy(path, copied)
    assert "kept" in recorded(copied)


async def test_a_removed_database_can_still_be_backed_up(given: Given, path: Path) -> None:
    await given.commit(given.entry("kept"))
    for file in (path, path.with_name("harken.db-wal")):
        file.unlink()
    given.clock.advance(LOOK_SECONDS)
    assert given.store.trouble
    await given.store.backup(str(path.with_name("saved.db")))
    assert recorded(path.with_name("saved.db")) == {"kept"}


async def test_closing_leaves_the_log_of_the_file_that_took_our_place(path: Path, clock: HandClock) -> None:
    store, given = await given_at(path, clock)
    await given.commit(given.entry("ours"))
    for file in (path, path.with_name("harken.db-wal")):
        exchange(file)
    await store.close()
    assert "ours" in recorded(path)


async def test_the_files_are_looked_at_once_in_a_while_and_not_for_every_write(
    given: Given, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []
    compare = FileGuard._compare

    def count(guard: FileGuard, file: str) -> tuple[str, int]:
        looks.append(file)
        return compare(guard, file)

    monkeypatch.setattr(FileGuard, "_compare", count)
    for n in range(50):
        await given.commit(given.entry(f"s{n}"))
    assert looks == []
    given.clock.advance(LOOK_SECONDS)
    for n in range(50):
        await given.commit(given.entry(f"t{n}"))
    assert len(looks) == 2


@pytest.mark.parametrize("name", ["harken.db-wal", "harken.db.lock", "harken.db.run.json"])
def test_a_new_store_beside_what_an_earlier_one_left_is_refused(path: Path, clock: HandClock, name: str) -> None:
    path.parent.mkdir()
    path.with_name(name).write_bytes(b"left")
    with pytest.raises(Refused, match=rf"left {name} there.*--new-store"):
        SqliteStore.at(path, clock)
    assert [file.name for file in path.parent.iterdir()] == [name]
    assert path.with_name(name).read_bytes() == b"left"


def test_a_file_of_0_bytes_is_refused(path: Path, clock: HandClock) -> None:
    path.parent.mkdir()
    path.touch()
    with pytest.raises(Refused, match=r"harken\.db has 0 bytes.*--new-store"):
        SqliteStore.at(path, clock)
    assert path.stat().st_size == 0


async def test_a_store_that_went_away_while_it_was_stopped_is_asked_for(path: Path, clock: HandClock) -> None:
    store, _ = await given_at(path, clock)
    await store.close()
    path.unlink()
    with pytest.raises(Refused, match=r"left harken\.db\.lock there.*store restore"):
        SqliteStore.at(path, clock)


def test_a_file_without_tables_beside_leftovers_is_refused(path: Path, clock: HandClock) -> None:
    path.parent.mkdir()
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
    path.with_name("harken.db.lock").touch()
    with pytest.raises(Refused, match="has no tables"):
        SqliteStore.at(path, clock)


async def test_a_store_has_its_tables_before_its_first_write_without_its_log(given: Given, path: Path) -> None:
    copied = path.with_name("without-log.db")
    shutil.copy(path, copied)
    assert recorded(copied) == set()


async def test_who_wants_a_new_store_gets_one_and_keeps_the_old_log(path: Path, clock: HandClock) -> None:
    path.parent.mkdir()
    path.touch()
    path.with_name("harken.db-wal").write_bytes(b"old log")
    store = SqliteStore.at(path, clock, new=True)
    assert await store.feeds() == []
    store.abandon()
    assert path.with_name("harken.db.before-new-store-1-wal").read_bytes() == b"old log"


async def test_a_new_store_does_not_take_the_place_of_one(path: Path, clock: HandClock) -> None:
    store, given = await given_at(path, clock)
    await given.commit(given.entry("kept"))
    await store.close()
    with pytest.raises(Refused, match="has a store already"):
        SqliteStore.at(path, clock, new=True)
    assert recorded(path) == {"kept"}


async def test_a_store_that_could_not_be_made_leaves_nothing_to_ask_about(
    path: Path, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(connection: apsw.Connection) -> None:
        raise apsw.FullError("no room")

    with monkeypatch.context() as patch:
        patch.setattr("harken.backends.sqlite.connection.migrate", fail)
        with pytest.raises(StoreUnavailable, match="is full"):
            SqliteStore.at(path, clock)
    assert list(path.parent.iterdir()) == []
    SqliteStore.at(path, clock).abandon()


def damage(path: Path, table: str) -> Callable[[], None]:
    """Overwrite the first page of a table; return what makes the file whole again."""
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        found = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name=?", (table,)).get
        size: int = connection.pragma("page_size")
    assert isinstance(found, int)
    page = found
    before = path.read_bytes()[(page - 1) * size : page * size]

    def put(content: bytes) -> None:
        with path.open("r+b") as file:
            file.seek((page - 1) * size)
            file.write(content)

    put(b"\xff" * size)
    return lambda: put(before)


@pytest.mark.parametrize("inline", [False, True])
async def test_a_damaged_database_stays_down_until_it_is_whole(path: Path, clock: HandClock, inline: bool) -> None:
    (await given_at(path, clock))[0].abandon()
    mend = damage(path, "audit")
    store, given = await given_at(path, clock, inline=inline)
    await given.commit(given.entry("before"))
    with pytest.raises(StoreUnavailable, match=r"damaged.*harken store restore"):
        await store.audit("me", "x", "y", {})
    for seconds in (0, CHECK_SECONDS):
        clock.advance(seconds)
        with pytest.raises(StoreUnavailable, match="damaged"):
            await given.commit(given.entry("elsewhere in the file"))
        assert "damaged" in store.trouble
    await checked(store)
    assert "damaged" in store.trouble
    mend()
    clock.advance(CHECK_SECONDS)
    assert "damaged" in store.trouble  # until a write succeeds
    await checked(store)
    await store.audit("me", "x", "y", {})
    assert store.trouble == ""
    store.abandon()


async def checked(store: SqliteStore) -> None:
    """Wait until the check in the background is over."""
    damage = store._database._damage
    assert damage is not None
    with damage._checking:
        await asyncio.sleep(0)


async def test_a_reader_that_meets_damage_turns_the_store_down(path: Path, clock: HandClock) -> None:
    (await given_at(path, clock))[0].abandon()
    damage(path, "audit")
    store, given = await given_at(path, clock)
    with pytest.raises(StoreUnavailable, match="damaged"):
        await store.audits()
    with pytest.raises(StoreUnavailable, match="damaged"):
        await given.commit(given.entry("s"))
    assert "damaged" in store.trouble
    store.abandon()


@pytest.mark.parametrize("readonly", [False, True])
async def test_a_check_of_a_damaged_file_says_so_first(path: Path, clock: HandClock, readonly: bool) -> None:
    (await given_at(path, clock))[0].abandon()
    damage(path, "audit")
    store = SqliteStore.at(path, clock, readonly=readonly)
    first, *details = await store.check()
    assert first == "the database file is damaged. Restore the last backup: harken store restore FILE"
    assert details
    store.abandon()


@pytest.mark.parametrize("readonly", [False, True])
def test_a_file_that_is_no_database_is_said_to_be_damaged(path: Path, clock: HandClock, readonly: bool) -> None:
    path.parent.mkdir()
    path.write_bytes(b"\xff" * 8192)
    with pytest.raises(StoreUnavailable, match=r"harken\.db is damaged.*harken store restore"):
        SqliteStore.at(path, clock, readonly=readonly)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (apsw.FullError(), "the disk of .* is full. Free some space"),
        (OSError(errno.ENOSPC, "No space left"), "the disk of .* is full. Free some space"),
        (OSError(errno.EROFS, "Read-only file system"), "its directory is read-only. Give your user the right"),
        (PermissionError(errno.EACCES, "Permission denied"), "its directory is read-only. Give your user the right"),
        (apsw.ReadOnlyError(), "its directory is read-only. Give your user the right"),
        (apsw.CorruptError(), "is damaged, or no database. Restore the last backup"),
        (apsw.BusyError(), "another program holds .*. Close it"),
        (apsw.IOError(), r"cannot be opened \(IOError\). Check the disk"),
        (OSError(errno.EIO, "Input/output error"), r"cannot be opened \(Input/output error\). Check the disk"),
    ],
)
def test_what_hinders_a_start_has_its_own_words(tmp_path: Path, error: Exception, words: str) -> None:
    with pytest.raises(StoreUnavailable, match=words), opening(tmp_path / "harken.db"):
        raise error


@pytest.mark.parametrize("error", [apsw.IOError(), apsw.CantOpenError()])
def test_a_full_disk_is_recognised_where_sqlite_only_says_that_something_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    full = os.statvfs_result((4096, 4096, 100, 5, 0, 10, 10, 10, 0, 255))
    monkeypatch.setattr("harken.backends.sqlite.errors.os.statvfs", lambda place: full)
    with pytest.raises(StoreUnavailable, match="is full"), opening(tmp_path / "harken.db"):
        raise error


async def test_a_check_names_a_full_disk_and_a_read_only_directory(
    given: Given, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = os.statvfs_result((4096, 4096, 100, 5, 0, 10, 10, 10, 0, 255))
    monkeypatch.setattr("harken.backends.sqlite.errors.os.statvfs", lambda place: full)
    monkeypatch.setattr("harken.backends.sqlite.errors.os.access", lambda place, mode: False)
    disk, directory = await given.store.check()
    assert "is full" in disk
    assert "its directory is read-only" in directory


def migrations() -> list[str]:
    folder = files("harken.backends.sqlite").joinpath("migrations")
    return sorted(step.name for step in folder.iterdir() if step.name.endswith(".sql"))


async def test_a_file_of_the_first_version_is_brought_up_to_date(path: Path, clock: HandClock) -> None:
    path.parent.mkdir()
    first = files("harken.backends.sqlite").joinpath("migrations", "0001_start.sql").read_text()
    connection = apsw.Connection(str(path))
    connection.execute(f"{first}; PRAGMA user_version=1")
    connection.close()
    store, given = await given_at(path, clock)
    await given.fires("s")
    assert pragma(given, "user_version") == len(migrations())
    assert await store.check() == []
    store.abandon()


async def test_a_file_of_a_newer_version_is_refused_and_left_as_it_is(given: Given, path: Path) -> None:
    sqlite(given).abandon()
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA user_version=4711")
    connection.close()
    with pytest.raises(Misconfigured, match="newer Harken"):
        SqliteStore.at(path, given.clock)
    assert apsw.Connection(str(path)).pragma("user_version") == 4711


async def test_a_refused_file_can_be_opened_once_it_is_right(given: Given, path: Path) -> None:
    version = pragma(given, "user_version")
    sqlite(given).abandon()
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA user_version=4711")
    with pytest.raises(Misconfigured):
        SqliteStore.at(path, given.clock)
    connection.execute(f"PRAGMA user_version={version}")
    connection.close()
    SqliteStore.at(path, given.clock).abandon()


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "fuse.sshfs"])
def test_a_network_file_system_is_refused(tmp_path: Path, kind: str) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/sda / ext4 rw 0 0\nserver:/home /home/ana {kind} rw 0 0\n")
    with pytest.raises(Misconfigured, match="network file system"):
        refuse_network(Path("/home/ana/harken.db"), str(mounts))
    refuse_network(Path("/home/anabel/harken.db"), str(mounts))


def test_a_local_disk_below_a_network_mount_is_fine(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text("server:/home /home nfs4 rw 0 0\n/dev/sdb /home/ana ext4 rw 0 0\n")
    refuse_network(Path("/home/ana/harken.db"), str(mounts))


async def test_with_a_key_the_file_tells_nothing(path: Path, clock: HandClock) -> None:
    store, given = await given_at(path, clock, key=KEY)
    await given.fires("confidential-subject", input=b'{"text":"confidential-text"}')
    await store.close()
    text = b"".join(file.read_bytes() for file in path.parent.iterdir())
    assert b"confidential" not in text
    assert KEY.encode() not in text


async def test_a_sealed_file_opens_with_its_key_only(path: Path, clock: HandClock) -> None:
    store, given = await given_at(path, clock, key=KEY)
    await given.commit(given.entry("s"))
    await store.close()
    with pytest.raises(Misconfigured, match="another key"):
        SqliteStore.at(path, clock, key="wrong")
    with pytest.raises(Misconfigured, match="encrypted"):
        SqliteStore.at(path, clock)
    again = SqliteStore.at(path, clock, key=KEY)
    assert [event.subject for event in (await again.events()).items] == ["s"]
    again.abandon()


@pytest.mark.parametrize("state", [0, 2, 4, 5])
def test_open_runs_are_found_by_their_index(given: Given, state: int) -> None:
    sql = f"EXPLAIN QUERY PLAN SELECT min(due_at) FROM runs WHERE state<6 AND state={state} AND priority=?"
    assert isinstance(given.store, SqliteStore)
    [plan] = [row[3] for row in given.store._database.tx.execute(sql, (0,))]
    assert "USING COVERING INDEX runs_open" in plan


def test_threads_meet_no_type_for_the_first_time() -> None:
    """Two threads that make msgspec look at a struct at once crash the process, so decoders are made at import."""
    home = files("harken.backends.sqlite").iterdir()
    assert [file.name for file in home if file.name.endswith(".py") and ", type=" in file.read_text()] == []


async def test_what_is_inconsistent_is_told_in_words(given: Given, path: Path) -> None:
    await given.fires("a", overlap="queue", slot="k")
    await gathers(given, "b")
    await gathers(given, "c")
    with closing(apsw.Connection(str(path))) as hand:
        hand.execute("DELETE FROM events WHERE id IN (SELECT max(id) FROM events); DELETE FROM slots")
    assert await given.store.check() == [
        "gathered events of open runs that are gone: 1",
        "runs that may run without having their slot: 1",
    ]
