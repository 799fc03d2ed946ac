"""Opening the file: private, locked, migrated, and readable only with its key."""

from __future__ import annotations

import fcntl
import os
import secrets
from importlib.resources import files
from pathlib import Path

import apsw

from harken.errors import Misconfigured, Refused
from harken.stores.seal import AesSeal, PlainSeal, Seal, unwrap, wrap
from harken.stores.sqlite.encrypt import encrypt

__all__ = ["connect", "lock", "migrate", "seal_for"]

NETWORK_FILESYSTEMS = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs", "afs", "ceph", "glusterfs"}


def lock(path: Path) -> int:
    """Be the only writer of this file for as long as the process lives; kill -9 lets go too."""
    refuse_network(path)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        fix = "Stop it first (harken controller stop), or use another store"
        raise Refused(f"another Harken process writes {path}", fix=fix) from None
    return handle


def refuse_network(path: Path, mounts: str = "/proc/mounts") -> None:
    """SQLite's locks do not hold on network file systems."""
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
    connection.execute("PRAGMA wal_autocheckpoint=8000")
    connection.execute("PRAGMA cache_size=-16000")
    return connection


def migrate(connection: apsw.Connection) -> None:
    """Bring the schema up to date, one numbered step at a time, each in a transaction."""
    steps = sorted(
        step.name for step in files(__package__).joinpath("migrations").iterdir() if step.name.endswith(".sql")
    )
    version: int = connection.pragma("user_version")
    if version > len(steps):
        fix = "Use that version, or restore a backup made by this one"
        raise Misconfigured(f"the store was written by a newer Harken (schema {version}, ours {len(steps)})", fix=fix)
    for number, step in enumerate(steps[version:], start=version + 1):
        script = files(__package__).joinpath("migrations", step).read_text()
        connection.execute(f"BEGIN IMMEDIATE; {script}; PRAGMA user_version={number}; COMMIT;")


def seal_for(connection: apsw.Connection, operator_key: str, *, create: bool = True) -> Seal:
    """The seal that this file needs. Raise Misconfigured when the key is missing or is not the right one."""
    row = connection.execute("SELECT value FROM documents WHERE kind='seal' AND name='keys'").fetchone()
    if row is not None:
        if not operator_key:
            fix = "Set HARKEN_ENCRYPTION_KEY to its key"
            raise Misconfigured("the store is encrypted", fix=fix)
        return AesSeal(*unwrap(operator_key, bytes(row[0]).decode()))
    if not operator_key or not create:
        return PlainSeal()
    data_key, identity_key = secrets.token_bytes(32), secrets.token_bytes(32)
    seal = AesSeal(data_key, identity_key)
    encrypt(connection, seal, wrap(operator_key, data_key, identity_key))
    return seal
