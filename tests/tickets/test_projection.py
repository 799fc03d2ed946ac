"""What a ticket shows for its run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import get_args

import pytest

from harken.runs import FINAL, RunState
from harken.tickets import Lifecycle, desired_state, repairs_allowed

NOW = datetime(2026, 11, 17, 12, tzinfo=UTC)
LONG_AGO = NOW - timedelta(minutes=1)


@pytest.mark.parametrize(
    ("run", "shown"),
    [
        ("ready", Lifecycle.ENQUEUED),
        ("blocked", Lifecycle.ENQUEUED),
        ("gathering", Lifecycle.ENQUEUED),
        ("held", Lifecycle.WAITING),
        ("waiting", Lifecycle.WAITING),
        ("running", Lifecycle.IN_PROGRESS),
        ("done", Lifecycle.DONE),
        ("failed", Lifecycle.FAILED),
        ("dead", Lifecycle.FAILED),
        ("cancelled", None),
    ],
)
def test_each_state_of_a_run_is_shown(run: RunState, shown: Lifecycle | None) -> None:
    assert desired_state(run, LONG_AGO, NOW, None) == shown


def test_no_state_of_a_run_is_forgotten() -> None:
    silent = {run for run in get_args(RunState) if desired_state(run, LONG_AGO, NOW, None) is None}
    assert silent == {"cancelled"} <= FINAL


@pytest.mark.parametrize("before", [None, Lifecycle.PENDING, Lifecycle.FAILED])
def test_enqueued_is_left_out_if_it_lasts_under_five_seconds(before: Lifecycle | None) -> None:
    just_now = NOW - timedelta(seconds=4.9)
    assert desired_state("ready", just_now, NOW, before) == before
    assert desired_state("ready", NOW - timedelta(seconds=5), NOW, before) is Lifecycle.ENQUEUED
    assert desired_state("running", NOW, NOW, before) is Lifecycle.IN_PROGRESS


def test_after_five_repairs_in_an_hour_we_stop() -> None:
    repairs = [NOW - timedelta(minutes=10 * number) for number in range(5)]
    assert not repairs_allowed(repairs, NOW)
    assert repairs_allowed(repairs[1:], NOW)
    assert repairs_allowed(repairs, NOW + timedelta(minutes=20))
