"""How much is measured: the whole, a quick look, or so little that only a test is interested."""

from __future__ import annotations

import msgspec

__all__ = ["FULL", "QUICK", "TINY", "Sizes"]


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """Rounds are interleaved with those of the limit; of each the median counts."""

    rounds: int
    webhook_events: int
    peer_events: int
    connections: int = 16
    poll_feeds: int = 8
    poll_pages: int
    poll_page: int = 100
    stream_messages: int
    stream_batch: int = 200
    stream_systems: tuple[str, ...] = ()
    """All systems that there are, if empty."""
    tick_feeds: int
    tick_passes: int
    scale: tuple[int, ...]
    scale_rate: float = 300.0
    scale_seconds: float
    lag_feeds: int
    lag_interval: float = 10.0
    idle_feeds: int
    idle_seconds: float
    starts: int
    start_files: int
    store_batch: int = 100
    store_batches: int
    fleet_replicas: int = 4
    fleet_feeds: int
    fleet_seconds: float
    takeover_feeds: int
    growth_rows: int
    growth_server_rows: int
    growth_rate: float = 64.0
    growth_seconds: float
    growth_explained: int = 50
    trigger_rows: int
    row_stores: tuple[str, ...]


FULL = Sizes(
    rounds=3,
    webhook_events=12_000,
    peer_events=6_000,
    poll_pages=25,
    stream_messages=18_000,
    tick_feeds=500,
    tick_passes=4,
    # the fewest have an interval of 10 s at this rate, the shortest that there is for services of others
    scale=(3_000, 10_000, 100_000),
    scale_seconds=20.0,
    lag_feeds=10_000,
    idle_feeds=1_000,
    idle_seconds=20.0,
    starts=5,
    start_files=10_000,
    store_batches=30,
    fleet_feeds=100,
    fleet_seconds=8.0,
    takeover_feeds=10_000,
    growth_rows=1_000_000,
    growth_server_rows=200_000,
    growth_seconds=15.0,
    trigger_rows=100_000,
    row_stores=("SQLite", "PostgreSQL", "Redis"),
)
QUICK = msgspec.structs.replace(
    FULL,
    webhook_events=6_000,
    peer_events=2_000,
    poll_pages=12,
    stream_messages=9_000,
    tick_feeds=250,
    scale=(3_000, 10_000),
    scale_seconds=5.0,
    idle_seconds=8.0,
    starts=3,
    start_files=2_000,
    store_batches=15,
    fleet_feeds=50,
    fleet_seconds=5.0,
    takeover_feeds=1_000,
    growth_rows=200_000,
    growth_server_rows=50_000,
    growth_seconds=6.0,
    trigger_rows=10_000,
)
TINY = msgspec.structs.replace(
    FULL,
    rounds=1,
    webhook_events=64,
    peer_events=64,
    connections=2,
    poll_feeds=2,
    poll_pages=2,
    poll_page=10,
    stream_messages=60,
    stream_batch=5,
    # one whose stream can be read again, and one whose server is a process of ours
    stream_systems=("redis", "sse"),
    tick_feeds=5,
    tick_passes=2,
    scale=(10, 20),
    scale_rate=50.0,
    scale_seconds=0.5,
    lag_feeds=20,
    lag_interval=0.5,
    idle_feeds=3,
    idle_seconds=0.5,
    starts=1,
    start_files=30,
    store_batch=5,
    store_batches=2,
    fleet_replicas=2,
    fleet_feeds=8,
    fleet_seconds=2.0,
    takeover_feeds=0,
    growth_rows=300,
    growth_server_rows=300,
    growth_seconds=0.3,
    growth_explained=2,
    trigger_rows=60,
    row_stores=("SQLite",),
)
