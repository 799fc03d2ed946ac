"""A stream that a killed replica followed is followed by the next one: nothing is lost, nothing runs twice."""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path

import pytest
from redis.asyncio import Redis

from tests.servers.redis import RedisServer
from tests.soak import SOAK
from tests.system.fleet.fleet import QUICK, Fleet
from tests.system.fleet.network import Direct
from tests.system.fleet.outside_world import SHARDS
from tests.system.fleet.replica_forker import Pace
from tests.system.fleet.replica_processes import Replica, until
from tests.system.fleet.stores import POSTGRES, running

pytestmark = [pytest.mark.process, pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")]

PACE = Pace() if SOAK else QUICK
"""In long rounds with the leases of a real one."""
TAKEOVER_SECONDS = 35.0

MAIN = f"""
shards: {SHARDS}
integrations:
  broker: {{kind: redis, url: "{{url}}"}}
agent: {{queue: {{shutdown_grace_seconds: 8}}}}
"""
ORDERS = """
name: orders
trigger:
  stream: {integration: broker, query: {stream: orders, batch: 20}}
steps:
  - {id: note, action: transform, set: {n: "{{.trigger.event.n}}"}}
"""


def configure(directory: Path, broker: RedisServer) -> Path:
    (directory / "workflows").mkdir(parents=True)
    (directory / "harken.yaml").write_text(MAIN.replace("{url}", broker.url()))
    (directory / "workflows" / "orders.yaml").write_text(ORDERS)
    return directory


class Shop:
    """Publishes orders, and knows which runs there have to be."""

    def __init__(self, broker: RedisServer) -> None:
        self._url = broker.url()
        self.wanted: Counter[tuple[str, str]] = Counter()

    async def publish(self, count: int) -> None:
        async with Redis.from_url(self._url) as client, client.pipeline(transaction=False) as pipeline:
            for number in range(count):
                pipeline.xadd("orders", {"data": b'{"n": %d}' % number})
            ids = await pipeline.execute()
        self.wanted.update(("orders", f"orders@{id.decode()}") for id in ids)


async def follower(fleet: Fleet) -> Replica:
    """Who follows the stream now."""
    [feed] = [state.name for state in await fleet.store.feeds() if state.name.startswith("redis")]
    shard = (await fleet.store.listeners(feed)).feed.shard
    pid = (await fleet.holders())[shard]
    return next(replica for replica in fleet.replicas if replica.pid == pid)


async def has(fleet: Fleet, count: int) -> bool:
    return len(await fleet.events()) >= count


@POSTGRES
async def test_a_stream_of_a_killed_replica_goes_on_within_35_seconds(kind: str, tmp_path: Path) -> None:
    """Two that follow streams, and one that executes: a run that a killed one has begun is claimed for a minute."""
    with running(kind) as (_, place), RedisServer(appendonly="yes") as broker:
        directory, shop = configure(tmp_path / "config", broker), Shop(broker)
        async with Fleet.at(tmp_path, Direct(place), place, [directory] * 3, PACE) as fleet:
            await fleet.start(0, role="ingest")
            await fleet.start(1, role="ingest")
            await fleet.settled()
            executing = await fleet.start(2, role="run")
            await until(executing.is_ready, TAKEOVER_SECONDS, fleet.told)
            await shop.publish(50)
            await fleet.quiet(shop.wanted)
            gone = await follower(fleet)
            await shop.publish(1_000)
            await until(lambda: has(fleet, 150), TAKEOVER_SECONDS, fleet.told)
            await fleet.kill(gone.number)
            killed, known = time.monotonic(), len(await fleet.events())
            await shop.publish(50)
            await until(lambda: has(fleet, 1_100), TAKEOVER_SECONDS, fleet.told)
            print(f"{known} of 1,050 were stored, the rest {time.monotonic() - killed:.1f} s later")  # noqa: T201
            assert (await follower(fleet)).number != gone.number
            await fleet.quiet(shop.wanted)
            runs = await fleet.runs()
            assert Counter((run.trigger, key) for run in runs for key in run.event_keys) == shop.wanted
            assert {run.status for run in runs} == {"done"}
            assert await fleet.flaws() == []
            await fleet.stop_all()
