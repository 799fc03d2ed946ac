"""Copy a store into an empty one, and restore a backup."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Protocol

from harken.clock import Clock
from harken.errors import NotFound, Refused
from harken.operate.output_rows import Plain
from harken.private_files import make_private
from harken.store.transfer_protocol_and_exclusive_access import Counts, StoreTransfer
from harken.store.transfer_rows import KINDS, Chunk

__all__ = ["CopyProgress", "copy_store", "restore"]


STAY_SECONDS = 5.0

LOOK_SECONDS = 2.0


class CopyProgress(Protocol):
    """Receives the progress of a copy."""

    def waits(self, writers: Sequence[str]) -> None:
        """The copy waits, because these processes still use the store."""
        ...

    def copied(self, counts: Counts) -> None:
        """So many rows of each kind have been copied."""
        ...


async def copy_store(
    source: StoreTransfer,
    target: StoreTransfer,
    clock: Clock,
    watching: CopyProgress,
    *,
    live: bool = False,
    force: bool = False,
) -> Plain:
    """Copy all of `source`. With `live`, wait until no process uses it, and mark it as moved: it refuses to start then.

    Raise Refused when somebody uses it, when `target` is not empty, or when the copy is not complete."""
    began = clock.monotonic()
    await _alone(source, clock, watching, wait=live)
    copying = _Copying(source, clock, watching.copied)
    await target.take(copying.rows(), source.place, force=force)
    await _verify(target, copying.counts)
    if live:
        await source.mark(f"this store moved to {target.place}", MOVED)
    return {
        "from": source.place,
        "to": target.place,
        "moved": live,
        "seconds": round(clock.monotonic() - began, 1),
        "counts": dict(copying.counts),
    }


MOVED = "Name that one as the store. To use this one all the same: harken store reopen"


async def _alone(source: StoreTransfer, clock: Clock, watching: CopyProgress, *, wait: bool) -> None:
    while writers := await source.writers():
        if not wait:
            fix = "Stop what uses it and copy then, or wait for that with --live"
            raise Refused(f"{source.place} is in use: {', '.join(writers)}", fix=fix)
        watching.waits(writers)
        await clock.sleep(LOOK_SECONDS)


class _Copying:
    """Iterates over the rows of a store and counts them, renewing the exclusive lock every few seconds."""

    def __init__(self, source: StoreTransfer, clock: Clock, told: Callable[[Counts], None]) -> None:
        self.counts: Counter[str] = Counter(dict.fromkeys(KINDS.values(), 0))
        self._source = source
        self._clock = clock
        self._told = told

    async def rows(self) -> AsyncIterator[Chunk]:
        stayed = self._clock.monotonic()
        async for chunk in self._source.rows():
            yield chunk
            kind = KINDS.get(type(chunk[0]))
            if kind is not None:
                self.counts[kind] += len(chunk)
                self._told(self.counts)
            if self._clock.monotonic() - stayed >= STAY_SECONDS:
                await self._source.stay()
                stayed = self._clock.monotonic()
        await self._source.stay()


async def _verify(target: StoreTransfer, copied: Counts) -> None:
    """Compare row counts. On a difference mark the copy as unusable and raise Refused."""
    found = await target.counts()
    missing = [f"{found[kind]} of {copied[kind]} {kind}" for kind in copied if found[kind] != copied[kind]]
    if missing:
        message = f"the copy in {target.place} is not complete: it has {', '.join(missing)}"
        fix = "Copy into another empty store, and report this"
        await target.mark(message, fix)
        raise Refused(message, fix=fix)


HEADER = b"SQLite format 3\x00"

BESIDE = ("-wal", "-shm")


def restore(store: Path, backup: Path) -> Plain:
    """Replace `store` by `backup`; no process may have it open. A crash leaves either the old file or the new one."""
    _check(backup)
    if store.exists() and backup.samefile(store):
        raise Refused(f"{backup} is the store itself", fix="Name a backup")
    coming = store.with_name(store.name + ".restoring")
    make_private(store.absolute().parent)
    _copy(backup, coming)
    kept = _aside(store)
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
    # created with mode 0600 before anything is written
    with backup.open("rb") as source, open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as copy:
        shutil.copyfileobj(source, copy)
        copy.flush()
        os.fsync(copy.fileno())


def _aside(store: Path) -> Path | None:
    """Move what is there away, a log without its database too: SQLite would apply it to the restored one."""
    found = [suffix for suffix in (*BESIDE, "") if store.with_name(store.name + suffix).exists()]
    if not found:
        return None
    number = 1
    while any(_kept(store, number, suffix).exists() for suffix in (*BESIDE, "")):
        number += 1
    for suffix in found:
        os.replace(store.with_name(store.name + suffix), _kept(store, number, suffix))
    # of a file that was removed only its log is left, which may have what the file had not
    return _kept(store, number, "" if "" in found else found[0])


def _kept(store: Path, number: int, suffix: str) -> Path:
    return store.with_name(f"{store.name}.before-restore-{number}{suffix}")
