"""How durable the writes of a server are, and how much memory a day of events takes."""

from __future__ import annotations

from typing import Any

import msgspec
import structlog
from redis.exceptions import NoPermissionError, ResponseError

from harken.backends.redis.codec import BUCKET
from harken.backends.redis.connection import Connection
from harken.backends.redis.connection_and_name_cache import Session
from harken.errors import Misconfigured, StoreUnavailable

__all__ = ["Durability", "Forecast", "forecast", "judge", "require_durable"]

log = structlog.get_logger("harken.store")

OLDEST_VERSION = (6, 2)
WAITAOF_VERSION = (7, 2)
DAY_US = 86_400_000_000


class Durability(msgspec.Struct, frozen=True, kw_only=True):
    """If `full`, every acknowledged write survives a kill and a power cut. `words` say so, or what may be lost.

    `replicas` have to confirm each write."""

    full: bool
    words: str
    replicas: int = 0


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """Measured: all memory that Redis uses, divided by the number of events in it. 0 if there are none yet."""

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


async def require_durable(connection: Connection, before: Durability | None = None) -> Durability:
    """Refuse a server that may delete rows. Log how durable another one is, unless it is as `before`."""
    [info] = await connection.execute(("INFO",))
    if int(info.get("loading", 0)):
        # its role is not known yet
        raise StoreUnavailable("Redis is loading its data", after=2.0)
    version = tuple(int(part) for part in str(info["redis_version"]).split(".")[:2])
    if version < OLDEST_VERSION:
        fix = "Use Redis 6.2 or newer, best 7.2"
        raise Misconfigured(f"Redis {info['redis_version']} is too old for the store", fix=fix)
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        fix = "Set maxmemory-policy noeviction: a store must not throw rows away"
        raise Misconfigured(f"Redis evicts keys when its memory is full (maxmemory-policy {policy})", fix=fix)
    if info.get("role") != "master":
        raise Misconfigured("this Redis is a replica", fix="Name the primary in the store's URL")
    found = judge(info, await _fsync(connection), version)
    connection.replicas = found.replicas
    if found == before:
        return found
    if found.full:
        log.info("store.durable", words=found.words)
    else:
        log.warning("store.durability_reduced", reason=found.words)
    return found


async def _fsync(connection: Connection) -> str:
    """The appendfsync setting of the server; empty if we may not read it."""
    try:
        found = await connection.redis.config_get("appendfsync")
    except (NoPermissionError, ResponseError):
        return ""
    return str(found.get("appendfsync") or "")


def judge(info: dict[str, Any], fsync: str, version: tuple[int, ...]) -> Durability:
    """How durable a server with these settings is."""
    replicas = int(info.get("connected_slaves", 0))
    if not int(info.get("aof_enabled", 0)):
        words = "reduced promise: without appendonly a crash of Redis loses all since its last snapshot"
        return Durability(full=False, words=words)
    if fsync != "always":
        how = f"appendfsync {fsync or 'unknown'}"
        words = f"reduced promise: with {how} a crash of Redis or of its machine may lose the last seconds"
        return Durability(full=False, words=words)
    if not replicas:
        return Durability(
            full=True, words="full promise: every write is on the disk of this Redis (appendfsync always)"
        )
    if version < WAITAOF_VERSION:
        words = (
            f"reduced promise: a write is not known to be on the {replicas} replicas, so a failover may lose the last "
            "ones. Redis 7.2 can wait for them (WAITAOF)"
        )
        return Durability(full=False, words=words)
    words = f"full promise: every write is on the disks of this Redis and of {replicas} replicas (WAITAOF)"
    return Durability(full=True, words=words, replicas=replicas)


async def forecast(session: Session, events_per_day: float | None) -> Forecast:
    """Predict the memory for a day of events; without a rate, from the age of the stored ones."""
    connection = session.connection
    [info, rows] = await connection.execute(("INFO", "memory"), ("HMGET", connection.key("n"), "events", "event"))
    count, following = int(rows[0] or 0), int(rows[1] or 1)
    used = int(info["used_memory"]) - int(info.get("used_memory_startup", 0))
    per_event = used / count if count else 0.0
    if events_per_day is None:
        events_per_day = await _rate(session, count, following) if count else 0.0
    limit = int(info.get("maxmemory", 0))
    return Forecast(
        bytes_per_event=per_event,
        events_per_day=events_per_day,
        bytes_per_day=per_event * events_per_day,
        limit=limit,
    )


async def _rate(session: Session, count: int, following: int) -> float:
    """Events per day since the oldest stored one."""
    [first] = await session.connection.execute(("ZRANGE", session.connection.key("eb"), 0, 0))
    begin = int(first[0]) * BUCKET
    oldest = await session.events(range(begin, min(begin + BUCKET, following)))
    age = await session.now() - oldest[0].recorded_at.timestamp() * 1e6 if oldest else 0
    return count * DAY_US / max(age, DAY_US / 24)
