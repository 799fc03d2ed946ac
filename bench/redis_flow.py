"""The rounds on Redis: our store, and beside it a bare stream with a consumer group."""

from __future__ import annotations

from typing import Any

from redis.asyncio import Redis

from bench.store_rounds import BARE, Asked, Meter, Way, ours, rounds_of, told
from harken.backends.redis import RedisStore
from harken.event import Event

__all__ = ["rounds_on_redis"]

STREAM, GROUP = "events", "workers"


class Bare:
    def __init__(self, client: Any) -> None:
        self.client = client

    async def batch(self, shown: list[Event]) -> None:
        async with self.client.pipeline(transaction=False) as pipeline:
            for one in shown:
                pipeline.xadd(STREAM, {"key": one.key, "subject": one.subject, "type": one.type, "data": one.raw})
            await pipeline.execute()
        [(_, entries)] = await self.client.xreadgroup(GROUP, "w", {STREAM: ">"}, count=len(shown))
        if await self.client.xack(STREAM, GROUP, *(name for name, _ in entries)) != len(shown):
            raise RuntimeError("not every entry was acknowledged")


async def rounds_on_redis(asked: Asked) -> Any:
    client = Redis.from_url(asked.urls[BARE])
    await client.xgroup_create(STREAM, GROUP, id="0", mkstream=True)

    async def meter() -> Meter:
        """The CPU time and memory of the server, which does nothing else during a batch."""
        cpu, memory = await client.info("cpu"), await client.info("memory")
        return Meter(server=cpu["used_cpu_user"] + cpu["used_cpu_sys"], bytes=memory["used_memory"])

    bare = Way(name=BARE, batch=Bare(client).batch, meter=meter)
    stores = {name: RedisStore.at(url) for name, url in asked.urls.items() if name != BARE}
    try:
        return await rounds_of([bare, *await ours(stores, dict.fromkeys(stores, meter))], asked)
    finally:
        for store in stores.values():
            await store.close()
        await client.aclose()


if __name__ == "__main__":
    told(rounds_on_redis)
