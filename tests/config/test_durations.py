from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.durations import format_duration, parse_duration, parse_moment
from harken.errors import Misconfigured


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("5m", 300),
        ("1h30m", 5400),
        ("500ms", 0.5),
        ("1m500ms", 60.5),
        ("7d", 604800),
        ("2w", 1209600),
        ("1.5h", 5400),
        ("1h 30m", 5400),
        ("0s", 0),
    ],
)
def test_durations_mean_what_they_say(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", " ", "5", "m", "5 minutes", "1m1h", "1m1m", "-5m", "5M", "1e3s", "٥m", "9" * 13 + "s"]
)
def test_what_is_not_a_duration_is_refused(text: str) -> None:
    with pytest.raises(Misconfigured):
        parse_duration(text)


def test_a_duration_beyond_a_lifetime_is_refused() -> None:
    with pytest.raises(Misconfigured, match="hundred years"):
        parse_duration("999999999d")


@given(st.integers(min_value=0, max_value=10**11))
def test_a_formatted_duration_reads_back_the_same(milliseconds: int) -> None:
    assert parse_duration(format_duration(milliseconds / 1000)) == milliseconds / 1000


@pytest.mark.parametrize("text", ["0001-01-01", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "soon", ""])
def test_a_time_that_no_calendar_has_in_utc_is_no_time(text: str) -> None:
    assert parse_moment(text) is None


def test_a_time_is_the_same_moment_in_utc() -> None:
    assert parse_moment("2026-03-01T10:00:00+02:00") == datetime(2026, 3, 1, 8, tzinfo=UTC)
