"""Puts a backup in the place of the store's file, and keeps what was there."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from harken.errors import NotFound, Refused
from harken.operate.rows import Plain
from harken.private_files import make_private

__all__ = ["restore"]

HEADER = b"SQLite format 3\x00"
BESIDE = ("-wal", "-shm")


def restore(store: Path, backup: Path) -> Plain:
    """Replace `store` by `backup`. Nothing may have it open; a crash leaves the old file or the new one, whole."""
    _check(backup)
    if store.exists() and backup.samefile(store):
        raise Refused(f"{backup} is the store itself", fix="Name a backup")
    coming = store.with_name(store.name + ".restoring")
    make_private(store.absolute().parent)
    _copy(backup, coming)
    kept = _aside(store) if store.exists() else None
    os.replace(coming, store)
    return {"store": str(store), "backup": str(backup), "kept": str(kept) if kept else ""}


def _check(backup: Path) -> None:
    if not backup.is_file():
        raise NotFound(f"there is no file {backup}")
    with backup.open("rb") as file:
        if file.read(len(HEADER)) != HEADER:
            raise Refused(f"{backup} is not a backup of a store", fix="Name a file that `harken store backup` wrote")


def _copy(backup: Path, target: Path) -> None:
    target.unlink(missing_ok=True)
    # private from its first byte on
    with backup.open("rb") as source, open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as copy:
        shutil.copyfileobj(source, copy)
        copy.flush()
        os.fsync(copy.fileno())


def _aside(store: Path) -> Path:
    number = 1
    while (kept := store.with_name(f"{store.name}.before-restore-{number}")).exists():
        number += 1
    # a write-ahead log belongs to its database: it goes along, or the restored one would swallow it
    for suffix in BESIDE:
        beside = store.with_name(store.name + suffix)
        if beside.exists():
            os.replace(beside, kept.with_name(kept.name + suffix))
    os.replace(store, kept)
    return kept
