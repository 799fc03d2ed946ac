"""What a listing of many objects takes in memory, and that their order at the service does not matter."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from harken.kit.file_manifest import Folder, FolderBuilder, as_folder
from harken.kit.object_listing import BucketListing, BucketQuery, ListedObject, ListedPage
from harken.source import Batch, Host
from harken.testing import START, HandClock

KEYS = 40_000
PAGE = 1_000
MOST_BYTES = 200


def listed(number: int) -> ListedObject:
    return ListedObject(b"in/order-%08d.json" % number, number * 7 % 90_001, START.timestamp() + number, b"v" * 18)


async def list_page(token: str) -> ListedPage:
    begin = int(token or 0)
    objects = [listed(number) for number in range(begin, begin + PAGE)]
    return ListedPage(objects, str(begin + PAGE) if begin + PAGE < KEYS else "")


async def whole(source: BucketListing, cursor: Any) -> Batch:
    """A listing to its end: on a busy machine it takes several polls."""
    while (batch := await source.poll(cursor, START)).more:
        cursor = batch.cursor
    return batch


async def test_a_quiet_listing_of_a_flat_bucket_takes_less_than_200_bytes_a_key() -> None:
    nothing: Any = None
    host = Host(http=nothing, clock=HandClock(), random=Random(1))
    source = BucketListing(BucketQuery(bucket="orders"), host, list_page, lambda version: {}, kind="s3", page=KEYS)
    cursor = (await whole(source, None)).cursor
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        batch = await whole(source, cursor)
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert batch.unchanged and not batch.events
    print(f"{peak / KEYS:.0f} bytes a key at the peak")  # noqa: T201
    assert peak / KEYS < MOST_BYTES


def build(entries: Sequence[tuple[bytes, bytes]]) -> Folder:
    builder = FolderBuilder()
    for name, stamp in entries:
        builder.add(name, stamp)
    return builder.build()


@pytest.mark.parametrize(
    "entries",
    [
        [(b"a", b"1"), (b"b", b"2"), (b"c", b"3")],
        [(b"b", b"2"), (b"a", b"1"), (b"c", b"3")],
        [(b"a", b"1"), (b"b", b"2"), (b"b", b"3")],
        [(b"b", b"1"), (b"a", b"2"), (b"b", b"3")],
        [(b"", b"1"), (b"a", b"2")],
        [(b"", b"1")],
    ],
    ids=["in order", "out of order", "twice", "twice and out of order", "an empty name first", "an empty name"],
)
def test_a_folder_is_the_same_however_its_entries_come(entries: list[tuple[bytes, bytes]]) -> None:
    assert build(entries) == as_folder(dict(entries))
