"""The store: five small protocols of domain verbs. Each has a contract suite that every store passes.

Every verb is one transaction: it happened as a whole, or it did not happen. A verb that returned has survived a
power cut. Verbs raise StoreBusy (nothing was written, try again), StoreUnavailable (cannot write now) or LeaseLost.
"""

from harken.store.protocols import Connection, Feeds, Records, Registry, Runs, Store, Upkeep
from harken.store.values import (
    HOUSEKEEPING,
    Commit,
    Committed,
    DeadLetter,
    Definitions,
    Document,
    Entry,
    Failure,
    GatherInto,
    Generation,
    HeldLease,
    IdleRead,
    Intent,
    Lease,
    Listeners,
    NewRun,
    Opened,
    Page,
    Settlement,
    Stale,
    Tick,
)

__all__ = [
    "HOUSEKEEPING",
    "Commit",
    "Committed",
    "Connection",
    "DeadLetter",
    "Definitions",
    "Document",
    "Entry",
    "Failure",
    "Feeds",
    "GatherInto",
    "Generation",
    "HeldLease",
    "IdleRead",
    "Intent",
    "Lease",
    "Listeners",
    "NewRun",
    "Opened",
    "Page",
    "Records",
    "Registry",
    "Runs",
    "Settlement",
    "Stale",
    "Store",
    "Tick",
    "Upkeep",
]
