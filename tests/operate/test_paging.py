"""A list in memory is paged through by the name of its last row, whatever comes and goes meanwhile."""

from __future__ import annotations

import base64
import json
from random import Random

import pytest

from harken.errors import Malformed
from harken.operate.paging import bind_cursor, id_after, letter_after, page_by, to_cursor, unbind_cursor

COUNT, CHANGED = 5_000, 200


def test_no_untouched_row_is_missed_and_none_comes_twice() -> None:
    random = Random(3)
    names = {f"trigger-{number}" for number in range(COUNT)}
    untouched, cursor, seen = set(names), "", list[str]()
    while True:
        page = page_by([{"name": name} for name in names], cursor, 500)
        seen += [row["name"] for row in page["items"]]
        # the row that the cursor names leaves as well
        leaving = {*random.sample(sorted(names), CHANGED // 10), seen[-1]} & names
        names -= leaving
        untouched -= leaving
        names |= {f"trigger-{random.random()}" for _ in range(CHANGED // 10)}
        if not page["next"]:
            break
        cursor = page["next"]
    assert len(seen) == len(set(seen))
    assert untouched <= set(seen)
    assert seen == sorted(seen)


def test_a_cursor_is_good_for_its_list_with_its_filters_however_much_of_it_is_shown() -> None:
    asked = {"trigger": "oncall", "where": "", "limit": 50, "include": ["data"], "before": 90}
    cursor = bind_cursor(to_cursor(7) or "", "events.list", asked)
    for same in (asked, {"trigger": "oncall"}, {"trigger": "oncall", "limit": 1, "cursor": cursor, "since": None}):
        assert id_after(unbind_cursor(cursor, "events.list", same)) == 7
    for other in ({}, {"trigger": "oncall2"}, {"trigger": "oncall", "after": 0}, {"feed": "oncall"}):
        with pytest.raises(Malformed, match="with other filters"):
            unbind_cursor(cursor, "events.list", other)
    with pytest.raises(Malformed, match=r"another list than runs\.list"):
        unbind_cursor(cursor, "runs.list", asked)


@pytest.mark.parametrize("parts", [[7], [7, "runs.list"], [7, 1, 2, 3], {"a": 1}, 7, "a"])
def test_what_is_no_cursor_of_a_caller_is_refused(parts: object) -> None:
    text = base64.urlsafe_b64encode(json.dumps(parts).encode()).rstrip(b"=").decode()
    with pytest.raises(Malformed):
        unbind_cursor(text, "runs.list", {})


def test_only_dead_letters_have_places_below_zero() -> None:
    assert letter_after(to_cursor(-3) or "") == -3
    with pytest.raises(Malformed):
        id_after(to_cursor(-3) or "")
