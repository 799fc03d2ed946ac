"""Dumps of stores in PostgreSQL and Redis as files that can be read, and loaded into an empty server."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from redis.asyncio import Redis

from tests.downloads.debian import environment, program
from tests.servers.postgres import PostgresServer

__all__ = ["dump_postgres", "dump_redis", "load_postgres", "load_redis"]

# commands of psql, and settings of the session that other versions of the server may not know
_LEFT_OUT = ("\\", "SET ", "SELECT pg_catalog.set_config", "--")


def dump_postgres(server: PostgresServer, database: str) -> bytes:
    """The database as SQL."""
    tool = program("postgresql").parent / "pg_dump"
    command = [str(tool), "--inserts", "--no-owner", "--no-privileges", server.url(database)]
    found = subprocess.run(command, env=environment(tool.with_name("postgres")), stdout=subprocess.PIPE, check=True)
    lines = found.stdout.decode().splitlines()
    return "\n".join(line for line in lines if line and not line.startswith(_LEFT_OUT)).encode()


async def load_postgres(server: PostgresServer, database: str, dump: bytes) -> None:
    connection = await server.connect(database)
    await connection.execute(dump.decode())
    await connection.close()


async def dump_redis(url: str) -> bytes:
    """Each key with its type and content as JSON; bytes are the characters of Latin-1."""
    found = {}
    client: Any
    async with Redis.from_url(url) as client:
        for key in sorted(await client.keys()):
            assert await client.pttl(key) == -1, f"{key!r} expires, which the dump does not say"
            kind = (await client.type(key)).decode()
            found[_text(key)] = {"type": kind, "content": await _content(client, kind, key)}
    return json.dumps(found, indent=1).encode()


async def _content(client: Any, kind: str, key: bytes) -> Any:
    match kind:
        case "string":
            return _text(await client.get(key))
        case "hash":
            return {_text(field): _text(value) for field, value in sorted((await client.hgetall(key)).items())}
        case "list":
            return [_text(value) for value in await client.lrange(key, 0, -1)]
        case "set":
            return sorted(_text(value) for value in await client.smembers(key))
        case "zset":
            return [[_text(value), score] for value, score in await client.zrange(key, 0, -1, withscores=True)]
        case _:
            raise ValueError(f"{key!r} is a {kind}")


async def load_redis(url: str, dump: bytes) -> None:
    client: Any
    async with Redis.from_url(url) as client:
        for name, entry in json.loads(dump).items():
            key, content = _bytes(name), entry["content"]
            match entry["type"]:
                case "string":
                    await client.set(key, _bytes(content))
                case "hash":
                    await client.hset(key, mapping={_bytes(field): _bytes(value) for field, value in content.items()})
                case "list":
                    await client.rpush(key, *map(_bytes, content))
                case "set":
                    await client.sadd(key, *map(_bytes, content))
                case "zset":
                    await client.zadd(key, {_bytes(value): score for value, score in content})


def _text(value: bytes) -> str:
    return value.decode("latin-1")


def _bytes(text: str) -> bytes:
    return text.encode("latin-1")
