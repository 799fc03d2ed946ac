"""Counts what this replica does and adds it to the activity that all replicas share."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from harken.clock import Clock
from harken.operate.activity_counts import COUNTS, Buckets, add_counts, merge
from harken.store import Store
from harken.store.document_kinds import ACTIVITY, COUNTED

__all__ = ["ActivityLog"]

SAVE_SECONDS = 15.0


class ActivityLog:
    """`totals` are the counters of this process in the order of COUNTS; they only rise."""

    def __init__(self, store: Store, clock: Clock, totals: Callable[[], Sequence[int]]) -> None:
        self._store = store
        self._clock = clock
        self._totals = totals
        self._seen: tuple[int, ...] = (0,) * len(COUNTS)
        self._unsaved: Buckets = {}
        self._saved_at = clock.monotonic()

    def unsaved(self) -> Buckets:
        """What was counted up to now and is not in the store yet."""
        totals = tuple(self._totals())
        added = tuple(now - before for now, before in zip(totals, self._seen, strict=True))
        if any(added):
            add_counts(self._unsaved, self._clock.time(), added)
            self._seen = totals
        return self._unsaved

    async def save(self, *, ending: bool = False) -> None:
        """Count, and from time to time write. If another replica writes at this moment, the next call tries again."""
        unsaved = self.unsaved()
        now = self._clock.monotonic()
        if not unsaved or (now - self._saved_at < SAVE_SECONDS and not ending):
            return
        document = await self._store.get(ACTIVITY, COUNTED)
        stored = msgspec.convert(document.value, Buckets) if document is not None else {}
        merged = merge(stored, unsaved, self._clock.time())
        # what is counted while the store writes belongs to the next time
        self._unsaved, written = {}, unsaved
        expected = document.revision if document is not None else 0
        try:
            done = await self._store.put(ACTIVITY, COUNTED, merged, expect=expected)
        except BaseException:
            self._unsaved = merge(written, self._unsaved, self._clock.time())
            raise
        if done is None:
            self._unsaved = merge(written, self._unsaved, self._clock.time())
        else:
            self._saved_at = now
