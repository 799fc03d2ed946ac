"""The replicas that share a store, from their own heartbeats, and the shards that each holds."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from harken.operate.output_rows import Plain, plain
from harken.store import HOUSEKEEPING, Document, Store
from harken.store.document_kinds import REPLICA
from harken.timings import Timings

__all__ = ["READERS", "Member", "fleet", "living"]

READERS = ("all", "ingest")
"""The roles that poll and follow streams."""


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """One replica as of its last heartbeat. A `leaving` one finishes its runs and reads nothing more."""

    holder: str
    host: str = ""
    pid: int = 0
    url: str = ""
    role: str = "all"
    leaving: bool = False
    generation: str = ""
    shards: Sequence[int] = ()
    shards_of: int = 1
    lag_seconds: float = 0.0
    runs_in_flight: int = 0
    started_at: datetime | None = None

    @property
    def reads(self) -> bool:
        return self.role in READERS and not self.leaving


def living(documents: Sequence[Document], now: datetime, seconds: float) -> list[Member]:
    """The replicas whose heartbeat is recent by the store's clock."""
    return [
        msgspec.convert(document.value, Member)
        for document in documents
        if (now - document.updated_at).total_seconds() < seconds
    ]


async def fleet(store: Store, alive: float = Timings().alive) -> Plain:
    """The replicas, the configuration generation and the holders of shards; empty for a store that is not shared."""
    documents = await store.documents(REPLICA)
    if not documents:
        return {}
    now = max(document.updated_at for document in documents)
    leases = {held.shard: held.holder for held in await store.leases()}
    generation = await store.generation()
    members = sorted(living(documents, now, alive), key=lambda member: member.holder)
    shards = max((member.shards_of for member in members), default=0)
    return {
        "generation": generation.name,
        "epoch": generation.epoch,
        "since": plain(generation.since),
        "shards": shards,
        "unread_shards": [shard for shard in range(shards) if shard not in leases],
        "housekeeper": leases.get(HOUSEKEEPING, ""),
        "replicas": [_row(member, leases, generation.name) for member in members],
    }


def _row(member: Member, leases: dict[int, str], current: str) -> Plain:
    held = [shard for shard, holder in leases.items() if holder == member.holder and shard != HOUSEKEEPING]
    return {
        **plain(msgspec.to_builtins(member)),
        "shards": held,
        "current": member.generation == current,
    }
