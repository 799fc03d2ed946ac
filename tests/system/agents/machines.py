"""Machines with a Harken each, and an agent that writes all the time, so that two at once would be seen."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from tests.run.agents.scripts import make_repository
from tests.servers.ports import free_port

__all__ = ["Machine", "Writers", "machines", "processes_of", "until"]

REPLICA = Path(__file__).with_name("replica.py")
SECRET = "not much of a secret"
PATIENCE = 120.0

# ignores SIGTERM, and has a child in a session of its own that writes too
AGENT = """#!{python} -IS
import os, signal, time
signal.signal(signal.SIGTERM, {on_term})
print('{{"session_id": "s-1"}}', flush=True)
if {child} and os.fork() == 0:
    os.setsid()
place = os.environ["WRITE_TO"]
while not os.path.exists(place + ".stop"):
    with open(place, "a") as file:
        file.write(os.environ["HARKEN_START"] + " " + str(time.clock_gettime_ns(time.CLOCK_BOOTTIME)) + "\\n")
    time.sleep(0.1)
"""

WORKFLOW = """
name: fix
trigger:
  webhook: {{id: tickets, secret: {secret}, id_field: id}}
steps:
  - id: fix
    action: agent
    command: [{agent}]
    repository: {repository}
    push: true
    env: {{WRITE_TO: {writes}}}
"""


class Writers:
    """What the agents wrote: when each start wrote first and last, by the clock of the machine."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def spans(self) -> dict[int, tuple[float, float]]:
        found: dict[int, tuple[float, float]] = {}
        for line in self.path.read_text().splitlines() if self.path.exists() else ():
            # the last line may be half written
            if len(words := line.split()) == 2 and len(words[1]) > 9:
                start, at = int(words[0]), int(words[1]) / 1e9
                first, last = found.get(start, (at, at))
                found[start] = (min(first, at), max(last, at))
        return found

    @property
    def starts(self) -> int:
        return len(self.spans())

    def assert_one_at_a_time(self) -> None:
        spans = sorted(self.spans().values())
        for (_, last), (first, _) in pairwise(spans):
            assert last < first, f"two agents wrote at once: {self.spans()}"

    def last(self, start: int) -> float:
        """When this start wrote last."""
        return self.spans()[start][1]

    def stop(self) -> None:
        self.path.with_name(self.path.name + ".stop").touch()


class Machine:
    """A Harken with its own configuration and workspaces, which can be killed, frozen and started again."""

    def __init__(self, directory: Path, claim_seconds: float) -> None:
        self.directory = directory
        self.port = free_port()
        self._claim_seconds = claim_seconds
        self._process: asyncio.subprocess.Process | None = None
        self._log = directory / "log"

    @property
    def process(self) -> asyncio.subprocess.Process:
        assert self._process is not None
        return self._process

    async def start(self) -> None:
        root = Path(__file__).parents[3]
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, str(REPLICA), str(self.directory), str(self.port), str(self._claim_seconds)),
                cwd=root,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        await until(self._is_ready, self.said)

    def said(self) -> str:
        return self._log.read_text()[-3_000:]

    async def _is_ready(self) -> bool:
        assert self.process.returncode is None, self.said()
        return (await self.get("/health/ready"))[0] == 200

    async def get(self, path: str) -> tuple[int, Any]:
        timeout = aiohttp.ClientTimeout(total=5)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.get(f"http://127.0.0.1:{self.port}{path}") as reply,
            ):
                return reply.status, await reply.json()
        except (aiohttp.ClientError, TimeoutError):
            return 0, None

    async def bring_ticket(self) -> None:
        body = msgspec.json.encode({"id": "7", "title": "It is broken", "number": "7"})
        signature = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
        url = f"http://127.0.0.1:{self.port}/webhooks/generic/tickets"
        async with (
            aiohttp.ClientSession() as session,
            session.post(url, data=body, headers={"X-Signature-256": f"sha256={signature}"}) as reply,
        ):
            assert reply.status == 202, await reply.text()

    async def run(self) -> dict[str, Any]:
        """The run of the ticket with its journal."""
        _, page = await self.get("/api/runs")
        _, run = await self.get(f"/api/runs/{page['items'][0]['id']}")
        return dict(run)

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def kill(self) -> None:
        self.send(signal.SIGKILL)
        await self.process.wait()

    async def end(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self.send(signal.SIGCONT)
            await self.kill()


@asynccontextmanager
async def machines(
    tmp_path: Path, stores: list[str], *, claim_seconds: float, stubborn: bool = True
) -> AsyncIterator[tuple[list[Machine], Writers]]:
    """A machine for each store address; none of them is started yet. At the end nothing of them is left."""
    writers = Writers(tmp_path / "writes")
    repository = make_repository(tmp_path / "server")
    agent = tmp_path / "agent.py"
    on_term = "signal.SIG_IGN" if stubborn else "lambda *_: os._exit(0)"
    agent.write_text(AGENT.format(python=sys.executable, on_term=on_term, child=stubborn))
    agent.chmod(0o755)
    made = []
    for number, store in enumerate(stores):
        directory = tmp_path / f"machine{number}"
        (directory / "workflows").mkdir(parents=True)
        (directory / "harken.yaml").write_text(
            f"store: {store}\nsteps: {{allow_agents: true, workspaces: here}}\n"
            "agent: {queue: {shutdown_grace_seconds: 0.5}}\n"
        )
        text = WORKFLOW.format(secret=SECRET, agent=agent, repository=repository, writes=writers.path)
        (directory / "workflows" / "fix.yaml").write_text(text)
        made.append(Machine(directory, claim_seconds))
    try:
        yield made, writers
    finally:
        writers.stop()
        for machine in made:
            await machine.end()


async def until(
    condition: Callable[[], Awaitable[bool] | bool], told: Callable[[], str] = str, seconds: float = 120
) -> None:
    """Wait for something that nobody tells us of."""
    give_up = time.monotonic() + seconds
    while True:
        answer = condition()
        if await answer if isinstance(answer, Awaitable) else answer:
            return
        assert time.monotonic() < give_up, told()
        await asyncio.sleep(0.05)


def processes_of(workspaces: Path) -> list[int]:
    """The processes that were started for agents below this directory."""
    mark = os.fsencode(f"HARKEN_WORKSPACE={workspaces}")
    found = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in environ.read_bytes():
                found.append(int(environ.parent.name))
        except OSError:
            continue
    return found
