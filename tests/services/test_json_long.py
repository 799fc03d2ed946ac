"""Many items in one answer: nothing else is stalled by them, and memory stays bounded."""

from __future__ import annotations

import asyncio
import time
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from harken.app.redacting_services import RedactingSource
from harken.backends.sqlite import SqliteStore
from harken.clock import SystemClock
from harken.errors import RetryLater
from harken.feed import Feed, Trigger
from harken.http import Client, HttpSettings
from harken.ingest.intake import Intake
from harken.schedule import Every
from harken.services.json import JsonListing, Query
from harken.source import Host
from harken.store import Definitions
from harken.testing import START, HandClock
from harken.testing.fakes import Answer, Listing
from tests.cpu_time import slowness
from tests.ingest.process import FLOWS, NoExecutor

MANY = 150_000
LONGEST_TURN = 0.1


def listed(count: int) -> bytes:
    return msgspec.json.encode({"items": [{"id": number} for number in range(count)]})


def source(host: Host, listing: Listing, **query: Any) -> JsonListing:
    return JsonListing(Query.model_validate({"url": f"{listing.url}/all", "items_path": "items", **query}), host)


class Turns:
    """The longest time that the loop worked on before a task that wants to go on could do so.

    It is counted in processor time of the loop's thread, so that a busy machine makes no difference."""

    longest = 0.0

    async def take(self) -> None:
        last = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            self.longest, last = max(self.longest, now - last), now


@asynccontextmanager
async def turns() -> AsyncIterator[Turns]:
    taken = Turns()
    taking = asyncio.create_task(taken.take())
    await asyncio.sleep(0)
    yield taken
    # its last turn ends what was done in the block
    await asyncio.sleep(0)
    taking.cancel()


@pytest.mark.parametrize(
    "query", [{}, {"paging": {"cursor": {"path": "next"}}}, {"order": "newest_first", "time_field": "at"}], ids=str
)
async def test_many_items_in_one_answer_stall_nothing(host: Host, listing: Listing, query: Any) -> None:
    items = [{"id": number, "at": 1_800_000_000 - number} for number in range(MANY)]
    listing.answers = [Answer(body=msgspec.json.encode({"items": items}))]
    reading = source(host, listing, **query)
    async with turns() as taken:
        batch = await RedactingSource(reading, lambda: {"s3cr3t-t0ken"}, "json", "x").poll(None, START)
    assert len(batch.events) == MANY
    assert taken.longest < LONGEST_TURN * slowness()
    ids = [str(number) for number in range(MANY)]
    expected = ids[::-1] if "order" in query else ids
    assert [event.subject for event in batch.events[:300]] == expected[:300]
    assert [event.subject for event in batch.events[-3:]] == expected[-3:]


async def test_many_items_in_one_answer_take_little_more_memory_than_the_answer(host: Host, listing: Listing) -> None:
    count = MANY // 3 * 2
    body = listed(count)
    listing.answers = [Answer(body=body)]
    reading = source(host, listing)
    tracemalloc.start()
    try:
        batch = await reading.poll(None, START)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(batch.events) == count
    # the answer, the chunks that it came in, and what is left of it without its items
    assert peak < 4 * len(body)


async def test_a_page_of_many_items_is_committed_in_parts_that_stall_nothing(listing: Listing, tmp_path: Path) -> None:
    clock = SystemClock()
    client = Client(clock)
    host = Host(http=client, clock=clock, random=Random(1), allow_private=True)
    store = SqliteStore.at(tmp_path / "harken.db", clock)
    reading: Any = source(host, listing)
    engine: Any = (store, clock, Random(1), NoExecutor(), lambda feed: reading)
    intake = Intake(*engine, holder="tests")
    feed = Feed(name="inbox", kind="json", integration="", schedule=Every(seconds=3600))
    trigger = Trigger(name="t", feed="inbox", workflow="w", workflow_rev="r")
    listing.answers = [Answer(body=listed(0)), Answer(body=listed(0)), Answer(body=listed(MANY // 4))]
    await intake.start(Definitions(generation="g", feeds=(feed,), triggers=(trigger,), workflows=FLOWS))
    await intake.tick("inbox")
    listing.answers = [Answer(body=listed(MANY // 4))]
    async with turns() as taken:
        report = await intake.tick("inbox")
    assert (report.new, taken.longest < LONGEST_TURN * slowness()) == (MANY // 4, True), taken.longest
    assert (await store.counts())["runs_ready"] == MANY // 4
    await intake.stop()
    await store.close()
    await client.close()


async def test_an_answer_beyond_the_cap_is_refused_with_what_to_do(listing: Listing, clock: HandClock) -> None:
    client = Client(clock, settings=HttpSettings(max_bytes=1_000_000))
    host = Host(http=client, clock=clock, random=Random(1), allow_private=True)
    listing.answers = [Answer(body=listed(MANY))]
    with pytest.raises(RetryLater, match=r"sent more than 1,000,000 bytes in one answer. Narrow what is asked for"):
        await source(host, listing).poll(None, START)
    await client.close()
