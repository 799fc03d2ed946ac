"""The store: six small protocols. A contract suite (harken.testing.store) checks every implementation.

Every method is one transaction: it happens as a whole or not at all. What it wrote survives a power cut once it has
returned. Methods raise StoreBusy (nothing was written, try again), StoreUnavailable (cannot write now) or LeaseLost.
"""

from harken.store.protocols import Connection, Feeds, Records, Registry, Runs, Store, Upkeep
from harken.store.values import (
    HOUSEKEEPING,
    Backlog,
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
    "Backlog",
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
