"""A trigger's status is a table."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from harken.circuit_breaker import Health
from harken.feed import Feed, FeedState, TriggerState
from harken.operate.trigger_status import status_of
from harken.schedule import Cron, Every
from harken.testing import START

NOW = START + timedelta(hours=1)
FEED = Feed(name="inbox", kind="json", integration="x", schedule=Every(seconds=60))
PUSH = Feed(name="inbox", kind="webhook", integration="x", way="push")
CRON = Feed(name="inbox", kind="cron", integration="cron", schedule=Cron(expression="0 9 * * *"))


def trigger(**changes: Any) -> TriggerState:
    return TriggerState(
        **{"uid": "u", "name": "oncall", "epoch": 1, "start_line": START, "created_at": START, **changes}
    )


def state(**changes: Any) -> FeedState:
    soon = NOW + timedelta(seconds=30)
    given = {"name": "inbox", "revision": 1, "created_at": START, "last_success": NOW, "next_due": soon}
    return FeedState(**{**given, **changes})


def at(seconds: float) -> float:
    return NOW.timestamp() + seconds


@pytest.mark.parametrize(
    ("feed", "found", "how", "status", "reason"),
    [
        (FEED, state(), trigger(), "healthy", ""),
        (FEED, None, trigger(), "new", "never opened"),
        (FEED, state(last_success=None), trigger(), "new", "first read is in 30 s"),
        (PUSH, state(last_success=None, next_due=None), trigger(), "healthy", ""),
        (FEED, state(), trigger(paused="holiday"), "paused", "by a person: holiday"),
        (FEED, state(), trigger(removed_at=START), "paused", "left the configuration"),
        (FEED, state(health=Health(state="paused", failures=1, message="401")), trigger(), "paused", "401"),
        (FEED, state(health=Health(failures=2, message="503")), trigger(), "degraded", "2 failures in a row: 503"),
        (FEED, state(health=Health(rate_limited=1, message="429")), trigger(), "degraded", "slow down"),
        (FEED, state(health=Health(state="open", failures=5, message="503")), trigger(), "degraded", "breaker is open"),
        (FEED, state(next_due=NOW - timedelta(seconds=100)), trigger(), "healthy", ""),
        (FEED, state(next_due=NOW - timedelta(hours=3)), trigger(), "stale", "3 h late"),
        (CRON, state(next_due=NOW + timedelta(hours=20)), trigger(), "healthy", ""),
        (PUSH, state(next_due=NOW - timedelta(hours=3)), trigger(), "healthy", ""),
    ],
)
def test_status_says_the_most_telling_truth(
    feed: Feed, found: FeedState | None, how: TriggerState, status: str, reason: str
) -> None:
    told = status_of(how, feed, found, NOW)
    assert told.status == status
    assert reason in told.reason


def test_a_pause_says_that_polls_are_not_read_and_that_what_is_pushed_is_recorded() -> None:
    polled, pushed = (status_of(trigger(paused="holiday"), feed, state(), NOW).advice for feed in (FEED, PUSH))
    assert polled.startswith("Its runs are held, and its feed is not read while all its triggers are paused. To go on:")
    assert pushed.startswith("Events are recorded and their runs held. To go on: harken triggers resume oncall")


def test_a_failing_feed_says_when_it_is_tried_again() -> None:
    told = status_of(trigger(), FEED, state(health=Health(failures=1, message="x", blocked_until=at(90))), NOW)
    assert "The next try is in 90 s" in told.advice


def test_a_slow_feed_may_be_late_by_twice_its_interval() -> None:
    slow = Feed(name="inbox", kind="json", integration="x", schedule=Every(seconds=3600))
    late = state(next_due=NOW - timedelta(seconds=7000))
    assert status_of(trigger(), slow, late, NOW).status == "healthy"
