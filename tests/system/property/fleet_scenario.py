"""What can happen to a fleet, beside all that can happen to one process."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import msgspec
from hypothesis import strategies as st

from harken.testing import shared_store_faults_per_replica
from tests.system.property import scenarios

__all__ = [
    "ALIVE_SECONDS",
    "BEAT_SECONDS",
    "HOUSE_SECONDS",
    "LEASE",
    "LONGEST",
    "REPLICAS",
    "SHARDS",
    "TIMINGS",
    "Hazard",
    "Leave",
    "Outage",
    "fleets",
]

REPLICAS = 3
SHARDS = 3
# about ten times as long as in the application, so that an hour has a tenth of the verbs
LEASE = 300.0
BEAT_SECONDS = 75.0
ALIVE_SECONDS = 200.0
HOUSE_SECONDS = 50.0
# as long as a commit claims runs for its caller
CLAIM_SECONDS = 60.0
TIMINGS = msgspec.structs.replace(
    scenarios.RARE_LOOKS, lease_seconds=LEASE, claim_seconds=CLAIM_SECONDS, beat=BEAT_SECONDS, alive=ALIVE_SECONDS
)
LONGEST = 3 * LEASE


@dataclass(frozen=True)
class Hazard:
    """At a store verb to come, before it is sent or when it has taken effect: crash, freeze or cut.

    `seconds`: so long the replica is away, frozen, or without the store. `only` counts verbs of one name.
    """

    replica: int
    what: Literal["crash", "freeze", "cut"]
    verbs: int
    after: bool
    seconds: float
    only: str = ""

    def strike(self) -> shared_store_faults_per_replica.Hazard:
        """What the replica's connection to the store is told."""
        return shared_store_faults_per_replica.Hazard(
            what=self.what, verbs=self.verbs, after=self.after, seconds=self.seconds, only=self.only
        )


@dataclass(frozen=True)
class Leave:
    """A replica stops cleanly, and is back after so long."""

    replica: int
    seconds: float


@dataclass(frozen=True)
class Outage:
    """The store drops all connections, and takes nobody for so long."""

    seconds: float


def hazards() -> st.SearchStrategy[Hazard]:
    replica, after = st.integers(0, REPLICAS - 1), st.booleans()
    # shorter than a lease, longer than the claim of a run, than a lease, and much longer
    seconds = st.sampled_from((0.0, 60.0, 150.0, LEASE + 60.0, LONGEST))
    what = st.sampled_from(("crash", "freeze", "freeze", "cut"))
    only = st.sampled_from(("commit", "commit", "record_idle", "lease", "settle", "journal", "claim", "open", "fail"))
    return st.one_of(
        st.builds(Hazard, replica, what, st.integers(0, 12), after, seconds),
        st.builds(Hazard, replica, what, st.integers(0, 1), after, seconds, only),
    )


def troubles() -> st.SearchStrategy[Any]:
    leave = st.builds(Leave, st.integers(0, REPLICAS - 1), st.sampled_from((0.0, 40.0, 300.0)))
    outage = st.builds(Outage, st.sampled_from((1.0, 40.0, LEASE + 40.0)))
    return st.one_of(hazards(), hazards(), hazards(), leave, outage)


def everybody(what: Literal["crash", "freeze", "cut"], after: bool, seconds: float, only: str) -> tuple[Any, ...]:
    """It befalls whoever is the reader: the others never come to such a verb."""
    return tuple(Hazard(replica, what, 0, after, seconds, only) for replica in range(REPLICAS))


STORIES: tuple[tuple[Any, ...], ...] = (
    # the reader freezes with a page in its hands; another reads on; the page comes late
    (scenarios.Put(0, 1, 0), *everybody("freeze", False, LEASE + 40.0, "commit")[:1], scenarios.Wait(900.0)),
    (
        scenarios.Wait(65.0),
        scenarios.Put(0, 2, 0),
        *everybody("freeze", False, LEASE + 40.0, "commit"),
        scenarios.Wait(900.0),
    ),
    # it was written, and nobody heard of it
    (scenarios.Put(0, 3, 0), *everybody("cut", True, 40.0, "commit"), scenarios.Wait(400.0)),
    (scenarios.Put(0, 4, 0), *everybody("crash", True, 40.0, "settle"), scenarios.Wait(400.0)),
    # a step is done, but its replica freezes before it can say so; another does it again
    (scenarios.Burst(0, 6, 6, False), *everybody("freeze", False, 150.0, "journal"), scenarios.Wait(900.0)),
)


@st.composite
def fleets(draw: st.DrawFn) -> scenarios.Scenario:
    """A configuration with a script, for replicas that share one store."""
    scenario = draw(scenarios.scenarios(draw(st.sampled_from(("listing", "listing", "since", "log"))), more=True))
    script = [_for_one(it) for it in scenario.script[:30] if not _sets_back(it)]
    parts = draw(st.lists(troubles().map(lambda it: (it,)) | st.sampled_from(STORIES), min_size=2, max_size=6))
    for part in parts:
        place = draw(st.integers(0, len(script)))
        script[place:place] = part
    triggers = tuple(_shared(trigger, draw(st.booleans())) for trigger in scenario.triggers)
    return replace(scenario, script=tuple(script), triggers=triggers)


def _sets_back(it: Any) -> bool:
    """The store's clock is not set back by half an hour: a lease of the dead would last as much longer."""
    return isinstance(it, scenarios.Jump) and it.seconds < -LEASE


def _for_one(it: Any) -> Any:
    """What befalls the process of a single one befalls the first of many."""
    if isinstance(it, scenarios.Crashing):
        return Hazard(0, "crash", it.verbs, it.after, min(it.down, LONGEST), it.only)
    if isinstance(it, scenarios.Locked):
        return Hazard(0, "cut", it.verbs, it.after, 40.0, it.only)
    if isinstance(it, scenarios.Restart):
        return Leave(0, min(it.down, LONGEST))
    return it


def _shared(trigger: scenarios.TriggerPlan, slow: bool) -> scenarios.TriggerPlan:
    # what a replica has not read since it began is something else for each of them
    startup = "since_last" if trigger.startup == "ignore_historical" else trigger.startup
    return replace(trigger, startup=startup, flow="slow" if slow else trigger.flow)
