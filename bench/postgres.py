"""Durable events a second through the PostgreSQL store, beside bare asyncpg on the same tables in the same run.

Bare: the same rows inserted in one transaction, dequeued by SKIP LOCKED with their events, and settled. Shorter: the
same without claims, so that a run is done as soon as it is dequeued.
"""

from __future__ import annotations

from bench import store_rounds
from bench.figures import Figure, Say
from bench.measurement_sizes import Sizes
from bench.servers import durable_postgres, new_database

__all__ = ["measure"]

GOALS = {store_rounds.CLAIMED: 0.5, store_rounds.HANDED: 0.7}


def measure(sizes: Sizes, say: Say) -> list[Figure]:
    """Start one server, with a database for each way."""
    with durable_postgres() as server:
        urls = {way: new_database(server) for way in (store_rounds.SHORTER, *store_rounds.WAYS)}
        return store_rounds.measured("PostgreSQL", "bench.postgres_flow", urls, GOALS, sizes, say)
