"""Operations that take long tell how far they are, to whoever wants to know."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from harken.event import Event
from harken.feed import Digest
from harken.operate.backtest_scan import about
from harken.operate.progress import Progress
from tests.operate.operator_world import Office, opened


@pytest.fixture
async def office(tmp_path: Path) -> AsyncIterator[Office]:
    async with opened(tmp_path) as made:
        yield made


async def reports_of(office: Office, operation: str, **params: Any) -> list[Progress]:
    told: list[Progress] = []
    await office.operator.reporting_to(told.append).call(operation, **params)
    return told


def incidents(office: Office, begin: int, end: int) -> list[Event]:
    return [office.incident(f"INC-{number}") for number in range(begin, end)]


async def test_a_backtest_tells_what_it_has_read_of_about_how_many(office: Office) -> None:
    await office.shows(*incidents(office, 0, 500))
    first, last = await reports_of(office, "triggers.backtest", name="oncall", last="1h")
    assert first == Progress(done=200, total=500, exact=False)
    assert last == Progress(done=500, total=500)


async def test_up_to_a_time_the_number_is_estimated_by_the_time(office: Office) -> None:
    begin = office.clock.now()
    for minute in range(40):
        await office.shows(*incidents(office, 10 * minute, 10 * minute + 10))
        office.clock.advance(60)
    until = (begin + timedelta(minutes=30)).isoformat()
    [first, last] = await reports_of(office, "triggers.backtest", name="oncall", last="1h", until=until)
    assert (first.done, first.exact, last) == (200, False, Progress(done=300, total=300))
    assert 290 <= first.total <= 330


async def test_events_that_gather_are_counted_while_they_are_decided_again(office: Office) -> None:
    assert isinstance(office.loaded.triggers[1].gather, Digest)
    await office.shows(*incidents(office, 0, 300))
    told = await reports_of(office, "triggers.backtest", name="digest", last="1h", condition='event.urgency == "high"')
    assert [(one.done, one.total) for one in told if one.what == "events decided again"] == [(0, 300), (200, 300)]
    assert [one.done for one in told if one.what == "events decided with the change"] == [0, 200]


async def test_a_replay_and_a_plan_tell_how_far_they_are(office: Office) -> None:
    await office.shows(*incidents(office, 0, 250))
    told = await reports_of(office, "events.replay_range", trigger="oncall", since="1h", dry=True)
    assert told == [Progress(done=0, total=250), Progress(done=200, total=250)]
    plan = await office.ask("bulk.plan", action="cancel", where='trigger == "oncall"')
    told = await reports_of(office, "bulk.execute", id=plan["id"])
    assert (len(told), told[-1]) == (250, Progress(done=249, total=250, what="runs"))


@pytest.mark.parametrize(
    ("read", "first", "at", "last", "number"),
    [
        (200, 1, 200, 1_000, 1_000),
        (200, 1, 400, 1_000, 500),
        (200, 601, 1_000, 1_000, 200),
        # what came after the newest that was known
        (200, 1, 200, 150, 200),
        (1, 7, 7, 0, 1),
    ],
)
def test_the_rest_is_taken_to_be_as_dense_as_what_was_read(
    read: int, first: int, at: int, last: int, number: int
) -> None:
    assert about(read, first, at, last) == number
