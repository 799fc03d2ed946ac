"""A source that holds something open is closed when it is read no more, and not before."""

from __future__ import annotations

import asyncio

import structlog

from harken.feed import Feed, FeedState
from harken.ingest.feed_registry import SourceCloser
from harken.ingest.feed_runtime_state import LiveFeed
from harken.source import Batch, Cursor
from harken.testing import START


class Held:
    """Counts how often it was closed; a broken one cannot be."""

    def __init__(self, *, broken: bool = False) -> None:
        self.closed = 0
        self._broken = broken

    async def poll(self, cursor: Cursor, since: object) -> Batch:
        return Batch()

    async def aclose(self) -> None:
        await asyncio.sleep(0)
        self.closed += 1
        assert not self._broken


class Plain:
    async def poll(self, cursor: Cursor, since: object) -> Batch:
        return Batch()


def live(source: Held | Plain) -> LiveFeed:
    feed = Feed(name="inbox", kind="held", integration="held")
    return LiveFeed(feed, source, FeedState(name="inbox", revision=1, created_at=START), swept_at=0.0)


async def test_a_replaced_source_is_closed_and_the_new_one_is_not():
    closer, old, new = SourceCloser(), Held(), Held()
    feed = live(old)
    feed.use(new)
    closer.release(feed)
    await closer.finish([])

    assert (old.closed, new.closed) == (1, 0)


async def test_a_source_is_not_closed_while_it_is_read():
    closer, source = SourceCloser(), Held()
    feed = live(source)
    feed.busy = True
    closer.retire(feed)
    await closer.finish([])
    assert source.closed == 0

    feed.busy = False
    closer.release(feed)
    await closer.finish([])
    assert source.closed == 1


async def test_at_the_end_all_are_closed_even_if_one_cannot_be():
    closer, sources = SourceCloser(), [Held(), Held(broken=True), Held()]
    with structlog.testing.capture_logs() as logs:
        await closer.finish([live(source) for source in sources])

    assert [source.closed for source in sources] == [1, 1, 1]
    assert [entry["event"] for entry in logs] == ["source.not_closed"]


async def test_a_source_that_holds_nothing_needs_no_method_for_it():
    closer, plain = SourceCloser(), live(Plain())
    closer.retire(plain)
    await closer.finish([plain])
    assert plain.retired == ()
