"""A real process whose public port strangers have found: it stays quick, takes webhooks, and says what it refused."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.servers.ports import free_port
from tests.system.hostile import crowd
from tests.system.hostile.misbehaving_server import HOOK, PATIENCE, Harken, started, write

pytestmark = [pytest.mark.process, pytest.mark.worker_group("hostile-strangers")]

ROUNDS = 6
HEALTH = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n"
POST = b"POST /webhooks/generic/hook HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n"
CHUNKED = b"POST /webhooks/generic/hook HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
JSON = b"Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{"


@asynccontextmanager
async def crowding(port: int, half_open: int, megabytes: int) -> AsyncIterator[asyncio.subprocess.Process]:
    """Strangers that connect; gone at the end."""
    command = (sys.executable, crowd.__file__, *map(str, (port, half_open, megabytes)))
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    try:
        yield process
    finally:
        process.kill()
        await process.wait()


async def slowest_health(harken: Harken, end: asyncio.Future[Any]) -> float:
    """The longest time that an answer took, of those that were asked for one after the other until then."""
    port = int(harken.url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    slowest, asked = 0.0, 0
    while not end.done() or asked < 50:
        began = time.monotonic()
        writer.write(HEALTH % port)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        await reader.readexactly(int(head.lower().partition(b"content-length:")[2].split()[0]))
        slowest, asked = max(slowest, time.monotonic() - began), asked + 1
        await asyncio.sleep(0.002)
    writer.close()
    return slowest


async def ask(port: int, data: bytes) -> bytes:
    """What is answered to these bytes until the connection is closed, or a body of JSON is complete."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    async with asyncio.timeout(PATIENCE):
        answer = await reader.readuntil(b"}")
    writer.close()
    return answer


async def refused(harken: Harken) -> dict[str, int]:
    return dict((await harken.ask("/api/status"))[2]["controller"]["connections_refused"])


async def test_800_half_open_connections_and_a_300_mb_header_change_the_worst_health_by_less_than_100_ms(
    tmp_path: Path,
) -> None:
    port = free_port()
    write(tmp_path, f"store: harken.db\nserver: {{webhook_port: {port}}}\n", hook=HOOK)
    async with started(tmp_path) as harken:
        # the first answers after a start take longer
        await slowest_health(harken, asyncio.ensure_future(asyncio.sleep(0.5)))
        changes: list[float] = []
        for _ in range(ROUNDS):
            alone = await slowest_health(harken, asyncio.ensure_future(asyncio.sleep(0.5)))
            async with crowding(port, 800, 300) as strangers:
                assert strangers.stdout is not None
                crowded = await slowest_health(harken, asyncio.ensure_future(strangers.stdout.readline()))
                # a webhook comes in on either port, and so does the command line
                assert await harken.hook("through the front") in (200, 202)
                answer = await ask(port, POST % 11 + b"\r\n" + b'{"id": "x"}')
                assert answer.split()[1] in (b"200", b"202")
                assert (await harken.types("status"))[0] == 0
            changes.append(crowded - alone)
            # other processes make it slower at times, but a stall of the event loop is there every time
            if changes[-1] < 0.1:
                break
        assert min(changes) < 0.1, changes
        assert (await refused(harken))["head_too_large"] == len(changes)
        assert (await refused(harken))["connections"] >= 288


async def test_slow_and_large_bodies_are_refused_and_shown(tmp_path: Path) -> None:
    write(tmp_path, "store: harken.db\nserver: {head_timeout: 300ms, body_timeout: 300ms}\n", hook=HOOK)
    async with started(tmp_path) as harken:
        port = int(harken.url.rpartition(":")[2])
        slow = await ask(port, POST % 11 + b'\r\n{"id":')
        never = await ask(port, CHUNKED + b'6\r\n{"id":\r\n')
        # told at once, and not to go on
        large = await ask(port, POST % 1_000_001 + b"Expect: 100-continue\r\n\r\n")
        head = await ask(port, b"POST /webhooks/generic/hook HTTP/1.1\r\n")
        api = await ask(port, b"POST /api/reload HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n" % port + JSON)
        assert [int(answer.split()[1]) for answer in (slow, never, large, head, api)] == [408, 408, 413, 408, 408]
        assert await harken.hook("after all") == 202
        shown = (await harken.ask("/api/triggers/hook"))[2]
        reasons = [(one["reason"], one["sender"]) for one in shown["refused_webhooks"]]
        assert reasons == [("too_large", "127.0.0.1"), *[("timeout", "127.0.0.1")] * 2]
        assert await refused(harken) == {"body_timeout": 3, "head_timeout": 1}
        status = (await harken.types("status"))[1]
        assert "connections refused" in status
        [check] = [check for check in (await harken.ask("/api/doctor"))[2]["items"] if check["name"] == "connections"]
        assert (check["state"], "3 body_timeout, 1 head_timeout" in check["message"]) == ("ok", True)
        async with aiohttp.request("GET", harken.url + "/metrics") as reply:
            page = await reply.text()
        assert 'harken_connections_refused_total{reason="body_timeout"} 3' in page
        assert 'harken_webhooks_refused_total{reason="timeout"} 2' in page
        assert harken.log.count("connection.refused") == 2
        assert "Traceback" not in harken.log


async def test_descriptors_are_kept_for_the_store_and_the_api(tmp_path: Path) -> None:
    port = free_port()
    write(tmp_path, f"store: harken.db\nserver: {{webhook_port: {port}}}\n", hook=HOOK)
    async with started(tmp_path, through=("sh", "-c", 'ulimit -n 400; exec "$@"', "sh")) as harken:
        assert "listener.fewer_connections" in harken.log
        async with crowding(port, 450, 0) as strangers:
            assert strangers.stdout is not None
            assert await strangers.stdout.readline() == b"here\n"
            open_now = len(os.listdir(f"/proc/{harken.process.pid}/fd"))
            assert open_now < 400 - 200
            # both the store and whoever asks for it can open what they need
            assert await harken.hook("meanwhile") == 202
            assert (await harken.types("store", "backup", str(tmp_path / "copy.db")))[0] == 0
        [check] = [check for check in await harken.json("doctor") if check["name"] == "connections"]
        assert (check["state"], "max_connections" in check["fix"]) == ("warn", True)
