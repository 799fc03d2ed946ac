"""Refuses to make a new store where one was before: its events, cursors and open runs would be gone without a word."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from harken.errors import Refused

__all__ = ["find_leftovers", "move_aside", "refuse_existing", "refuse_leftovers", "remove_new"]

LOG = ("-wal", "-shm")
TRACES = (*LOG, ".lock", ".run.json")
"""What a store leaves beside its file: while it runs, after a kill, and (the lock) for ever."""


def find_leftovers(path: Path) -> list[str]:
    """The names of what an earlier store left beside its file, without the file."""
    return [path.name + suffix for suffix in TRACES if path.with_name(path.name + suffix).exists()]


def refuse_leftovers(path: Path, traces: Sequence[str]) -> None:
    """Call it where there is no store at the path. Raise Refused if there was one before."""
    fix = (
        "Put the right file back, or restore a backup: harken store restore FILE. "
        f"To begin with an empty store: harken start --new-store (it keeps {path.name}-wal under another name)"
    )
    if path.exists():
        beside = f", beside {_listed(traces)}" if traces else ""
        if not path.stat().st_size:
            raise Refused(f"{path} has 0 bytes{beside}: whatever was in it is gone", fix=fix)
        if traces:
            raise Refused(f"{path} has no tables{beside}: whatever was in it is gone", fix=fix)
    elif traces:
        raise Refused(f"there is no {path}, but an earlier store left {_listed(traces)} there", fix=fix)


def refuse_existing(path: Path) -> None:
    raise Refused(f"{path} has a store already", fix="Start without --new-store, or move that file away first")


def move_aside(path: Path) -> list[Path]:
    """Rename the empty file and the old log, which SQLite would delete or apply to the new store."""
    found = [suffix for suffix in (*LOG, "") if path.with_name(path.name + suffix).exists()]
    number = 1
    while any(_kept(path, number, suffix).exists() for suffix in found):
        number += 1
    for suffix in found:
        os.replace(path.with_name(path.name + suffix), _kept(path, number, suffix))
    return [_kept(path, number, suffix) for suffix in found]


def remove_new(path: Path, traces: Sequence[str]) -> None:
    """The new store could not be made: remove what was made of it, so that the next start can try again."""
    for suffix in ("", *LOG, ".lock"):
        if path.name + suffix not in traces:
            path.with_name(path.name + suffix).unlink(missing_ok=True)


def _kept(path: Path, number: int, suffix: str) -> Path:
    return path.with_name(f"{path.name}.before-new-store-{number}{suffix}")


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
