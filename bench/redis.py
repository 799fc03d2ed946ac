"""Durable events a second through the Redis store, beside bare streams with the same payloads in the same run.

Bare: a pipeline of XADD, one XREADGROUP, one XACK. The server has `appendfsync always` for both.
"""

from __future__ import annotations

from bench import store_rounds
from bench.figures import Figure, Say
from bench.measurement_sizes import Sizes
from bench.servers import durable_redis

__all__ = ["measure"]

GOALS = {store_rounds.CLAIMED: 0.4, store_rounds.HANDED: 0.5}


def measure(sizes: Sizes, say: Say) -> list[Figure]:
    """One server for all ways, a numbered database for each."""
    with durable_redis() as server:
        urls = {way: server.url(number) for number, way in enumerate(store_rounds.WAYS)}
        return store_rounds.measured("Redis", "bench.redis_flow", urls, GOALS, sizes, say)
