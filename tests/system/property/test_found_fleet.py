"""Scenarios of a fleet that once went wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.system.property.fleet import played
from tests.system.property.fleet_scenario import LEASE, Hazard
from tests.system.property.fleet_stores import SqliteHome
from tests.system.property.scenarios import (
    Burst,
    FeedPlan,
    Flap,
    Lid,
    Meanwhile,
    Put,
    Remove,
    Scenario,
    Tidy,
    TriggerPlan,
    Turn,
    Wait,
)

LISTING = FeedPlan(view="listing", identity="once")
PLAIN = TriggerPlan(feed=0)
FOR_GOOD = 20_000.0


def test_replicas_read_on_when_one_applies_an_older_configuration_late_and_dies(room: Path) -> None:
    late = (Hazard(2, "freeze", 0, False, LEASE + 60.0, "open"), Hazard(2, "crash", 0, True, FOR_GOOD, "open"))
    edits = (Turn(0, "edit"), Wait(65.0), Turn(0, "edit"), Wait(900.0))
    script: Any = (Wait(400.0), *late, *edits, Put(0, 1, 0), Wait(900.0))
    fleet = played(Scenario(feeds=(LISTING,), triggers=(PLAIN,), script=script), SqliteHome(room))
    notes = fleet.exchange.history.notes
    died = max(note.at for note in notes if note.who == "r2.1")
    taken = [note.at for note in notes if note.verb == "lease" and note.what == 1 and note.at > died]
    assert min(taken) <= died + 2 * LEASE


def test_what_was_read_before_a_reset_does_not_undo_it(room: Path) -> None:
    """The replica that reads hears of the reset late, and writes what it found before it: nothing new, until when."""
    feed = FeedPlan(view="since", identity="change", interval=300.0, page_size=2, latency=3.0)
    triggers = (PLAIN, TriggerPlan(feed=0, condition=1, gather=(120.0, 0), early=False), TriggerPlan(feed=0))
    again = (Put(0, 1, 0), Wait(400.0), Turn(0, "reset_cursor"), Put(0, 1, 0), Wait(2_000.0))
    script: Any = (Turn(2, "reset"), *again)
    played(Scenario(feeds=(feed,), triggers=triggers, script=script, push=True), SqliteHome(room))


def test_a_reset_is_not_forgotten_by_a_replica_that_loads_its_files_before_it_hears_of_it(room: Path) -> None:
    log = FeedPlan(view="log", identity="change", page_size=1)
    script: Any = (Turn(0, "reset_cursor"), Put(0, 2, 0, None))
    played(Scenario(feeds=(log,), triggers=(PLAIN,), script=script, cron="all"), SqliteHome(room))


def test_what_a_new_configuration_has_freed_is_not_taken_beyond_the_fair_share(room: Path) -> None:
    """A shard was unleased at one look, leased meanwhile, and free again because all leases ended with a reload."""
    feed = FeedPlan(view="listing", identity="once", interval=300.0, page_size=100, conditional=True)
    frozen = tuple(Hazard(replica, "freeze", 0, False, LEASE + 40.0, "commit") for replica in range(3))
    script: Any = (
        Lid(600.0),
        Put(0, 0, 0, 0.0),
        Hazard(0, "crash", 1, True, 40.0),
        Put(0, 3, 0, 0.0),
        Hazard(0, "crash", 0, False, 0.0, "commit"),
        Wait(400.0),
        Burst(0, 6, 2, False),
        Wait(65.0),
        Hazard(1, "crash", 0, False, 60.0),
        Put(0, 2, 0, 0.0),
        *frozen,
        Wait(900.0),
        Hazard(0, "cut", 3, True, 40.0, "settle"),
        Lid(300_000.0),
        Wait(400.0),
        Lid(600.0),
        Hazard(0, "crash", 1, False, 40.0, "commit"),
        Turn(0, "add"),
        Hazard(0, "crash", 4, True, 0.0),
        Burst(0, 6, 6, True),
        Meanwhile(Put(0, 4, 2, 4000.0)),
    )
    triggers = (PLAIN, PLAIN)
    scenario = Scenario(feeds=(feed,), triggers=triggers, script=script, cron="coalesce", push=True, seed=2)
    played(scenario, SqliteHome(room))


def test_a_start_that_hangs_between_opening_and_its_lease_begins_where_the_others_stand(room: Path) -> None:
    """It read as if nobody had read before: what was new then was held as a flood, and nothing let it go."""
    feed = FeedPlan(view="log", identity="transition", interval=60.0, page_size=2)
    triggers = (TriggerPlan(feed=0, flow="slow"), TriggerPlan(feed=0, startup="backfill", backfill=80_000.0))
    gone = Remove(0, 0)
    script: Any = (
        Hazard(0, "cut", 5, True, 40.0, "commit"),
        gone,
        Hazard(2, "freeze", 0, False, 60.0, "lease"),
        gone,
        Flap(0, 0, 5.0),
        Hazard(1, "freeze", 0, False, 0.0),
        gone,
        Hazard(1, "crash", 1, True, 60.0, "commit"),
        gone,
        Tidy(),
        Hazard(2, "freeze", 1, True, 900.0, "commit"),
        Lid(600.0),
        Turn(0, "resume"),
        Hazard(0, "cut", 1, False, 40.0, "journal"),
        Lid(30_000.0),
        Wait(400.0),
        Lid(300_000.0),
        Hazard(1, "cut", 1, False, 900.0),
        Tidy(),
        Hazard(2, "freeze", 0, True, 900.0),
        Wait(2_000.0),
    )
    played(Scenario(feeds=(feed,), triggers=triggers, script=script, push=True, seed=2), SqliteHome(room))
