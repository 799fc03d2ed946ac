"""What old events and quiet hours make of an intent: pure, so a line each."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from harken.event import Event, Span, Verdict
from harken.feed import Digest, Feed, Spacing, Trigger, TriggerState
from harken.match import Read, Rules, Sighting, compile_rules, match
from harken.match.decide import CATCH_UP, SPREAD
from harken.schedule import Quiet, quiet_hours
from harken.store import Intent, Listeners

NIGHT = Quiet(start="22:00", end="07:00", tz="Europe/Berlin")
FEED = Feed(name="inbox", kind="json", integration="x")
# half past midnight in Berlin
NOW = datetime(2026, 1, 5, 23, 30, tzinfo=UTC)


def rules(
    *, paused: str = "", start: datetime = datetime(2020, 1, 1, tzinfo=UTC), epoch: int = 1, **changes: Any
) -> Rules:
    trigger = Trigger(name="t", feed="inbox", workflow="w", workflow_rev="r")
    state = TriggerState(uid="u", name="t", epoch=epoch, start_line=start, created_at=NOW)
    pair = msgspec.structs.replace(trigger, **changes), msgspec.structs.replace(state, paused=paused)
    return compile_rules(Listeners(revision=1, feed=FEED, triggers=[pair]))


def event(name: str = "a", age: float | None = 0.0, now: datetime = NOW) -> Event:
    occurred = None if age is None else now - timedelta(seconds=age)
    return Event(subject=name, key=name, type="x", data={"id": name}, occurred_at=occurred)


def intents(given: Rules, *events: Event, **read: Any) -> list[Intent]:
    sightings = [Sighting(one, one.key, 0, 1) for one in events]
    entries = match(sightings, given, Read(**{"now": NOW, **read}))
    return [decision for entry in entries for decision in entry.decisions if isinstance(decision, Intent)]


def berlin(day: int, hour: int, minute: int = 0, month: int = 1) -> datetime:
    from zoneinfo import ZoneInfo

    return datetime(2026, month, day, hour, minute, tzinfo=ZoneInfo("Europe/Berlin")).astimezone(UTC)


@pytest.mark.parametrize(
    ("instant", "begin", "end"),
    [
        (berlin(6, 0, 30), berlin(5, 22), berlin(6, 7)),
        (berlin(5, 22), berlin(5, 22), berlin(6, 7)),
        (berlin(6, 7), berlin(6, 22), berlin(7, 7)),
        (berlin(6, 12), berlin(6, 22), berlin(7, 7)),
        # the clocks go forward on 29 March: that night is an hour shorter
        (berlin(29, 1, 0, 3), berlin(28, 22, 0, 3), datetime(2026, 3, 29, 5, tzinfo=UTC)),
        # they go back on 25 October: that night is an hour longer
        (berlin(24, 23, 0, 10), datetime(2026, 10, 24, 20, tzinfo=UTC), datetime(2026, 10, 25, 6, tzinfo=UTC)),
    ],
)
def test_quiet_hours_follow_the_clocks_of_their_zone(instant: datetime, begin: datetime, end: datetime) -> None:
    assert quiet_hours(NIGHT, instant) == (begin, end)


def test_quiet_hours_may_lie_within_a_day() -> None:
    siesta = Quiet(start="13:00", end="15:00")
    noon = datetime(2026, 1, 5, 12, tzinfo=UTC)
    assert quiet_hours(siesta, noon) == (noon + timedelta(hours=1), noon + timedelta(hours=3))
    assert quiet_hours(siesta, noon + timedelta(hours=3)) == (noon + timedelta(hours=25), noon + timedelta(hours=27))


def test_in_quiet_hours_a_run_is_due_shortly_after_they_end_and_says_so() -> None:
    [intent] = intents(rules(quiet=NIGHT), event())
    assert berlin(6, 7) <= intent.due_at < berlin(6, 7) + SPREAD
    assert intent.reason == "waits until 07:00 (quiet hours)"
    assert intent.quiet == Span(berlin(5, 22), berlin(6, 7))


def test_what_comes_later_in_the_night_is_due_later_in_the_morning() -> None:
    due = [intents(rules(quiet=NIGHT), event(), now=berlin(6, hour))[0].due_at for hour in (1, 3, 5)]
    assert due == sorted(set(due))


def test_by_day_nothing_waits_but_the_next_night_is_known() -> None:
    [intent] = intents(rules(quiet=NIGHT), event(), now=berlin(6, 12))
    assert (intent.due_at, intent.reason) == (berlin(6, 12), "")
    assert intent.quiet == Span(berlin(6, 22), berlin(7, 7))


def test_a_window_that_closes_in_the_night_stays_open_until_morning() -> None:
    evening = berlin(5, 21, 30)
    [intent] = intents(rules(quiet=NIGHT, gather=Digest(window=3600)), event(), now=evening)
    assert intent.gather is not None
    assert berlin(6, 7) <= intent.gather.due_at < berlin(6, 7) + SPREAD
    assert (intent.due_at, intent.reason) == (evening, "waits until 07:00 (quiet hours)")


def test_what_a_person_asked_for_does_not_wait() -> None:
    [intent] = intents(rules(quiet=NIGHT), event(), by_hand="t")
    assert (intent.due_at, intent.quiet) == (NOW, None)
    [other] = intents(rules(quiet=NIGHT), event(), by_hand="another trigger")
    assert other.due_at > NOW


def test_old_events_share_one_run_and_newer_ones_have_their_own() -> None:
    old, older, new, undated = intents(
        rules(max_age=60), event("a", 61), event("b", 7200), event("c", 60), event("d", None)
    )
    assert old.gather is not None
    assert old.gather == older.gather
    assert (old.gather.due_at, old.gather.extends) == (NOW + CATCH_UP, True)
    assert "older than max_age 1m when it was found" in old.reason
    assert (new.gather, undated.gather) == (None, None)


def test_old_events_share_one_run_also_where_others_are_gathered_by_a_key() -> None:
    digest = Digest(window=600, by="{{.trigger.event.id}}")
    one, two, fresh = intents(rules(max_age=60, gather=digest), event("a", 99), event("b", 99), event("c"))
    assert one.gather is not None
    assert fresh.gather is not None
    assert one.gather == two.gather != fresh.gather
    assert fresh.gather.key == "c"


@pytest.mark.parametrize(
    ("overlap", "key", "own"),
    [
        ("queue", "", False),
        ("skip", "", False),
        ("cancel_previous", "", True),
        ("queue", "{{.trigger.event.id}}", True),
    ],
)
def test_the_run_of_the_old_events_waits_its_turn_and_is_never_skipped(overlap: str, key: str, own: bool) -> None:
    given = rules(max_age=60, overlap=overlap, concurrency_key=key)
    old, fresh = intents(given, event("a", 99), event("b"))
    assert (old.overlap, fresh.overlap) == ("queue", overlap)
    assert (old.slot != fresh.slot) is own


def test_the_run_of_the_old_events_is_held_while_the_trigger_is_paused() -> None:
    [intent] = intents(rules(max_age=60, paused="holiday"), event("a", 99))
    assert (intent.hold, intent.gather is not None) == ("paused", True)


def test_old_events_that_are_found_at_night_wait_for_the_morning_together() -> None:
    [intent] = intents(rules(max_age=60, quiet=NIGHT), event("a", 99))
    assert intent.gather is not None
    assert intent.gather.due_at >= berlin(6, 7)
    assert intent.reason.endswith("so it shares one run; waits until 07:00 (quiet hours)")


def test_without_limits_an_intent_is_what_it_was() -> None:
    [intent] = intents(rules(), event("a", 99_999))
    assert (intent.due_at, intent.quiet, intent.gather, intent.reason) == (NOW, None, None, "")


CREATED = NOW + timedelta(seconds=5.7)


@pytest.mark.parametrize(
    ("happened", "epoch", "fires"),
    [
        (5.0, 1, True),
        (6.0, 1, True),
        (4.0, 1, False),
        (5.699, 1, False),
        (5.7, 1, True),
        (5.0, 2, False),
        (6.0, 2, True),
    ],
    ids=[
        "whole second, the one of the start line",
        "whole second after it",
        "whole second before it",
        "milliseconds before it",
        "at the very instant",
        "the second of a reset, which has shown it before",
        "whole second after a reset",
    ],
)
def test_a_time_in_whole_seconds_counts_as_within_its_second(happened: float, epoch: int, fires: bool) -> None:
    made = event(age=-happened)
    assert bool(intents(rules(start=CREATED, epoch=epoch), made)) == fires


@pytest.mark.parametrize(("age", "fires"), [(299.0, True), (300.0, True), (301.0, False)])
def test_start_lines_are_compared_in_the_time_of_a_service_that_is_behind(age: float, fires: bool) -> None:
    assert bool(intents(rules(start=NOW), event(age=age), lag=300)) == fires


def test_what_was_there_before_by_a_clock_that_is_behind_says_so() -> None:
    entries = match([Sighting(event(age=400), "a", 0, 1)], rules(start=NOW), Read(now=NOW, lag=300))
    [verdict] = entries[0].decisions
    assert isinstance(verdict, Verdict)
    assert verdict.reason == (
        "happened at 2026-01-05 23:23:20Z, before the start line 2026-01-05 23:30:00Z "
        "(also by the service's clock, which is 5m behind)"
    )


def test_a_run_that_is_due_at_the_very_beginning_of_quiet_hours_waits_and_one_before_does_not() -> None:
    [at] = intents(rules(quiet=NIGHT), event(), now=berlin(5, 22))
    [before] = intents(rules(quiet=NIGHT), event(), now=berlin(5, 21, 59))
    assert (at.due_at, before.due_at) == (berlin(6, 7), berlin(5, 21, 59))


@pytest.mark.parametrize(
    ("first", "spacing", "read", "delivered"),
    [
        ("all", None, {}, ["a", "b", "c"]),
        ("deliver", None, {"first": True}, ["a", "b", "c"]),
        ("deliver", Spacing(per_tick=2), {"first": True}, ["b", "c"]),
        ("deliver", Spacing(per_tick=9), {"first": True}, ["a", "b", "c"]),
        ("deliver", None, {"first": True, "page": 1}, []),
        ("deliver", None, {}, []),
        ("baseline", None, {"first": True}, []),
    ],
    ids=["all", "first read", "the newest", "fewer than the newest", "a later page", "a later read", "baseline"],
)
def test_which_events_from_before_the_start_line_are_delivered(
    first: Any, spacing: Spacing | None, read: dict[str, Any], delivered: list[str]
) -> None:
    given = rules(start=NOW, spacing=spacing)
    given.feed = msgspec.structs.replace(FEED, first=first)
    found = intents(given, *(event(name, age=3600) for name in "abc"), **read)
    assert [intent.run_key for intent in found] == delivered


@pytest.mark.parametrize(
    ("moved", "read", "fires"),
    [(0, {}, True), (1, {}, False), (-1, {}, True), (0, {"again": True}, False)],
    ids=["sent after its creation", "after a reset", "with a look back", "stored, and decided again"],
)
def test_what_is_sent_to_a_trigger_counts_whenever_it_happened(moved: int, read: dict[str, Any], fires: bool) -> None:
    given = rules(start=NOW)
    given.feed = msgspec.structs.replace(FEED, way="push")
    [rule] = given.rules
    rule.state = msgspec.structs.replace(rule.state, created_at=NOW - timedelta(seconds=moved))
    assert bool(intents(given, event(age=3600), **read)) == fires


def test_the_input_of_a_run_is_rendered_from_its_event_at_every_depth() -> None:
    mapping = {"id": "{{.trigger.event.id}}", "deep": {"list": ["{{.trigger.key}}", 7, None]}, "plain": "text"}
    [intent] = intents(rules(mapping=mapping), event("a"))
    assert msgspec.json.decode(intent.input) == {"id": "a", "deep": {"list": ["a", 7, None]}, "plain": "text"}


def test_an_event_names_its_workflow_among_the_routes_of_its_trigger() -> None:
    given = rules(routes={"fix-bug": "rev-1", "scan": "rev-2"})
    routed = msgspec.structs.replace(event(), data={"pipeline": "scan"})
    [intent] = intents(given, routed)
    assert (intent.workflow_rev, intent.watched) == ("rev-2", True)
    assert [plain.watched for plain in intents(rules(), event())] == [False]


@pytest.mark.parametrize("data", [{}, {"pipeline": "deploy"}, {"pipeline": None}])
def test_an_event_that_names_no_route_starts_nothing_and_says_why(data: dict[str, Any]) -> None:
    given = rules(routes={"fix-bug": "rev-1"})
    [entry] = match([Sighting(Event(subject="a", key="a", type="x", data=data), "a", 0, 1)], given, Read(now=NOW))
    [verdict] = entry.decisions
    assert isinstance(verdict, Verdict)
    assert (verdict.outcome, "there is no pipeline" in verdict.reason) == ("skipped", True)
