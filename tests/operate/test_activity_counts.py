"""What is counted over time: buckets of three lengths, added to by every replica."""

from __future__ import annotations

from typing import Any

import pytest

from harken.app.event_and_run_counts_over_time import SAVE_SECONDS, ActivityLog
from harken.operate.activity_counts import SPANS, Buckets, add_counts, merge, series
from harken.operate.status_reload_and_backup import fixes_of
from tests.operate.operator_world import Office

NOON = 1_800_000_000.0 - 1_800_000_000.0 % 10_800


def counted(*times: float) -> Buckets:
    found: Buckets = {}
    for at in times:
        add_counts(found, at, (1, 0, 0))
    return found


@pytest.mark.parametrize(("back", "seconds"), [(60, 10), (1800, 10), (1801, 300), (86_400, 300), (86_401, 10_800)])
def test_a_span_is_told_in_the_shortest_buckets_that_reach_so_far(back: int, seconds: int) -> None:
    shown = series(counted(NOON - 1), NOON - back, NOON)

    assert (shown["bucket_seconds"], shown["total"]["events"]) == (seconds, 1)
    assert len(shown["at"]) == len(shown["events"]) == len(shown["failed"])


def test_a_bucket_has_what_happened_from_its_beginning_on() -> None:
    shown = series(counted(NOON - 20, NOON - 11, NOON - 10), NOON - 30, NOON)

    assert shown["events"] == [0, 2, 1, 0]


def test_counts_of_replicas_are_added_and_old_buckets_are_dropped() -> None:
    old = NOON - 10 * (SPANS[10] + 2)
    merged = merge(counted(old, NOON), counted(NOON), NOON)

    assert list(merged["10"].values()) == [[2, 0, 0]]
    assert sum(row[0] for row in merged["300"].values()) == 3
    assert sum(map(len, merged.values())) <= sum(SPANS.values()) + len(SPANS)


async def test_two_replicas_write_into_one_document_and_nothing_is_counted_twice(office: Office) -> None:
    numbers = {"a": 0, "b": 0}
    logs = {
        name: ActivityLog(office.store, office.clock, lambda name=name: (numbers[name], 0, 0))  # type: ignore[misc]
        for name in numbers
    }
    for rounds in range(3):
        for name, log in logs.items():
            numbers[name] += 5
            office.clock.advance(SAVE_SECONDS)
            await log.save(ending=rounds == 2)
    office.engine.activity = logs["a"].unsaved()
    answer = await office.ask("activity", since="1h")

    assert answer["total"] == {"events": 30, "done": 0, "failed": 0}


async def test_what_could_not_be_written_is_written_later(office: Office) -> None:
    log = ActivityLog(office.store, office.clock, lambda: (7, 0, 0))
    other = ActivityLog(office.store, office.clock, lambda: (1, 0, 0))
    put, office.store.put = office.store.put, None  # type: ignore[method-assign,assignment]
    with pytest.raises(TypeError):
        await log.save(ending=True)
    office.store.put = put  # type: ignore[method-assign]
    await other.save(ending=True)
    await log.save(ending=True)

    assert (await office.ask("activity"))["total"]["events"] == 8


def row(**changes: Any) -> dict[str, Any]:
    return {"type": "poll", "status": "degraded", "needs_person": False, "paused": "", "held": 0, "dead": 0} | changes


@pytest.mark.parametrize(
    ("trigger", "fixes"),
    [
        (row(status="paused", paused="moving house", held=2), ["triggers.resume"]),
        (row(status="paused", needs_person=True), ["triggers.resume"]),
        (row(status="paused"), []),
        (row(dead=2, held=1), ["dead.retry_all", "triggers.release"]),
        (row(status="stale"), ["triggers.run"]),
        (row(status="stale", type="webhook"), []),
        (row(status="refused"), []),
    ],
)
def test_what_may_mend_a_trigger_is_told(trigger: dict[str, Any], fixes: list[str]) -> None:
    assert fixes_of(trigger) == fixes
