"""Opens the SQLite file: lock, migrations, encryption; then one writer, and readers that do not wait for it."""

from __future__ import annotations

import asyncio
import fcntl
import os
import secrets
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

import apsw
import structlog

from harken.backends.encryption import AesSeal, PlainSeal, Seal, rewrap, unwrap, wrap
from harken.backends.sqlite import leftover_store_files
from harken.backends.sqlite.damage import Damage, find_damage, forget_pages
from harken.backends.sqlite.encrypt_file import encrypt, wipe
from harken.backends.sqlite.errors import DAMAGED, reading, translate
from harken.backends.sqlite.replaced_file_check import FileGuard, NoFileGuard
from harken.backends.sqlite.transaction_with_row_cache import Transaction
from harken.backends.sqlite.wal_checkpoints import LOG_PAGES, Checkpoints
from harken.backends.sqlite.writer import Writer, save_log
from harken.clock import Clock
from harken.errors import Misconfigured, Refused
from harken.private_files import make_private
from harken.store.document_kinds import KEYS, SEAL

__all__ = [
    "WRAPPED_KEYS",
    "Database",
    "DatabaseUser",
    "connect",
    "existing_seal",
    "lock_file",
    "migrate",
    "refuse_other_schema",
    "rekey",
    "seal_for",
]

log = structlog.get_logger("harken.store")

T = TypeVar("T")

READ_SECONDS = 10.0
"""A query that takes longer is interrupted."""

NETWORK_FILESYSTEMS = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs", "afs", "ceph", "glusterfs"}

MEMORY = ":memory:"

WRAPPED_KEYS = f"SELECT value FROM documents WHERE kind='{SEAL}' AND name='{KEYS}'"


class Database:
    """The open file: one connection that writes and some that read.

    `inline`: transactions run in the caller's thread, for virtual time. `loop_reader` is for look-ups in the event
    loop's thread that are too short to be worth a change of threads.
    """

    def __init__(
        self,
        path: Path,
        tx: Transaction,
        clock: Clock,
        writer: Writer | None = None,
        guard: FileGuard | None = None,
        damage: Damage | None = None,
        checkpoints: Checkpoints | None = None,
        lock: int | None = None,
    ) -> None:
        self.path = path
        self.tx = tx
        self.writer = writer
        self._guard = guard
        self._damage = damage
        self._checkpoints = checkpoints
        self.inline = writer is None or writer.inline
        self._clock = clock
        self._lock = lock
        self.loop_reader = tx if self.inline else self._reader()
        self._readers = ThreadPoolExecutor(max_workers=2, thread_name_prefix="harken-read")
        # one is open from the beginning: when the files have lost their names, it still reads them
        self._idle_readers = [] if self.inline else [self._reader()]

    @classmethod
    def for_reading(cls, path: Path, clock: Clock, key: str) -> Database:
        """Raise Misconfigured when there is no file, or for a wrong key."""
        if not path.exists():
            raise Misconfigured(f"there is no store at {path}", fix="Start once: harken start")
        seal = existing_seal(path, key, alone=False) or PlainSeal()
        connection = connect(path, readonly=True)
        refuse_other_schema(connection)
        return cls(path, Transaction(connection, seal, clock), clock)

    @classmethod
    def for_writing(cls, path: Path, clock: Clock, key: str, *, inline: bool, limit: int, new: bool) -> Database:
        """Open or create the file. Raise Refused when another process writes it, Misconfigured for a wrong key.

        Raise Refused too where an earlier store left something, but is gone itself, unless `new`: what it left is moved
        aside then.
        """
        missing, traces = not path.exists(), leftover_store_files.find_leftovers(path)
        lock = lock_file(path)
        try:
            if is_blank(path):
                leftover_store_files.move_aside(path) if new else leftover_store_files.refuse_leftovers(path, traces)
            elif new:
                leftover_store_files.refuse_existing(path)
            tx = _open_for_writing(path, clock, key)
            guard = FileGuard(path, clock)
            checkpoints = None if inline else Checkpoints(tx.connection, connect(path))
        except BaseException:
            if missing:
                leftover_store_files.remove_new(path, traces)
            os.close(lock)
            raise
        damage = Damage(lambda: is_whole(path), clock, inline=inline)
        writer = Writer(tx, guard, damage, checkpoints, inline=inline, limit=limit)
        return cls(path, tx, clock, writer, guard, damage, checkpoints, lock)

    @classmethod
    def in_memory(cls, clock: Clock, image: bytes) -> Database:
        """Open a database in memory, inline, from an `image`; without one it is new."""
        connection = apsw.Connection(MEMORY)
        connection.deserialize("main", image or _new_image())
        tx = Transaction(connection, PlainSeal(), clock)
        guard, damage = NoFileGuard(), Damage(lambda: True, clock, inline=True)
        writer = Writer(tx, guard, damage, None, inline=True)
        return cls(Path(MEMORY), tx, clock, writer, guard, damage)

    @property
    def trouble(self) -> str:
        if self._guard is not None and (lost := self._guard.look_if_due()):
            return str(lost.error())
        if self._damage is not None and self._damage.check_if_due():
            return str(translate(apsw.CorruptError()))
        return self.writer.trouble if self.writer else ""

    @property
    def queued(self) -> int:
        return self.writer.queued if self.writer else 0

    def write(self, work: Callable[..., T], *args: Any, savepoint: bool = True) -> Awaitable[T]:
        """Run the function in a transaction; what is returned is there when it is on disk."""
        if self.writer is None:
            raise Misconfigured("the store is open for reading only", fix="Start Harken: harken start")
        return self.writer.do(work, *args, savepoint=savepoint)

    async def read(self, query: Callable[..., T], *args: Any) -> T:
        """Run a query on its own connection, while others write."""
        if self.inline:
            with reading():
                return query(self.tx, *args)
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._query, query, args)

    def _query(self, query: Callable[..., T], args: tuple[Any, ...]) -> T:
        with reading():
            tx = self._idle_readers.pop() if self._idle_readers else self._reader()
        deadline = self._clock.monotonic() + READ_SECONDS
        tx.connection.set_progress_handler(lambda: self._clock.monotonic() > deadline, 10_000)
        try:
            tx.clear_cache()
            with reading():
                return self._note_damage(query, tx, args)
        except apsw.InterruptError:
            raise Misconfigured(
                f"the query took longer than {READ_SECONDS:.0f} s", fix="Ask for less at a time"
            ) from None
        finally:
            self._idle_readers.append(tx)

    def _note_damage(self, query: Callable[..., T], tx: Transaction, args: tuple[Any, ...]) -> T:
        try:
            return query(tx, *args)
        except DAMAGED:
            if self._damage is not None:
                self._damage.note()
                forget_pages(tx.connection)
            raise

    def _reader(self) -> Transaction:
        if self._guard is not None and (lost := self._guard.look()):
            raise lost.error()
        connection = connect(self.path, readonly=True)
        # SQLite opens the log with the first read
        connection.execute("SELECT 1 FROM sqlite_schema").fetchone()
        tx = Transaction(connection, self.tx.seal, self._clock, for_reading=True)
        tx.priorities = self.tx.priorities
        tx.over_budget = self.tx.over_budget
        return tx

    async def close(self) -> None:
        if self.writer is not None and not self.inline:
            await self.writer.stop()
        self.abandon()

    def abandon(self) -> None:
        """Close the file without finishing queued writes, as a process that is killed does."""
        self._readers.shutdown(wait=not self.inline)
        if self._checkpoints is not None:
            self._checkpoints.stop()
        # a second call finds the files closed, and perhaps gone
        if self._guard is not None and self._lock is not None and (lost := self._guard.look()):
            self._keep_others_log(save=lost.only_log)
        for connection in self._connections():
            connection.close(True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _keep_others_log(self, *, save: bool) -> None:
        """Prepare to close: SQLite would delete the log at our path, which may belong to another database by now."""
        if save:
            save_log(self.tx.connection)
        for connection in self._connections():
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)

    def _connections(self) -> list[apsw.Connection]:
        """All of them; the one that writes is the last."""
        moving = [self._checkpoints.connection] if self._checkpoints is not None else []
        return moving + [tx.connection for tx in (*self._idle_readers, self.loop_reader, self.tx)]


def _open_for_writing(path: Path, clock: Clock, key: str) -> Transaction:
    # check the key before anything is written
    known = existing_seal(path, key, alone=True)
    connection = connect(path)
    try:
        migrate(connection)
        wipe(connection)
        return Transaction(connection, known or seal_for(connection, key), clock)
    except BaseException:
        connection.close(True)
        raise


@cache
def _new_image() -> bytes:
    """A database with all tables and no rows, made once: that takes longer than a whole test case."""
    with closing(apsw.Connection(MEMORY)) as connection:
        migrate(connection)
        return connection.serialize("main")


class DatabaseUser:
    """Each part of the store inherits this: it runs the SQL functions of its file on the one open database."""

    def __init__(self, database: Database) -> None:
        self._database = database


def lock_file(path: Path) -> int:
    """Lock the file against other writers. The lock ends with the process, however it ends."""
    refuse_network(path)
    make_private(path.absolute().parent)
    handle = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        fix = "Stop it first (harken controller stop), or use another store"
        raise Refused(f"another Harken process writes {path}", fix=fix) from None
    return handle


def refuse_network(path: Path, mounts: str = "/proc/mounts") -> None:
    """Raise Misconfigured on a network file system: SQLite's locks are not reliable there."""
    try:
        lines = Path(mounts).read_text().splitlines()
    except OSError:
        return
    target = str(path.absolute())
    mounted = [line.split()[1:3] for line in lines if len(line.split()) >= 3]
    under = [(len(at), kind) for at, kind in mounted if target == at or target.startswith(at.rstrip("/") + "/")]
    if under and max(under)[1] in NETWORK_FILESYSTEMS:
        fix = "Put the store on a local disk, or use PostgreSQL"
        raise Misconfigured(f"{path} is on a network file system ({max(under)[1]}), where SQLite is not safe", fix=fix)


def connect(path: Path, *, readonly: bool = False) -> apsw.Connection:
    flags = apsw.SQLITE_OPEN_READONLY if readonly else apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
    if not readonly and not path.exists():
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    connection = apsw.Connection(str(path), flags=flags)
    connection.set_busy_timeout(5000)
    if readonly:
        connection.execute("PRAGMA query_only=ON")
        return connection
    os.chmod(path, 0o600)
    if connection.execute("PRAGMA page_count").fetchone() == (0,):
        connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA fullfsync=ON")
    connection.execute(f"PRAGMA wal_autocheckpoint={LOG_PAGES}")
    connection.execute("PRAGMA cache_size=-16000")
    return connection


def _steps() -> list[str]:
    found = files(__package__).joinpath("migrations").iterdir()
    return sorted(step.name for step in found if step.name.endswith(".sql"))


def refuse_other_schema(connection: apsw.Connection) -> None:
    """Raise Misconfigured for an old schema, which a read-only connection cannot migrate, and for a newer one."""
    version: int = connection.pragma("user_version")
    if version > len(_steps()):
        raise _newer(version, len(_steps()))
    if 0 < version < len(_steps()):
        raise Misconfigured("the store was written by an older Harken", fix="Start once: harken start")


def _newer(version: int, ours: int) -> Misconfigured:
    fix = "Use that version, or restore a backup made by this one"
    return Misconfigured(f"the store was written by a newer Harken (schema {version}, ours {ours})", fix=fix)


def migrate(connection: apsw.Connection) -> None:
    """Bring the schema up to date, one numbered step at a time, each in a transaction."""
    steps = _steps()
    version: int = connection.pragma("user_version")
    if version > len(steps):
        raise _newer(version, len(steps))
    for number, step in enumerate(steps[version:], start=version + 1):
        if version:
            # an index over millions of rows takes a while
            log.info("store.migrating", schema=number, newest=len(steps))
        script = files(__package__).joinpath("migrations", step).read_text()
        connection.execute(f"BEGIN IMMEDIATE; {script}; PRAGMA user_version={number}; COMMIT;")
    if not version:
        # from now on a file without tables is one that lost its log
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def existing_seal(path: Path, operator_key: str, *, alone: bool) -> Seal | None:
    """The seal of an encrypted file, None for a plain or missing one. Writes nothing.

    `alone`: we hold the lock. Raise Misconfigured when the key is missing or wrong.
    """
    wrapped = _wrapped(path, alone=alone)
    if not wrapped:
        return None
    if not operator_key:
        raise Misconfigured(f"the store {path} is encrypted", fix="Set HARKEN_ENCRYPTION_KEY to its key")
    return AesSeal(*unwrap(operator_key, wrapped))


def _wrapped(path: Path, *, alone: bool) -> str:
    """The file's wrapped keys, empty for a file that is not encrypted."""
    if not path.exists() or not path.stat().st_size:
        return ""
    connection = _peek(path, alone=alone)
    try:
        # the process may have died before the first migration
        known = connection.execute("SELECT 1 FROM sqlite_schema WHERE name='documents'").fetchone()
        row = connection.execute(WRAPPED_KEYS).fetchone() if known else None
    finally:
        connection.close()
    return bytes(row[0]).decode() if row else ""


def is_whole(path: Path) -> bool:
    """Whether SQLite finds no damage in the whole file."""
    with closing(connect(path, readonly=True)) as connection:
        return not find_damage(connection)


def is_blank(path: Path) -> bool:
    """Whether there is no store in the file: it is missing, empty, or has no tables. We hold the lock."""
    if not path.exists() or not path.stat().st_size:
        return True
    with closing(_peek(path, alone=True)) as connection:
        return connection.execute("SELECT 1 FROM sqlite_schema").fetchone() is None


def _peek(path: Path, *, alone: bool) -> apsw.Connection:
    """A connection that reads the file and writes nothing."""
    log = path.with_name(path.name + "-wal")
    if alone and not (log.exists() and log.stat().st_size):
        # without writers and log, SQLite can read the file without creating its -wal and -shm files
        address = f"{path.absolute().as_uri()}?immutable=1"
        return apsw.Connection(address, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    return connect(path, readonly=True)


def seal_for(connection: apsw.Connection, operator_key: str) -> Seal:
    """The seal of a plain file. With a key, its contents are encrypted first."""
    if not operator_key:
        return PlainSeal()
    data_key, identity_key = secrets.token_bytes(32), secrets.token_bytes(32)
    seal = AesSeal(data_key, identity_key)
    encrypt(connection, seal, wrap(operator_key, data_key, identity_key))
    return seal


def rekey(path: Path, old: str, new: str) -> None:
    """Wrap the file's two keys with another operator's key, and remove the old wrapping from the file.

    It is one row: after a crash either the old key opens the file or the new one. Raise Refused while another process
    writes the file, or when it is not encrypted.
    """
    held = lock_file(path)
    try:
        wrapped = _wrapped(path, alone=True)
        if not wrapped:
            fix = "Set HARKEN_ENCRYPTION_KEY and start: that encrypts what is there"
            raise Refused(f"the store {path} is not encrypted", fix=fix)
        again = rewrap(wrapped, old, new)
        connection = connect(path)
        try:
            connection.execute("PRAGMA secure_delete=ON")
            connection.execute("UPDATE documents SET value=? WHERE kind=? AND name=?", (again.encode(), SEAL, KEYS))
            # the log still has pages with the old wrapping
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            connection.close()
    finally:
        os.close(held)
