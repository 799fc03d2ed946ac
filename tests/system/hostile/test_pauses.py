"""While the store is away, a feed that is due waits a little before every try."""

from __future__ import annotations

from datetime import timedelta
from random import Random
from typing import Any, cast

from harken.errors import StoreUnavailable
from harken.feed import Feed, FeedState
from harken.ingest.feed_runtime_state import LiveFeed
from harken.ingest.intake import Intake
from harken.schedule import Every
from harken.source import Batch
from harken.store import HeldLease, Lease
from harken.testing import START, HandClock


class Away:
    """A store that gave a lease and cannot be asked any more."""

    async def lease(self, shard: int, holder: str, seconds: float, *, generation: str = "") -> Lease:
        return Lease(shard=shard, token=1, until=START)

    async def leases(self) -> list[HeldLease]:
        return []

    async def feeds(self, *, names: Any = None) -> list[FeedState]:
        return []

    async def listeners(self, feed: str) -> Any:
        raise StoreUnavailable("another program holds the database")


class Nothing:
    async def poll(self, cursor: Any, since: Any) -> Batch:
        return Batch(cursor=None)


def overdue(clock: HandClock) -> tuple[Intake, LiveFeed]:
    intake = Intake(cast(Any, Away()), clock, Random(1), cast(Any, None), lambda feed: Nothing(), holder="me")
    feed = Feed(name="items", kind="json", integration="shop", schedule=Every(seconds=60.0))
    due = clock.now() - timedelta(seconds=5)
    state = FeedState(name="items", revision=1, created_at=due, next_due=due)
    live = intake.feeds["items"] = LiveFeed(feed, Nothing(), state, swept_at=0.0)
    live.next_due = clock.time() - 5
    return intake, live


async def test_a_feed_does_not_spin_while_the_store_is_away() -> None:
    clock = HandClock()
    intake, live = overdue(clock)
    await intake.leases.balance()
    report = await intake.tick("items")
    assert (report.result, report.error) == ("skipped", "another program holds the database")
    assert live.due is not None
    assert live.due > clock.time()


async def test_a_feed_whose_shard_is_not_held_is_off_the_schedule() -> None:
    clock = HandClock()
    intake, live = overdue(clock)
    report = await intake.tick("items")
    assert (report.result, report.error) == ("skipped", "another replica reads this feed")
    assert live.due is None
