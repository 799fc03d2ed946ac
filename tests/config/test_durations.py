from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.durations import format_duration, parse_duration
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
