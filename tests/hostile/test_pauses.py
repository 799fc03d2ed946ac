"""While the store is away, a feed that is due waits a little before every try."""

from __future__ import annotations

from datetime import timedelta
from random import Random
from typing import Any, cast

from harken.errors import StoreUnavailable
from harken.feed import Feed, FeedState
from harken.ingest.intake import Intake
from harken.ingest.live import Live
from harken.schedule import Every
from harken.source import Batch
from harken.testing import HandClock


class Away:
    """A store that cannot even give a lease."""

    async def lease(self, *args: Any) -> Any:
        raise StoreUnavailable("another program holds the database")


class Nothing:
    async def poll(self, cursor: Any, since: Any) -> Batch:
        return Batch(cursor=None)


async def test_a_feed_does_not_spin_while_the_lease_cannot_be_taken() -> None:
    clock = HandClock()
    intake = Intake(cast(Any, Away()), clock, Random(1), cast(Any, None), lambda feed: Nothing(), holder="me")
    feed = Feed(name="items", kind="json", integration="shop", schedule=Every(seconds=60.0))
    overdue = clock.now() - timedelta(seconds=5)
    live = Live(
        feed, Nothing(), FeedState(name="items", revision=1, created_at=overdue, next_due=overdue), swept_at=0.0
    )
    live.next_due = clock.time() - 5
    intake.feeds["items"] = live
    report = await intake.tick("items")
    assert (report.result, report.error) == ("skipped", "another program holds the database")
    assert live.next_due > clock.time()
