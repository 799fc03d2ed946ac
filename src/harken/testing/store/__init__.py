"""The contract suites that every store must pass: at least one for each protocol of harken.store.

The test module of a store subclasses the suites and provides the fixtures `store` and `reopen`; see StoreWorld and
docs/reference/testing.md. A copy between stores has its own suites in harken.testing.store.transfer.
"""

from harken.testing.store.all_feed_contracts import FeedsContract
from harken.testing.store.budgets import BudgetContract
from harken.testing.store.documents_and_audit import RegistryContract
from harken.testing.store.record_queries import RecordsContract
from harken.testing.store.upkeep import UpkeepContract
from harken.testing.store.waiting_cancelled_retried_runs import RunsContract
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
