"""The contract of `Feeds`: what is read, by whom, and what becomes of it."""

from __future__ import annotations

from harken.testing.store.committing import CommittingContract
from harken.testing.store.gathering import GatheringContract
from harken.testing.store.leasing import LeasingContract
from harken.testing.store.opening import OpeningContract
from harken.testing.store.quiet import QuietContract
from harken.testing.store.remembering import RememberingContract
from harken.testing.store.sharing import SharingContract
from harken.testing.store.slots import SlotContract
from harken.testing.store.starting import StartingContract

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
