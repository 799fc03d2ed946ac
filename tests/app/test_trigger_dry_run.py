"""What a dry run says of a trigger that is new, of one that has run for a while, and of names that are wrong."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from harken.app.trigger_dry_run import preview
from harken.errors import NeedsAttention
from harken.event import Event
from harken.feed import Feed, Trigger
from harken.schedule import Every
from harken.source import Batch, Checked, Cursor
from harken.testing import HandClock

FEED = Feed(name="items", kind="json", integration="json", schedule=Every(seconds=60))
TRIGGER = Trigger(name="watch", feed="items", workflow="watch", workflow_rev="r1")


class Shelf:
    """Shows one item that is half an hour old, or refuses."""

    def __init__(self, clock: HandClock, refusal: str = "") -> None:
        self.item = Event(subject="1", type="json.item", data={}, occurred_at=clock.now() - timedelta(minutes=30))
        self.refusal = refusal

    async def poll(self, cursor: Cursor, since: datetime) -> Batch:
        if self.refusal:
            raise NeedsAttention(self.refusal, fix="Correct the query")
        return Batch(events=[self.item])


async def test_a_new_trigger_would_fire_for_what_the_last_hour_shows() -> None:
    clock = HandClock()
    found = await preview(None, FEED, TRIGGER, Shelf(clock), clock, 3600)
    assert [shown.outcome for shown in found.shown] == ["fired"]


async def test_a_trigger_with_a_start_line_does_not_promise_what_was_there_before_it() -> None:
    clock = HandClock()
    started = clock.now() - timedelta(minutes=10)
    found = await preview(None, FEED, TRIGGER, Shelf(clock), clock, 3600, start_line=started)
    assert [shown.outcome for shown in found.shown] == ["before_start"]


async def test_a_read_that_a_wrong_name_spoils_tells_of_every_wrong_name() -> None:
    clock = HandClock()
    names = Checked(unknown=("there is no channel a", "there is no channel b"))
    with pytest.raises(NeedsAttention, match="no channel a; there is no channel b; answered 400") as refused:
        await preview(None, FEED, TRIGGER, Shelf(clock, "answered 400"), clock, 3600, names)
    assert refused.value.fix == "Correct the query"
    with pytest.raises(NeedsAttention) as repeated:
        await preview(None, FEED, TRIGGER, Shelf(clock, "there is no channel a"), clock, 3600, names)
    assert repeated.value.message == "there is no channel a; there is no channel b"
