"""Scenarios that once went wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.system.property.scenarios import (
    Burst,
    Crashing,
    FeedPlan,
    Flap,
    Jump,
    Lid,
    Locked,
    Meanwhile,
    Push,
    Put,
    Remove,
    Scenario,
    Tidy,
    TriggerPlan,
    Trouble,
    Turn,
    Wait,
)
from tests.system.property.test_histories import played

LISTING = FeedPlan(view="listing", identity="once")
PLAIN = TriggerPlan(feed=0)
DIGEST = TriggerPlan(feed=0, gather=(600.0, 0))


def test_a_digest_that_began_in_the_first_read_is_released_with_it(room: Path) -> None:
    script = (Trouble(0, "unavailable", 70.0, None), Put(0, 1, 0), Wait(400.0))
    played(Scenario(feeds=(LISTING,), triggers=(DIGEST,), script=script), room)


def test_an_event_is_not_gathered_again_when_another_trigger_is_reset(room: Path) -> None:
    script = (Wait(65.0), Burst(0, 6, 3, True), Wait(900.0), Turn(0, "reset_cursor"), Wait(400.0))
    played(Scenario(feeds=(LISTING,), triggers=(PLAIN, DIGEST), script=script), room)


def test_a_trigger_that_was_added_during_the_first_read_is_released_with_it(room: Path) -> None:
    late = TriggerPlan(feed=0, early=False)
    script = (Put(0, 1, 0, -14_400.0), Meanwhile(Turn(1, "add")), Wait(65.0))
    played(Scenario(feeds=(LISTING,), triggers=(PLAIN, late), script=script), room)


def test_a_trigger_that_was_away_when_the_first_read_ended_is_released_when_it_comes_back(room: Path) -> None:
    feed = FeedPlan(view="since", identity="once", page_size=2)
    script = (Burst(0, 6, 5, True), Crashing(1, False, 0.0, None, "commit"), Wait(0.1), Turn(0, "drop"), Wait(400.0))
    played(Scenario(feeds=(feed,), triggers=(PLAIN,), script=script), room)


def test_a_reset_during_a_read_begins_the_read_again(room: Path) -> None:
    undated = (Put(0, 1, 0, None), Put(0, 2, 0, None))
    script = (*undated, Wait(65.0), Put(0, 3, 0, None), Meanwhile(Turn(0, "reset_cursor")), Wait(900.0))
    for view in ("listing", "log"):
        feed = FeedPlan(view=view, identity="once", page_size=2)
        played(Scenario(feeds=(feed,), triggers=(PLAIN,), script=script), room)


def test_ends_of_runs_are_announced_when_the_clock_was_set_back(room: Path) -> None:
    script = (Wait(1.0), Push((1,)), Jump(-2_000.0), Push((2,)), Flap(0, 1, 5.0), Wait(400.0))
    played(Scenario(feeds=(LISTING,), triggers=(PLAIN,), script=script, push=True, announced=True), room)


def test_an_event_is_not_gathered_again_after_a_reset_although_the_clock_was_set_back(room: Path) -> None:
    feed = FeedPlan(view="listing", identity="once", interval=300.0, page_size=100, cap=3, conditional=True)
    again = (Put(0, 1, 0), Wait(400.0), Turn(0, "reset_cursor"), Wait(1.0), Put(0, 1, 0), Wait(400.0))
    digest = TriggerPlan(feed=0, condition=2, gather=(600.0, 2), overlap="queue")
    script = (Jump(-2_000.0), *again, Jump(30.0), Wait(65.0), Crashing(5, False, 0.0), Lid(30_000.0), *again)
    triggers = (PLAIN, digest, TriggerPlan(feed=0, condition=1))
    played(Scenario(feeds=(feed,), triggers=triggers, script=script, seed=1), room)


def test_an_event_that_had_its_run_does_not_share_one_when_it_is_found_again_and_old(room: Path) -> None:
    script = (Wait(1.0), Put(0, 1, 0), Wait(400.0), Turn(0, "reset_cursor"), Wait(400.0))
    old = TriggerPlan(feed=0, max_age=60.0)
    played(Scenario(feeds=(LISTING,), triggers=(PLAIN, old), script=script), room)


def test_an_event_that_shared_a_run_has_none_of_its_own_when_it_is_found_again_and_young(room: Path) -> None:
    late = (Trouble(0, "timeout", 5.0, 0.0), Put(0, 1, 0), Wait(400.0))
    script = (*late, Turn(0, "reset_cursor"), Wait(1.0), Put(0, 1, 0), Wait(400.0))
    feed = FeedPlan(view="listing", identity="once", interval=60.0, latency=3.0)
    old = TriggerPlan(feed=0, max_age=60.0)
    played(Scenario(feeds=(feed,), triggers=(PLAIN, TriggerPlan(feed=0, early=False), old), script=script), room)


def test_a_trigger_that_was_removed_before_its_look_back_does_not_come_back_with_it(room: Path) -> None:
    looking = TriggerPlan(feed=0, backfill=7_200.0)
    script = (Turn(1, "drop"), Flap(0, 0, 5.0))
    played(Scenario(feeds=(LISTING,), triggers=(PLAIN, looking), script=script), room)


def test_a_digest_that_was_due_days_ago_waits_for_the_quiet_hours_of_today(room: Path) -> None:
    feed = FeedPlan(view="since", identity="once", interval=300.0, page_size=100, latency=3.0)
    digest = TriggerPlan(feed=0, condition=1, gather=(120.0, 0), overlap="cancel_previous", quiet=True)
    crash = Crashing(0, True, 5000.0, None, "commit")
    script = (Lid(300_000.0), Burst(0, 9, 7, False), crash, Wait(400.0), Lid(300_000.0))
    played(Scenario(feeds=(feed,), triggers=(PLAIN, digest), script=script), room)


def test_a_trigger_that_looks_back_finds_what_was_recorded_long_before_it_happened(room: Path) -> None:
    feed = FeedPlan(view="log", identity="once", page_size=3, named=True, latency=3.0)
    late = TriggerPlan(feed=0, condition=1, early=False, startup="backfill", backfill=600.0, max_age=3000.0)
    script = (Put(0, 2, 0, -14_400.0), Crashing(2, True, 5000.0), Wait(65.0))
    played(Scenario(feeds=(feed,), triggers=(late,), script=script, seed=1), room)


def test_a_page_that_could_not_be_stored_is_asked_for_again(room: Path) -> None:
    feed = FeedPlan(view="forward", identity="once", page_size=2)
    script = (Wait(65.0), Burst(0, 6, 5, True), Locked(1, only="commit"), Wait(400.0))
    played(Scenario(feeds=(feed,), triggers=(PLAIN,), script=script), room)


def test_a_page_that_was_stored_without_an_answer_is_not_taken_twice(room: Path) -> None:
    feed = FeedPlan(view="forward", identity="once", page_size=2)
    script = (Wait(65.0), Burst(0, 6, 5, True), Locked(1, after=True, only="commit"), Wait(400.0))
    played(Scenario(feeds=(feed,), triggers=(PLAIN,), script=script), room)


def test_a_first_read_whose_answer_was_lost_is_not_made_again(room: Path) -> None:
    """The store had it, and we did not know: what came next was held as the flood of a first read, for ever."""
    feed = FeedPlan(view="forward", identity="once", interval=60.0, page_size=2)
    again = (Put(0, 1, 0, 0.0), Wait(400.0), Turn(0, "reset_cursor"), Wait(1.0), Put(0, 1, 0, 0.0), Wait(400.0))
    lost: Any = (
        Turn(0, "reset_cursor"),
        Crashing(3, False, 0.0),
        Meanwhile(Flap(0, 0, 5.0)),
        Locked(1, True, "commit"),
    )
    script: Any = (Put(0, 0, 0, 0.0), *again, *lost, Wait(400.0), Lid(300_000.0), Tidy(), Wait(2_000.0))
    played(Scenario(feeds=(feed,), triggers=(TriggerPlan(feed=0),), script=script), room)


def test_a_trigger_that_was_added_and_removed_during_a_look_back_does_not_come_back_with_it(room: Path) -> None:
    feed = FeedPlan(view="since", identity="once", interval=300.0, page_size=100)
    looking = TriggerPlan(feed=0, early=False, backfill=7_200.0)
    added = (Put(0, 0, 0), Wait(400.0), Meanwhile(Turn(1, "add")), Put(0, 2, 0, -14_400.0), Wait(400.0))
    script = (*added, Put(0, 0, 0), Turn(1, "drop"))
    played(Scenario(feeds=(feed,), triggers=(PLAIN, looking), script=script), room)


def test_a_run_whose_claim_was_answered_to_nobody_is_done_although_the_clock_was_set_back(room: Path) -> None:
    script = (Put(0, 0, 0), Locked(1, True, "commit"), Push((0,)), Jump(-2_000.0))
    played(Scenario(feeds=(LISTING,), triggers=(PLAIN,), script=script, push=True), room)


def test_what_comes_late_while_a_read_is_interrupted_for_days_is_found_by_the_next_one(room: Path) -> None:
    """The last page had an item dated hours ahead, and days later that was the past: the watermark passed the rest."""
    feed = FeedPlan(view="since", identity="once", interval=60.0, page_size=2)
    first = (Crashing(0, False, 0.0), Put(0, 0, 0), Put(0, 0, 0, -14_400.0), Jump(-2_000.0), Tidy(), Put(0, 1, 0))
    between = (Crashing(1, True, 0.0), Put(0, 2, 0), Wait(1.0), Put(0, 1, 0), Burst(0, 6, 2, False))
    later: Any = (Trouble(0, "timeout", 700.0, None), Wait(400.0), Lid(300_000.0), Tidy(), Wait(2_000.0))
    script = (Wait(65.0), *first, *between, *later)
    played(Scenario(feeds=(feed,), triggers=(PLAIN,), script=script), room)


def test_a_start_line_that_is_moved_back_at_last_is_looked_back_to_by_the_next_read(room: Path) -> None:
    script = (Put(0, 0, 0, 45.0), Wait(900.0), Put(0, 0, 0), Remove(0, 0), Jump(-2_000.0))
    played(Scenario(feeds=(LISTING,), triggers=(PLAIN,), script=script, push=True, seed=2), room)
