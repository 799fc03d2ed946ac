"""The space of the file: unused pages are given back to the disk a few at a time, or all at once while it is idle."""

from __future__ import annotations

import os
from pathlib import Path

from harken.backends.sqlite.connection import connect, lock_file
from harken.backends.sqlite.transaction_with_row_cache import Transaction
from harken.store import Space

__all__ = ["compact", "shrink", "space"]

SLICE_SECONDS = 0.005
BATCH, BATCHES = 20, 25
"""Pages that are given back between two looks at the clock, and how many batches a transaction may have."""

KEPT_PAGES = 256
"""So many unused pages are kept in any case, or a tenth of the file: the next rows need them again."""

INCREMENTAL = 2
"""The mode of `auto_vacuum` in which pages can be given back a few at a time."""

COMPACT = (
    "It gives no space back, because it was made without auto_vacuum=INCREMENTAL. Once, with Harken stopped: "
    "harken store compact"
)


def space(tx: Transaction) -> Space:
    pages, free, size = (tx.connection.pragma(name) for name in ("page_count", "freelist_count", "page_size"))
    advice = "" if _shrinks(tx) else COMPACT
    return Space(bytes=pages * size, unused=free * size, advice=advice)


def shrink(tx: Transaction) -> int:
    """Give unused pages back for a few milliseconds. Return how many bytes; moving the log makes the file shorter."""
    if not _shrinks(tx):
        return 0
    pages, free = tx.connection.pragma("page_count"), tx.connection.pragma("freelist_count")
    spare = free - max(KEPT_PAGES, pages // 10)
    until, given = tx.clock.monotonic() + SLICE_SECONDS, 0
    for _ in range(BATCHES):
        if given >= spare or (given and tx.clock.monotonic() >= until):
            break
        # it gives a page back with each step, so step to the end
        tx.execute(f"PRAGMA incremental_vacuum({min(BATCH, spare - given)})").fetchall()
        given += BATCH
    return int(min(given, max(0, spare)) * tx.connection.pragma("page_size"))


def _shrinks(tx: Transaction) -> bool:
    return bool(tx.connection.pragma("auto_vacuum") == INCREMENTAL)


def compact(path: Path) -> tuple[int, int]:
    """Write the file anew without unused pages; from then on it gives them back by itself.

    Return its size before and after. It needs as much free disk as the file has rows; a crash leaves the file as it
    was. Raise Refused while another process writes it.
    """
    held = lock_file(path)
    try:
        before = os.stat(path).st_size
        connection = connect(path)
        try:
            connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            connection.close()
        return before, os.stat(path).st_size
    finally:
        os.close(held)
