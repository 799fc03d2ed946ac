"""What a Redis keeps, said at start: how durable its writes are, and how much memory a day of events takes."""

from __future__ import annotations

from typing import Any

import msgspec
import structlog
from redis.exceptions import NoPermissionError, ResponseError

from harken.backends.redis.codec import BUCKET
from harken.backends.redis.connection import Connection
from harken.backends.redis.definitions import now_of
from harken.backends.redis.transaction import Transaction
from harken.errors import Misconfigured, StoreUnavailable

__all__ = ["Forecast", "Promise", "forecast", "keep_promise"]

log = structlog.get_logger("harken.store")

OLDEST = (6, 2)
WAITS_FOR_DISKS = (7, 2)
DAY = 86_400_000_000


class Promise(msgspec.Struct, frozen=True, kw_only=True):
    """`full`: what was acknowledged survives a kill and a power cut. `words` say so, or what may be lost."""

    full: bool
    words: str
    replicas: int = 0


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """Memory as it was measured: everything that Redis holds, by the events it holds. 0 where there is no event yet."""

    bytes_per_event: float
    events_per_day: float
    bytes_per_day: float
    limit: int

    def __str__(self) -> str:
        if not self.bytes_per_event:
            return "no events yet: the memory that a day takes is not known"
        a_day = f"{self.bytes_per_day / 1e6:.1f} MB for each day that events are kept"
        measured = f"{self.bytes_per_event:.0f} bytes per event, {self.events_per_day:.0f} events a day"
        room = f"; maxmemory allows {self.limit / max(self.bytes_per_day, 1):.0f} days" if self.limit else ""
        return f"{a_day} ({measured}){room}"


async def keep_promise(connection: Connection, before: Promise | None = None) -> Promise:
    """Refuse a server that would throw rows away; say what the others keep, and wait for replicas where that helps.

    What was said `before` is not said again."""
    [info] = await connection.read(("INFO",))
    if int(info.get("loading", 0)):
        # it does not say yet what it will do
        raise StoreUnavailable("Redis is loading its data", after=2.0)
    version = tuple(int(part) for part in str(info["redis_version"]).split(".")[:2])
    if version < OLDEST:
        fix = "Use Redis 6.2 or newer, best 7.2"
        raise Misconfigured(f"Redis {info['redis_version']} is too old for the store", fix=fix)
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        fix = "Set maxmemory-policy noeviction: a store must not throw rows away"
        raise Misconfigured(f"Redis evicts keys when its memory is full (maxmemory-policy {policy})", fix=fix)
    if info.get("role") != "master":
        raise Misconfigured("this Redis is a replica", fix="Name the primary in the store's URL")
    promise = judge(info, await _fsync(connection), version)
    connection.replicas = promise.replicas
    if promise == before:
        return promise
    if promise.full:
        log.info("store.promise", words=promise.words)
    else:
        log.warning("store.promise_reduced", reason=promise.words)
    return promise


async def _fsync(connection: Connection) -> str:
    """The appendfsync of the server; empty where it does not tell."""
    try:
        found = await connection.redis.config_get("appendfsync")
    except (NoPermissionError, ResponseError):
        return ""
    return str(found.get("appendfsync") or "")


def judge(info: dict[str, Any], fsync: str, version: tuple[int, ...]) -> Promise:
    """What a server with these settings keeps."""
    replicas = int(info.get("connected_slaves", 0))
    if not int(info.get("aof_enabled", 0)):
        words = "reduced promise: without appendonly a crash of Redis loses all since its last snapshot"
        return Promise(full=False, words=words)
    if fsync != "always":
        how = f"appendfsync {fsync or 'unknown'}"
        words = f"reduced promise: with {how} a crash of Redis or of its machine may lose the last seconds"
        return Promise(full=False, words=words)
    if not replicas:
        return Promise(full=True, words="full promise: every write is on the disk of this Redis (appendfsync always)")
    if version < WAITS_FOR_DISKS:
        words = (
            f"reduced promise: a write is not known to be on the {replicas} replicas, so a failover may lose the last "
            "ones. Redis 7.2 can wait for them (WAITAOF)"
        )
        return Promise(full=False, words=words)
    words = f"full promise: every write is on the disks of this Redis and of {replicas} replicas (WAITAOF)"
    return Promise(full=True, words=words, replicas=replicas)


async def forecast(tx: Transaction, events_per_day: float | None) -> Forecast:
    """Predict memory per day of retention; without a rate, from the events that are there."""
    [info, rows] = await tx.connection.read(("INFO", "memory"), ("HMGET", tx.connection.key("n"), "events", "event"))
    count, following = int(rows[0] or 0), int(rows[1] or 1)
    used = int(info["used_memory"]) - int(info.get("used_memory_startup", 0))
    per_event = used / count if count else 0.0
    if events_per_day is None:
        events_per_day = await _rate(tx, count, following) if count else 0.0
    limit = int(info.get("maxmemory", 0))
    return Forecast(
        bytes_per_event=per_event,
        events_per_day=events_per_day,
        bytes_per_day=per_event * events_per_day,
        limit=limit,
    )


async def _rate(tx: Transaction, count: int, following: int) -> float:
    """Events a day since the oldest that is kept."""
    [first] = await tx.connection.read(("ZRANGE", tx.connection.key("eb"), 0, 0))
    begin = int(first[0]) * BUCKET
    oldest = await tx.events(range(begin, min(begin + BUCKET, following)))
    age = await now_of(tx) - oldest[0].recorded_at.timestamp() * 1e6 if oldest else 0
    return count * DAY / max(age, DAY / 24)
