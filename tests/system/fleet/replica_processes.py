"""Replicas as processes: born, asked how they are, and at an end."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from harken.errors import RetryLater
from tests.servers.ports import free_port

__all__ = ["Nursery", "Replica", "until"]

NURSERY = Path(__file__).with_name("replica_forker.py")


class Nursery:
    """Starts replicas and tells how they ended."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._turn = asyncio.Lock()

    @classmethod
    @asynccontextmanager
    async def opened(cls, log: Path) -> AsyncIterator[Nursery]:
        with log.open("ab") as errors:
            pipe = asyncio.subprocess.PIPE
            process = await asyncio.create_subprocess_exec(
                sys.executable, str(NURSERY), stdin=pipe, stdout=pipe, stderr=errors
            )
        try:
            yield cls(process)
        finally:
            process.kill()
            await process.wait()

    async def ask(self, word: str, what: Any) -> int:
        assert self._process.stdin
        assert self._process.stdout
        async with self._turn:
            self._process.stdin.write(msgspec.json.encode({word: what}) + b"\n")
            return int(await self._process.stdout.readline())


class Replica:
    """One place in the fleet; whoever lives there has `pid`."""

    def __init__(self, number: int, directory: Path, folder: Path) -> None:
        self.number = number
        self.name = f"replica{number}"
        self.directory = directory
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = folder / f"{self.name}.log"
        self.pid = 0

    @property
    def said(self) -> str:
        """The end of its log."""
        return self.log.read_text()[-2_500:] if self.log.exists() else ""

    async def get(self, path: str, seconds: float = 5.0) -> tuple[int, Any]:
        """The status and the answer; (0, None) when there is none."""
        with suppress(aiohttp.ClientError, OSError, TimeoutError):
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=seconds)) as session,
                session.get(self.url + path) as reply,
            ):
                return reply.status, await reply.json()
        return 0, None

    async def post(self, path: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, Mapping[str, str]]:
        """The status and the headers of the answer."""
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20)) as session,
            session.post(self.url + path, data=body, headers=headers) as reply,
        ):
            return reply.status, {name.lower(): value for name, value in reply.headers.items()}

    @property
    def lives(self) -> bool:
        """Whether the process is there and does not only wait to be reaped."""
        try:
            state = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return False
        return state != "Z"

    async def is_over(self) -> bool:
        return not self.lives

    def tell_tasks(self) -> str:
        """What it waits for, and what it said before."""
        os.kill(self.pid, signal.SIGUSR1)
        time.sleep(1.0)
        return self.log.read_text()[-12_000:]

    async def is_ready(self) -> bool:
        return (await self.get("/health/ready"))[0] == 200

    async def health(self) -> Mapping[str, Any]:
        """The state of the whole as `status`, and every part as (state, reason)."""
        found = (await self.get("/health"))[1]
        assert found, f"{self.name} does not answer"
        return {
            "status": found["status"],
            **{one["name"]: (one["state"], one["reason"]) for one in found["subsystems"]},
        }

    async def status(self) -> Mapping[str, Any]:
        code, found = await self.get("/api/status")
        if code == 503:
            raise RetryLater(str(found))
        assert code == 200, (code, found)
        return dict(found)


async def until(condition: Callable[[], Awaitable[bool]], seconds: float, told: Callable[[], str]) -> float:
    """Wait for it; how long that took. Fails with what was `told` when it takes much longer than it should.

    Only what is asserted of the time that is returned is a bound; a busy machine gets three times as long."""
    began = time.monotonic()
    while not await _holds(condition):
        if time.monotonic() - began > 3 * seconds:
            raise AssertionError(f"this did not come about within {seconds:.0f} s\n{told()}")
        await asyncio.sleep(0.2)
    return time.monotonic() - began


async def _holds(condition: Callable[[], Awaitable[bool]]) -> bool:
    try:
        return await condition()
    except RetryLater:
        # the store was away a moment ago
        return False
