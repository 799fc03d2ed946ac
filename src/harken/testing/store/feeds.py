"""The contract of `Feeds`: what is read, by whom, and what becomes of it."""

from __future__ import annotations

from harken.testing.store.commits import CommittingContract
from harken.testing.store.gathering import GatheringContract
from harken.testing.store.leases import LeasingContract
from harken.testing.store.memory import RememberingContract
from harken.testing.store.opening import OpeningContract
from harken.testing.store.quiet_hours import QuietContract
from harken.testing.store.shards import SharingContract
from harken.testing.store.slots import SlotContract
from harken.testing.store.startup_modes import StartingContract

__all__ = ["FeedsContract"]


class FeedsContract(
    OpeningContract,
    StartingContract,
    LeasingContract,
    SharingContract,
    CommittingContract,
    RememberingContract,
    GatheringContract,
    SlotContract,
    QuietContract,
):
    """Subclass it beside a `store` and a `reopen` fixture."""
