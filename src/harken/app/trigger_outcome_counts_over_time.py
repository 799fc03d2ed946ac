"""Counts what this replica commits for each trigger and adds it to the numbers that all replicas share."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from harken.clock import Clock
from harken.operate.trigger_activity_counts import Counts, add_verdicts, document_of, merge_counts, read_counts
from harken.store import Commit, Committed, Store
from harken.store.document_kinds import TRIGGER_ACTIVITY

__all__ = ["TriggerActivityLog"]

SAVE_SECONDS = 60.0


class TriggerActivityLog:
    """What is not saved when the process is killed is missing in the picture, and nowhere else."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._unsaved: Counts = {}
        self._saved_at = clock.monotonic()

    def count(self, commit: Commit, committed: Committed, names: Mapping[str, str]) -> None:
        """Add what a commit decided; events that are decided again were counted when they came."""
        now = self._clock.time()
        for entry, verdicts in zip(commit.entries, committed.verdicts, strict=True):
            if not entry.again:
                add_verdicts(self._unsaved, verdicts, names, now)

    def unsaved(self) -> Counts:
        return self._unsaved

    async def save(self, *, ending: bool = False) -> None:
        """From time to time, write what was counted. What another replica writes at the same moment waits a round."""
        now = self._clock.monotonic()
        if not self._unsaved or (now - self._saved_at < SAVE_SECONDS and not ending):
            return
        self._saved_at = now
        parts: dict[str, Counts] = {}
        for name, counts in self._unsaved.items():
            parts.setdefault(document_of(name), {})[name] = counts
        # what is counted while the store writes belongs to the next time
        self._unsaved = {}
        try:
            for document in sorted(parts):
                if await self._add(document, parts[document]):
                    del parts[document]
        finally:
            for part in parts.values():
                self._unsaved = merge_counts(part, self._unsaved, self._clock.time())

    async def _add(self, document: str, part: Counts) -> bool:
        """Whether nobody else changed the document meanwhile."""
        found = await self._store.get(TRIGGER_ACTIVITY, document)
        merged = merge_counts(read_counts(found), part, self._clock.time())
        expected = found.revision if found is not None else 0
        value = msgspec.to_builtins(merged)
        return await self._store.put(TRIGGER_ACTIVITY, document, value, expect=expected) is not None
