"""How often the engine looks, and how long it waits: one value for a whole process, so that tests can pass another."""

from __future__ import annotations

import msgspec

__all__ = ["Timings"]


class Timings(msgspec.Struct, frozen=True, kw_only=True):
    """The defaults are those of a real process. All are seconds, except `lease_looks` and `memory_cap`."""

    lease_seconds: float = 30.0
    """How long a shard lease, or the lease of housekeeping, lasts. It is renewed after a third of that."""
    lease_looks: int = 20
    """How often within `lease_seconds` a replica looks for shards that nobody holds."""
    claim_seconds: float = 60.0
    """How long a claimed run belongs to its worker without a heartbeat."""
    agent_grace: float = 20.0
    """How long an agent has between SIGTERM and SIGKILL."""
    idle_flush: float = 5.0
    """How often reads that found nothing new are written to the store."""
    reconnect: float = 60.0
    """A stream that broke is opened again as a feed that is read so often: after a few seconds, later up to this."""
    scheduler_nap: float = 5.0
    """The longest sleep of the scheduler; a jump of the wall clock is noticed within this time."""
    scheduler_dead: float = 60.0
    """A scheduler that has not woken up for so long counts as dead, and its leases are released."""
    worker_sleep: float = 5.0
    """The longest time between two looks of a worker for runs that nobody notified it of."""
    beat: float = 5.0
    """How often a replica writes that it is alive."""
    alive: float = 12.0
    """How long after its last beat a replica counts as alive.

    `alive + beat` is shorter than what is left of a lease that was renewed in time, so that the fair shares are
    computed again before the leases of a dead replica end."""
    freshness_round: float = 5.0
    """How often triggers are compared with their `stale_after`."""
    housekeeping_round: float = 5.0
    """How often housekeeping is done."""
    ticket_runs_round: float = 5.0
    """How often the open runs of tickets are passed over: whether they are still wanted, and what was answered."""
    projection_round: float = 3.0
    """How often runs are looked for that have moved, to show that on their tickets."""
    memory_cap: int = 10_000
    """A listing with more items than this is warned about, because the memory of its feed grows with it."""
