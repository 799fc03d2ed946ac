"""A newest-first API in ascending slices: complete before the cursor passes, resumable, and with an end."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from harken.event import Span
from harken.kit.time_slices import Slice, resume
from harken.testing import START

HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)


def walked(since: Any, now: Any, width: timedelta) -> list[Slice]:
    found = [resume(None, since, now, width)]
    while (following := found[-1].next_slice(width)) is not None:
        found.append(following)
    return found


@pytest.mark.parametrize("minutes", [0, 1, 59, 60, 61, 600])
def test_slices_cover_everything_from_since_to_now_without_a_gap(minutes: int):
    now = START + timedelta(minutes=minutes)
    found = walked(START, now, HOUR)
    assert (found[0].start, found[-1].end) == (START, now)
    assert all(below.end == above.start for below, above in pairwise(found))


def test_a_read_goes_on_where_its_cursor_was_and_keeps_its_top():
    here = resume(None, START, START + 5 * HOUR, HOUR).next_page("page-2")
    stored = msgspec.json.decode(msgspec.json.encode(here.cursor()))
    assert resume(stored, START + 9 * HOUR, START + 9 * HOUR, HOUR) == here


def test_a_slice_that_is_too_full_is_halved_until_it_is_narrow():
    full: Slice | None = resume(None, START, START + HOUR, HOUR)
    widths = []
    while full is not None:
        widths.append((full.end - full.start).total_seconds())
        full = full.lower_half(SECOND)
    assert widths[:3] == [3600, 1800, 900]
    assert widths[-1] == 1


def test_after_a_half_comes_the_rest():
    half = resume(None, START, START + HOUR, HOUR).lower_half(SECOND)
    assert half is not None
    rest = half.next_slice(HOUR)
    assert rest is not None
    assert (rest.start, rest.end, rest.page) == (START + HOUR / 2, START + HOUR, None)


def test_what_was_covered_is_the_slice():
    assert resume(None, START, START + HOUR, HOUR).covered == Span(START, START + HOUR)


@pytest.mark.parametrize("cursor", [None, 7, "x", {}, {"start": "soon"}])
def test_without_a_cursor_of_ours_a_read_begins_at_since(cursor: Any):
    assert resume(cursor, START, START + HOUR, HOUR).start == START


def test_a_since_ahead_of_now_makes_an_empty_slice():
    found = resume(None, START + HOUR, START, HOUR)
    assert found.start == found.end == START
    assert found.next_slice(HOUR) is None
