"""Reads that found nothing are written together, and never after something newer of their feed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from harken.circuit_breaker import Health
from harken.errors import LeaseLost, StoreBusy
from harken.ingest.batched_idle_poll_writes import AT_ONCE, IdleReads
from harken.store import IdleRead
from harken.testing import START

OLD = 4


class RecordingStore:
    """Notes what is written; when `full` it refuses. `meanwhile` is called during the first write.

    The leases of the feeds in `lost` belong to another replica."""

    def __init__(self) -> None:
        self.written: list[Sequence[IdleRead]] = []
        self.full = False
        self.lost: set[str] = set()
        self.meanwhile: Any = None

    async def record_idle(self, reads: Sequence[IdleRead]) -> Sequence[str]:
        if self.full:
            raise StoreBusy("the disk is full")
        if self.lost & {one.feed for one in reads}:
            raise LeaseLost("another replica reads it")
        self.written.append(reads)
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            await meanwhile()
        return [one.feed for one in reads if one.revision == OLD]


def idle_read(feed: str, cursor: int = 0, health: Health | None = None) -> IdleRead:
    at: Any = {"first_at": START, "last_at": START, "next_due": START}
    return IdleRead(feed=feed, token=1, count=1, result="nothing_new", seen=0, cursor=cursor, health=health, **at)


async def test_many_are_written_a_few_at_a_time() -> None:
    store: Any = RecordingStore()
    reads = IdleReads(store)
    for number in range(AT_ONCE + 3):
        reads.add(idle_read(f"f{number}"))
    await reads.flush()
    assert ([len(batch) for batch in store.written], len(reads)) == ([AT_ONCE, 3], 0)


async def test_what_a_feed_writes_in_between_is_not_overtaken_by_what_waited() -> None:
    store: Any = RecordingStore()
    reads = IdleReads(store)
    for number in range(AT_ONCE + 1):
        reads.add(idle_read(f"f{number}"))
    last = f"f{AT_ONCE}"
    store.meanwhile = lambda: reads.flush(last)
    await reads.flush()
    assert [batch[0].feed for batch in store.written] == ["f0", last]


async def test_who_was_changed_meanwhile_is_told_and_reads_of_before_are_not_mixed_with_those_after() -> None:
    store: Any = RecordingStore()
    stale: list[str] = []
    reads = IdleReads(store, on_stale=stale.append)
    before = msgspec.structs.replace(idle_read("a", cursor=1), revision=OLD)
    reads.add(before)
    reads.add(msgspec.structs.replace(idle_read("b", cursor=1), revision=OLD))
    reads.add(msgspec.structs.replace(idle_read("b", cursor=2), revision=OLD + 1))
    await reads.flush()
    assert stale == ["a"]
    assert [(one.feed, one.cursor, one.count) for one in store.written[0]] == [("a", 1, 1), ("b", 2, 1)]


async def test_what_could_not_be_written_waits_for_the_next_time() -> None:
    store: Any = RecordingStore()
    reads = IdleReads(store)
    recovered = Health(since=5.0)
    reads.add(idle_read("f", cursor=1, health=recovered))
    store.full = True
    with pytest.raises(StoreBusy):
        await reads.flush()
    reads.add(idle_read("f", cursor=2))
    store.full = False
    await reads.flush()
    [[written]] = store.written
    assert (written.count, written.cursor, written.health) == (2, 2, recovered)


async def test_a_lost_lease_is_told_and_costs_only_the_reads_of_its_feed() -> None:
    store: Any = RecordingStore()
    reads = IdleReads(store)
    for name in "abc":
        reads.add(idle_read(name))
    store.lost = {"b"}
    with pytest.raises(LeaseLost):
        await reads.flush()
    assert [[one.feed for one in batch] for batch in store.written] == [["a"], ["c"]]


async def test_now_and_then_all_are_written_and_what_could_not_be_is_kept() -> None:
    store: Any = RecordingStore()
    reads = IdleReads(store)
    reads.add(idle_read("a"))
    store.full = True
    await reads.write()
    assert (store.written, len(reads)) == ([], 1)
    store.full = False
    await reads.write()
    assert ([[one.feed for one in batch] for batch in store.written], len(reads)) == ([["a"]], 0)
