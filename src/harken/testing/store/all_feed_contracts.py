"""The contract of `Feeds`, joined from its parts."""

from __future__ import annotations

from harken.testing.store.commits import CommitContract
from harken.testing.store.dedupe_and_throttle import LimitContract
from harken.testing.store.event_decided_by_many_triggers import ManyVerdictsContract
from harken.testing.store.feed_forget_pause_and_reset import MemoryContract
from harken.testing.store.gathered_and_held_runs import GatherContract
from harken.testing.store.joining import JoinContract
from harken.testing.store.leases import LeaseContract
from harken.testing.store.opening_with_definitions import OpenContract
from harken.testing.store.overlapping_runs import SlotContract
from harken.testing.store.quiet_hours import QuietHoursContract
from harken.testing.store.runs_executed_before_commit import EarlyEndContract
from harken.testing.store.shards import ShardContract
from harken.testing.store.trigger_start_modes import StartupModeContract

__all__ = ["FeedsContract"]


class FeedsContract(
    OpenContract,
    StartupModeContract,
    LeaseContract,
    ShardContract,
    CommitContract,
    EarlyEndContract,
    ManyVerdictsContract,
    MemoryContract,
    GatherContract,
    JoinContract,
    LimitContract,
    SlotContract,
    QuietHoursContract,
):
    """Subclass it with the fixtures `store` and `reopen`."""
