"""The world around a Harken that is killed again and again: a listing, a sender of webhooks, a taker of effects."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any

import aiohttp
from aiohttp import web

from harken.clock import SystemClock
from harken.testing.fakes import Answer, Listing

NURSERY = Path(__file__).with_name("process_forker.py")
SECRET = "not much of a secret"
PAGE = 10
SLOW = 0.2

MAIN = """
store: harken.db
integrations:
  shop: {kind: json, allow_private_networks: true, backoff: {initial: 1s, max: 1s}}
feeds:
"""

FEED = """  {name}:
    integration: {integration}
    interval: 1s
    query:
      url: {listing}/offsets
      items_path: items
      time_field: created_at
      paging: {{offset: {{size: 40}}, more: more}}
"""

POSTING = """
name: {name}
trigger:
  {trigger}
steps:
"""

POST = """  - id: {step}
    action: http
    url: "{sink}/{step}"
    allow_private_networks: true
    json: {{id: "{{{{.trigger.event.id}}}}", of: {name}}}
"""

HOOKS = f"webhook: {{id: hooks, secret: {SECRET}, id_field: id}}"

QUICK = """
name: quick
trigger:
  feed: items
steps:
  - {id: note, action: transform, set: {text: seen}}
"""


class Sink:
    """Takes what steps send, and remembers which idempotency key came with it."""

    def __init__(self) -> None:
        self.got: dict[tuple[str, str, str], list[str]] = {}
        self.order: list[tuple[str, str, str]] = []
        self.url = ""

    async def take(self, request: web.Request) -> web.Response:
        said = await request.json()
        what = (said["of"], said["id"], request.match_info["step"])
        self.got.setdefault(what, []).append(request.headers["Idempotency-Key"])
        self.order.append(what)
        if what[2] == "two" and len(self.order) % 4 == 0:
            # a kill may come after the effect and before its answer
            await asyncio.sleep(SLOW)
        return web.json_response({"ok": True})

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[None]:
        app = web.Application()
        app.add_routes([web.post("/{step}", self.take)])
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield
        finally:
            await runner.cleanup()


class Shop:
    """Items that appear all the time, some of them late."""

    def __init__(self, listing: Listing, random: Random) -> None:
        self.listing = listing
        self._random = random
        self.added: list[str] = []

    async def trade(self) -> None:
        while True:
            for _ in range(self._random.choice((1, 1, 1, 6))):
                id = f"item-{len(self.added)}"
                self.listing.add(id, late=self._random.choice((0.0, 0.0, 0.0, 1.5)))
                self.added.append(id)
            trouble_at_times(self.listing, self._random)
            await asyncio.sleep(self._random.uniform(0.1, 0.6))


class ForwardQueues:
    """Sources that only go forward: who asks with a cursor is never shown again what is before it."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self.put: list[tuple[str, str]] = []
        self.read_twice = asyncio.Event()
        self._reads: Counter[str] = Counter(dict.fromkeys(names, 0))
        self._items: dict[str, dict[int, str]] = {name: {} for name in names}

    async def bring(self, random: Random) -> None:
        """Put items on the queues, all the time."""
        while True:
            name = random.choice(self.names)
            number = len(self.put) + 1
            self._items[name][number] = f"item-{number}"
            self.put.append((name, f"item-{number}"))
            await asyncio.sleep(random.uniform(0.01, 0.1))

    async def show(self, request: web.Request) -> web.Response:
        name, after = request.match_info["name"], int(request.query["after"])
        self._reads[name] += 1
        if min(self._reads.values()) > 1:
            self.read_twice.set()
        items = self._items[name] = {number: id for number, id in self._items[name].items() if number > after}
        shown = list(items)[:PAGE]
        cursor = shown[-1] if shown else after
        more = len(items) > len(shown)
        return web.json_response({"items": [items[number] for number in shown], "cursor": cursor, "more": more})

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[str]:
        app = web.Application()
        app.add_routes([web.get("/{name}", self.show)])
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()


LIMITED = Answer(status=429, headers={"Retry-After": "1"})
BROKEN = Answer(status=502, body=b"<html>")


def trouble_at_times(listing: Listing, random: Random) -> None:
    """One at a time: a feed that fails backs off, and would never be through with those that pile up meanwhile."""
    if random.random() < 0.04 and not listing.answers:
        listing.answers.append(random.choice((LIMITED, BROKEN)))


def signed(id: str) -> tuple[bytes, dict[str, str]]:
    """A webhook: its body and its headers."""
    body = f'{{"id": "{id}"}}'.encode()
    signature = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    return body, {"X-Signature-256": f"sha256={signature}"}


class Sender:
    """Sends each webhook until it is accepted, and some of them once more."""

    def __init__(self, url: str, random: Random) -> None:
        self._url = url
        self._random = random
        self.accepted: list[str] = []
        self.tries = 0

    @property
    def next(self) -> str:
        return f"hook-{len(self.accepted)}"

    async def send(self) -> None:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session:
            while True:
                if not await self._post(session, self.next):
                    await asyncio.sleep(0.03)
                    continue
                self.accepted.append(self.next)
                if self._random.random() < 0.2:
                    await self._post(session, self._random.choice(self.accepted))
                await asyncio.sleep(self._random.uniform(0.0, 0.12))

    async def _post(self, session: aiohttp.ClientSession, id: str) -> bool:
        body, headers = signed(id)
        self.tries += 1
        try:
            async with session.post(self._url, data=body, headers=headers) as reply:
                return reply.status in (200, 202)
        except (aiohttp.ClientError, OSError, TimeoutError):
            return False


class Nursery:
    """Starts Harken processes and kills them."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    @asynccontextmanager
    async def at(
        cls,
        directory: Path,
        port: int,
        services: Mapping[str, str] = MappingProxyType({}),
        program: Path = NURSERY,
        path: str = "",
    ) -> AsyncIterator[Nursery]:
        """`services` are installed beside Harken's own: modules of this folder, by the kind of their plugin.

        `program` forks them; `path` is where its modules are."""
        folder = str(_installed(directory, services)) if services else path
        environment = {**os.environ, "PYTHONPATH": folder} if folder else None
        with (directory / "harken.log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, str(program), str(directory), str(port)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env=environment,
            )
        try:
            yield cls(process)
        finally:
            process.kill()
            await process.wait()

    async def start(self) -> int:
        return await self._ask("start")

    async def reap(self) -> int:
        """Wait for the end of what was started; its exit code, or minus the signal."""
        return await self._ask("reap")

    async def _ask(self, word: str) -> int:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(f"{word}\n".encode())
        return int(await self._process.stdout.readline())


def _installed(directory: Path, services: Mapping[str, str]) -> Path:
    """A folder for PYTHONPATH that tells which module has the plugin of a kind."""
    info = directory / "installed" / "kill_test_services-1.0.dist-info"
    info.mkdir(parents=True)
    lines = "".join(f"{kind} = {module}:plugin\n" for kind, module in services.items())
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: kill-test-services\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[harken.services]\n{lines}")
    return info.parent


def feed(name: str, integration: str, listing: str) -> str:
    """An entry below `feeds:` that reads this listing."""
    return FEED.format(name=name, integration=integration, listing=listing)


def posting(name: str, trigger: str, sink: str, steps: Sequence[str]) -> str:
    """A workflow that posts the event once for each of the steps."""
    posts = [POST.format(step=step, sink=sink, name=name) for step in steps]
    return POSTING.format(name=name, trigger=trigger) + "".join(posts)


def configure(directory: Path, listing: str, sink: str) -> None:
    workflows = directory / "workflows"
    workflows.mkdir()
    (directory / "harken.yaml").write_text(MAIN + feed("items", "shop", listing))
    for name, trigger in {"posting": "feed: items", "hooks": HOOKS}.items():
        (workflows / f"{name}.yaml").write_text(posting(name, trigger, sink, ("one", "two")))
    (workflows / "quick.yaml").write_text(QUICK)


async def answers(url: str, seconds: float) -> Any:
    """Wait until something answers there."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2)) as session, asyncio.timeout(seconds):
        while True:
            try:
                async with session.get(url) as reply:
                    if reply.status < 500:
                        return await reply.text()
            except (aiohttp.ClientError, OSError):
                pass
            await asyncio.sleep(0.02)


def listing_of_now() -> Listing:
    return Listing(SystemClock(), cap=100)
