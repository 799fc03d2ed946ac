"""How far the clock of a service is off, from the `Date` of its answers."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import format_datetime

import pytest

from harken.http import ServiceClock

NOW = 1_800_000_000.4


def dated(at: float, **headers: str) -> dict[str, str]:
    return {"Date": format_datetime(datetime.fromtimestamp(int(at), UTC), usegmt=True), **headers}


def learnt(*skews: float, took: float = 0.1) -> ServiceClock:
    clock = ServiceClock()
    for skew in skews:
        clock.learn(dated(NOW + skew), NOW - took, NOW)
    return clock


@pytest.mark.parametrize(
    ("skews", "lag"),
    [
        ((), 0),
        ((0,), 0),
        ((-1,), 0),
        ((300,), 0),
        ((-300,), 301),
        ((-300, -300, -301), 301),
        ((0, 0, -300), 0),
        ((-1790,), 1791),
        ((-3600,), 0),
        ((-86_400,), 0),
        ((-300, *[0] * 9), 0),
    ],
    ids=[
        "nothing known",
        "right",
        "less than two seconds",
        "ahead",
        "behind, and never less than that",
        "it does not move with every answer",
        "one odd answer",
        "half an hour",
        "an hour is rather a wrong zone in the header",
        "a recorded answer",
        "it was set right since",
    ],
)
def test_the_lag_is_the_median_of_recent_answers_within_bounds(skews: tuple[float, ...], lag: int) -> None:
    assert learnt(*skews).lag == lag


def test_a_slow_answer_is_no_wrong_clock() -> None:
    assert learnt(-8, took=9.0).skew == 0.0
    assert learnt(-8, took=1.0).skew == pytest.approx(-8.4)


def test_the_skew_is_told_also_where_it_is_not_allowed_for() -> None:
    assert learnt(-86_400).skew == pytest.approx(-86_400.4)
    assert learnt(300).skew == pytest.approx(299.6)


def test_an_answer_from_a_cache_counts_with_its_age() -> None:
    clock = ServiceClock()
    clock.learn(dated(NOW - 600, Age="600"), NOW - 0.1, NOW)
    assert clock.skew == 0.0


@pytest.mark.parametrize("date", ["", "yesterday", "Mon, 99 Foo 2026 00:00:00 GMT", "Mon, 01 Jan 99999 00:00:00 GMT"])
def test_a_date_that_is_none_says_nothing(date: str) -> None:
    clock = ServiceClock()
    clock.learn({"Date": date}, NOW, NOW)
    assert clock.skew == 0.0
