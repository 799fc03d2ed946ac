"""Durable events a second through the Redis store, beside bare streams with the same payloads in the same run.

Bare: a pipeline of XADD, one XREADGROUP, one XACK. The server has `appendfsync always` for both.
"""

from __future__ import annotations

import msgspec

from bench import durable
from bench.figures import Figure, Say
from bench.processes import report
from bench.servers import durable_redis
from bench.sizes import Sizes

__all__ = ["measure"]

GOAL = 0.4


def measure(sizes: Sizes, say: Say) -> list[Figure]:
    """One server for all ways, a numbered database for each."""
    with durable_redis() as server:
        asked = durable.Asked(
            urls={way: server.url(number) for number, way in enumerate(durable.WAYS)},
            batch=sizes.store_batch,
            batches=sizes.store_batches,
            rounds=sizes.rounds,
        )
        told = report("bench.redis_flow", msgspec.to_builtins(asked))
    rounds = msgspec.convert(told, list[dict[str, durable.Spent]])
    return durable.figures("Redis", rounds, asked, GOAL, say)
