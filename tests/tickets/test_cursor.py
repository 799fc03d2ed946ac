"""The cursor of a tracker: which page comes after which, and what a failure does to it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from harken.kit.cursor_codec import dump_cursor, load_cursor
from harken.tickets import Routes, TrackerSettings
from harken.tickets.cursor import (
    OVERLAP,
    SWEEP_EVERY,
    TicketCursor,
    after_failure,
    after_page,
    begin,
    is_due,
    queue,
    trigger_labels,
)
from harken.tickets.webhook_loss import Deliveries
from tests.tickets.tracked import project, settings

NOW = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
SINCE = NOW - timedelta(days=1)
TWO = settings(project("shop", "acme/shop"), project("search", "acme/search"))


def pages_of(given: TrackerSettings, *, sweep: bool = False) -> list[str]:
    """The lists of a cycle whose lists have one page each."""
    at, found = begin(TicketCursor(), given, since=SINCE, now=NOW, sweep=sweep), []
    while at.place is not None:
        found.append(f"{at.place.location} {at.place.list}")
        # as the store gives it back
        stored = load_cursor(dump_cursor(at), TicketCursor)
        assert stored == at
        at = after_page(stored, given, None, SINCE)
    return found


def test_a_cycle_reads_every_list_of_every_location() -> None:
    lists = ["changed", "labelled", "pending"]
    assert pages_of(TWO) == [f"{name} {one}" for name in ("acme/shop", "acme/search") for one in lists]
    assert pages_of(settings(), sweep=True) == [f"acme/shop {one}" for one in [*lists, "active", "over"]]


def test_discovery_is_off_where_the_label_map_is_empty() -> None:
    given = settings(project(routes=Routes(default="fix-bug")))
    assert pages_of(given) == ["acme/shop changed", "acme/shop pending"]


def test_the_labels_of_a_location_are_those_of_its_projects_each_once() -> None:
    given = settings(
        project("a", routes=Routes(by_label={"Fix": "x", "scan": "y"})),
        project("b", routes=Routes(by_label={"fix": "z", "docs": "y"})),
        project("c", "acme/search", routes=Routes(by_label={"other": "y"})),
    )
    assert trigger_labels(given, "ACME/shop") == ["Fix", "scan", "docs"]


def test_changes_are_read_from_the_mark_with_an_overlap() -> None:
    mark = NOW - timedelta(minutes=1)
    at = begin(TicketCursor(marks={"acme/shop": mark}), TWO, since=SINCE, now=NOW, sweep=False)
    assert at.place is not None
    assert at.place.start == mark - OVERLAP
    other = after_failure(at, SINCE, "no")
    assert other.place is not None
    assert other.place.start == SINCE


def test_a_mark_in_the_future_does_not_count() -> None:
    at = begin(TicketCursor(marks={"acme/shop": NOW + timedelta(days=9)}), TWO, since=SINCE, now=NOW, sweep=False)
    assert at.place is not None
    assert at.place.start == NOW - OVERLAP


def test_the_mark_moves_when_all_pages_of_the_changes_are_read() -> None:
    at = begin(TicketCursor(), settings(), since=SINCE, now=NOW, sweep=False)
    second = after_page(at, settings(), "p2", SINCE)
    assert second.marks == {}
    assert at.place is not None
    assert second.place == replace(at.place, page="p2")
    assert after_page(second, settings(), None, SINCE).marks == {"acme/shop": NOW}


def test_a_page_that_failed_is_tried_once_more_and_then_the_list_begins_anew() -> None:
    given, later = settings(), NOW + timedelta(minutes=1)
    at = after_page(begin(TicketCursor(), given, since=SINCE, now=NOW, sweep=False), given, "p2", SINCE)
    failed = after_failure(at, SINCE, "no")
    assert (failed.place, failed.failed) == (None, {"acme/shop": "no"})
    again = begin(failed, given, since=SINCE, now=later, sweep=False)
    assert again.place == at.place
    assert again.failed == {}
    anew = begin(after_failure(again, SINCE, "no"), given, since=SINCE, now=later, sweep=False)
    assert anew.place is not None
    assert (anew.place.page, anew.place.began) == (None, later)


def test_a_page_that_is_read_at_last_counts_from_when_its_list_began() -> None:
    given = settings()
    at = after_page(begin(TicketCursor(), given, since=SINCE, now=NOW, sweep=False), given, "p2", SINCE)
    again = begin(after_failure(at, SINCE, "no"), given, since=SINCE, now=NOW + timedelta(hours=1), sweep=False)
    read = after_page(again, given, None, SINCE)
    assert read.marks == {"acme/shop": NOW}
    end = after_page(after_page(read, given, None, SINCE), given, None, SINCE)
    assert (end.place, end.resume) == (None, {})


def test_a_location_that_is_configured_no_more_is_forgotten() -> None:
    marks = {"acme/shop": NOW, "acme/search": NOW}
    assert begin(TicketCursor(marks=marks), settings(), since=SINCE, now=NOW, sweep=False).marks == {"acme/shop": NOW}


def test_a_ticket_is_looked_at_once_however_many_lists_ask_for_it() -> None:
    asked = queue(queue(TicketCursor(), [("a", "1"), ("a", "2")]), [("a", "2"), ("b", "2")])
    assert asked.look == (("a", "1"), ("a", "2"), ("b", "2"))


def test_a_sweep_is_due_every_quarter_of_an_hour_whatever_the_clock_does() -> None:
    swept = TicketCursor(swept_at=NOW)
    assert is_due(TicketCursor(), NOW)
    assert not is_due(swept, NOW + SWEEP_EVERY - timedelta(seconds=1))
    assert is_due(swept, NOW + SWEEP_EVERY)
    assert is_due(swept, NOW - timedelta(days=1))


def test_deliveries_count_this_hour_and_the_one_before() -> None:
    counted = Deliveries()
    assert counted.share == 1.0
    for _ in range(3):
        counted = counted.add(delivered=1, now=NOW)
    counted = counted.add(lost=1, now=NOW + timedelta(minutes=59))
    assert counted.share == 0.75
    counted = counted.add(delivered=1, now=NOW + timedelta(minutes=61))
    assert counted.share == 0.8
    counted = counted.add(delivered=1, now=NOW + timedelta(hours=3))
    assert counted.share == 1.0
