"""A list in memory is paged through by the name of its last row, whatever comes and goes meanwhile."""

from __future__ import annotations

from random import Random

from harken.operate.paging import page_by

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
