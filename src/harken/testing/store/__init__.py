"""The contract that every store passes: one suite for each protocol of harken.store.

A store's test module gives two fixtures and subclasses the suites; see docs/reference/testing.md.
"""

from harken.testing.store.budgets import BudgetContract
from harken.testing.store.feeds import FeedsContract
from harken.testing.store.records import RecordsContract
from harken.testing.store.registry import RegistryContract
from harken.testing.store.runs import RunsContract
from harken.testing.store.upkeep import UpkeepContract
from harken.testing.store.world import Given, Reopen, StoreWorld

__all__ = [
    "BudgetContract",
    "FeedsContract",
    "Given",
    "RecordsContract",
    "RegistryContract",
    "Reopen",
    "RunsContract",
    "StoreWorld",
    "UpkeepContract",
]
