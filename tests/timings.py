"""Longer naps for engines on virtual time, where days of quiet are played."""

from __future__ import annotations

from harken.timings import Timings

__all__ = ["LONG_NAPS"]

LONG_NAPS = Timings(
    idle_flush=30.0,
    worker_sleep=60.0,
    lease_looks=3,
    freshness_round=60.0,
    housekeeping_round=60.0,
    beat=60.0,
    alive=150.0,
)
"""What an engine looks at every few seconds, only to see that nothing happened, is looked at every minute."""
