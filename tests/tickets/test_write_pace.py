"""How fast we write to a platform."""

from __future__ import annotations

import pytest

from harken.errors import Deferred
from harken.testing import HandClock
from harken.tickets.write_pace import LIMITS, PROGRESS, PaceLimits, WritePace, WritePaces, wait_before

GITHUB = LIMITS["github"]


@pytest.mark.parametrize(
    ("times", "now", "share", "wait"),
    [
        ([], 0.0, 1.0, 0.0),
        ([10.0], 10.0, 1.0, 1.0),
        ([10.0], 10.4, 1.0, 0.6),
        ([10.0], 11.0, 1.0, 0.0),
        ([float(at) for at in range(79)], 79.0, 1.0, 0.0),
        ([at * 0.5 for at in range(80)], 41.0, 1.0, 19.0),
        ([at * 7.0 for at in range(500)], 3500.0, 1.0, 100.0),
        ([at * 7.0 for at in range(499)], 3500.0, 1.0, 0.0),
        ([at * 7.0 for at in range(499)], 3500.0, PROGRESS, 249 * 7.0 + 100),
        ([at * 7.0 for at in range(249)], 3500.0, PROGRESS, 0.0),
    ],
)
def test_the_next_write_waits_for_the_gap_the_minute_and_the_hour(
    times: list[float], now: float, share: float, wait: float
) -> None:
    assert wait_before(times, now, GITHUB, share=share) == pytest.approx(wait)


def test_without_limits_nothing_waits() -> None:
    assert wait_before([1.0] * 10_000, 1.0, PaceLimits()) == 0.0


async def test_a_turn_is_waited_for_and_a_long_wait_is_refused() -> None:
    clock = HandClock()
    pace = WritePace(clock, PaceLimits(gap=1.0, per_minute=3))
    for _ in range(3):
        await pace.take("a")
    assert clock.monotonic() == 2.0
    with pytest.raises(Deferred) as refused:
        await pace.take("a")
    assert refused.value.after == pytest.approx(58.0)
    clock.advance(58.0)
    await pace.take("a")


async def test_a_turn_that_took_longer_counts_as_two_writes() -> None:
    clock = HandClock()
    pace = WritePace(clock, PaceLimits(gap=1.0, per_minute=3))
    async with pace.turn("a"):
        clock.advance(0.5)
    clock.advance(1.0)
    async with pace.turn("a"):
        clock.advance(1.5)
    assert pace.wait("a") == pytest.approx(57.5), "the minute has had three"


async def test_a_write_that_was_long_on_its_way_is_as_far_from_the_next_as_any_other() -> None:
    clock = HandClock()
    pace = WritePace(clock, PaceLimits(gap=1.0))
    async with pace.turn("a"):
        clock.advance(0.6)
    assert pace.wait("b") == pytest.approx(1.0)


async def test_one_ticket_waits_for_itself_alone() -> None:
    clock = HandClock()
    pace = WritePace(clock, LIMITS["jira"])
    for ticket in ("a", "b", "c"):
        await pace.take(ticket)
    assert clock.monotonic() == 0.0
    await pace.take("b")
    assert clock.monotonic() == 1.0


async def test_a_part_of_the_quota_is_left_for_people() -> None:
    clock = HandClock()
    pace = WritePace(clock, PaceLimits(per_hour=500))
    for number in range(480):
        await pace.take(str(number))
    with pytest.raises(Deferred, match="for another 3600 s"):
        await pace.take("one more")
    for number in range(20):
        await pace.take(str(number), by_hand=True)
    with pytest.raises(Deferred):
        await pace.take("one more", by_hand=True)


def test_a_credential_has_one_pace_whatever_uses_it() -> None:
    paces = WritePaces(HandClock())
    assert paces.of("work", "github") is paces.of("work", "github")
    assert paces.of("work", "github") is not paces.of("home", "github")
    assert paces.of("odd", "unheard-of").limits == PaceLimits()
