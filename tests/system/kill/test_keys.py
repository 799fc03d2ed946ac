"""Fifty equal POSTs at once with one Idempotency-Key, killed between effect and answer, and again: one effect.

`make soak` does it on PostgreSQL and Redis too."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from harken.api.routes import ROUTES
from harken.app.store import open_store
from harken.clock import SystemClock
from harken.operate.operator import CHANGES
from harken.store.document_kinds import PLAN
from tests.servers.ports import free_port
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer
from tests.services.whole import write
from tests.soak import SOAK
from tests.system.kill.dying_forker import MARK
from tests.system.kill.outside_world import HOOKS, Nursery, answers, signed

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    pytest.mark.timeout(1_800),
]
FORKER = Path(__file__).with_name("dying_forker.py")
ROOT = str(Path(__file__).parents[3])
PARALLEL = 50
START_SECONDS = 120.0
FLOWS = {
    "quick": "name: quick\nsteps:\n  - {id: say, action: transform, set: {text: hi}}\n",
    "hooks": f"name: hooks\ntrigger: {{{HOOKS}}}\nsteps:\n  - {{id: say, action: transform, set: {{text: hi}}}}\n",
    "waits": "name: waits\nsteps:\n  - {id: rest, action: wait, for: 9h}\n",
    "asks": "name: asks\nsteps:\n  - {id: ask, action: approve, prompt: well}\n  - {id: rest, action: wait, for: 9h}\n",
    "dies": "name: dies\nsteps:\n  - {id: stop, action: http, url: 'http://127.0.0.1:9/'}\n",
}
ROW = {"provider": "schedule", "config": {"every": "9h"}, "workflow": "quick"}


class Harken:
    """One that is killed and started again in one directory."""

    def __init__(self, directory: Path, store: str, nursery: Nursery, url: str, session: aiohttp.ClientSession) -> None:
        self.directory, self.store, self._nursery, self._url, self._session = directory, store, nursery, url, session
        self._pid = 0

    async def start(self) -> None:
        self._pid = await self._nursery.start()
        await answers(f"{self._url}/health", START_SECONDS)

    async def died(self) -> int:
        self._pid, code = 0, await self._nursery.reap()
        return code

    async def stop(self) -> None:
        """Leave nothing behind, also after a failure."""
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            await self.died()

    async def get(self, path: str) -> Any:
        async with self._session.get(f"{self._url}/api/{path}") as reply:
            return await reply.json()

    async def post(self, path: str, body: Any, key: str = "") -> tuple[int, Any, bool]:
        headers = {"Idempotency-Key": key} if key else {}
        async with self._session.post(f"{self._url}/api/{path}", json=body, headers=headers) as reply:
            return reply.status, await reply.json(), "Idempotency-Replayed" in reply.headers

    async def hook(self, id: str) -> None:
        body, headers = signed(id)
        async with self._session.post(f"{self._url}/webhooks/generic/hooks", data=body, headers=headers) as reply:
            assert reply.status in (200, 202)

    async def run(self, workflow: str, status: str) -> str:
        """The id of a new run, when it has got so far."""
        id = str((await self.post(f"workflows/{workflow}/run", {}))[1]["id"])
        return await self.reached(id, status)

    async def reached(self, id: str, status: str) -> str:
        for _ in range(5_000):
            if (await self.get(f"runs/{id}"))["status"] == status:
                break
            await asyncio.sleep(0.02)
        return id

    async def count(self, workflow: str) -> int:
        return len((await self.get(f"runs?workflow={workflow}&limit=500"))["items"])


@asynccontextmanager
async def killed_again_and_again(directory: Path, store: str) -> AsyncIterator[Harken]:
    port = free_port()
    write(directory, f"store: {json.dumps(store)}\n", **FLOWS)
    timeout, limit = aiohttp.ClientTimeout(total=60), aiohttp.TCPConnector(limit=0, force_close=True)
    async with (
        Nursery.at(directory, port, program=FORKER, path=ROOT) as nursery,
        aiohttp.ClientSession(timeout=timeout, connector=limit) as session,
    ):
        harken = Harken(directory, store, nursery, f"http://127.0.0.1:{port}", session)
        try:
            yield harken
        finally:
            await harken.stop()


Request = tuple[str, Any]
Counting = Callable[[], Awaitable[int]]


@dataclass(frozen=True, kw_only=True)
class Effect:
    """`prepare` gives the request, and what counts its effects. `lost`: the answer cannot be made again.

    `of_files`: only a store in a file can do it."""

    prepare: Callable[[Harken], Awaitable[tuple[Request, Counting]]]
    lost: bool = False
    of_files: bool = False


def _runs_of(workflow: str, request: Callable[[Harken], Awaitable[Request]]) -> Effect:
    async def prepare(harken: Harken) -> tuple[Request, Counting]:
        given = await request(harken)
        before = await harken.count(workflow)

        async def made() -> int:
            return await harken.count(workflow) - before

        return given, made

    return Effect(prepare=prepare)


def _found(request: Callable[[Harken], Awaitable[tuple[Request, Counting]]], *, lost: bool = False) -> Effect:
    return Effect(prepare=request, lost=lost)


async def _run_workflow(harken: Harken) -> Request:
    return "workflows/quick/run", {"input": {"n": 1}}


async def _replay(harken: Harken) -> Request:
    await harken.hook("one")
    [event] = (await harken.get("events?feed=webhook/generic/hooks"))["items"]
    return f"events/{event['id']}/replay", {"trigger": "hooks"}


async def _replay_range(harken: Harken) -> Request:
    return "events/replay", {"trigger": "hooks", "since": "1h"}


async def _rerun(harken: Harken) -> Request:
    return f"runs/{await harken.run('quick', 'done')}/rerun", {}


async def _create(harken: Harken) -> tuple[Request, Counting]:
    async def made() -> int:
        return len((await harken.get('triggers?where=name=="mine"'))["items"])

    return ("triggers", {"name": "mine", **ROW}), made


async def _retry(harken: Harken) -> tuple[Request, Counting]:
    id = await harken.run("waits", "waiting")
    await harken.post(f"runs/{id}/cancel", {})
    await harken.reached(id, "cancelled")

    async def made() -> int:
        return int((await harken.get(f"runs/{await harken.reached(id, 'waiting')}"))["attempt"]) - 1

    return (f"runs/{id}/retry", {}), made


async def _cancel(harken: Harken) -> tuple[Request, Counting]:
    id = await harken.run("waits", "waiting")

    async def made() -> int:
        return int(bool(await harken.reached(id, "cancelled")))

    return (f"runs/{id}/cancel", {}), made


async def _approve(harken: Harken) -> tuple[Request, Counting]:
    id = await harken.run("asks", "waiting")

    async def made() -> int:
        await harken.reached(id, "waiting")
        steps = (await harken.get(f"runs/{id}"))["steps"]
        return sum(step["path"] == "ask" and step["status"] == "ok" for step in steps)

    return (f"runs/{id}/approve", {"approved": True}), made


async def _drop(harken: Harken) -> tuple[Request, Counting]:
    id = await harken.run("dies", "dead")

    async def made() -> int:
        left = [row["id"] for row in (await harken.get("dead?limit=500"))["items"]]
        return 1 - left.count(id)

    return (f"dead/{id}/drop", {}), made


async def _plan(harken: Harken) -> tuple[Request, Counting]:
    request = "bulk/plan", {"action": "cancel", "where": 'workflow == "waits" && status == "waiting"'}

    async def made() -> int:
        store = open_store(harken.store, SystemClock(), readonly=True).store
        try:
            return len(await store.documents(PLAN))
        finally:
            await store.close()

    return request, made


async def _execute(harken: Harken) -> tuple[Request, Counting]:
    ids = [await harken.run("waits", "waiting") for _ in range(3)]
    plan = (await harken.post("bulk/plan", {"action": "cancel", "ids": ids}))[1]["id"]

    async def made() -> int:
        shown = await harken.get(f"bulk/{plan}")
        gone = [await harken.reached(id, "cancelled") for id in ids]
        return int(shown["state"] == "executed" and gone == ids)

    return (f"bulk/{plan}/execute", {}), made


async def _make_token(harken: Harken) -> tuple[Request, Counting]:
    async def made() -> int:
        return sum(row["name"] == "laptop" for row in (await harken.get("tokens"))["items"])

    return ("tokens", {"name": "laptop"}), made


async def _backup(harken: Harken) -> tuple[Request, Counting]:
    target = harken.directory / "copy.db"

    async def made() -> int:
        return len(list(harken.directory.glob("copy.db")))

    return ("store/backup", {"target": str(target)}), made


async def _pause(harken: Harken) -> tuple[Request, Counting]:
    async def made() -> int:
        return int((await harken.get("triggers/hooks"))["paused"] == "lunch")

    return ("triggers/hooks/pause", {"reason": "lunch"}), made


EFFECTS = {
    "workflows.run": _runs_of("quick", _run_workflow),
    "events.replay": _runs_of("hooks", _replay),
    "events.replay_range": _runs_of("hooks", _replay_range),
    "runs.rerun": _runs_of("quick", _rerun),
    "triggers.create": _found(_create),
    "runs.retry": _found(_retry),
    "runs.approve": _found(_approve, lost=True),
    "runs.cancel": _found(_cancel, lost=True),
    "dead.drop": _found(_drop, lost=True),
    "bulk.plan": _found(_plan),
    "bulk.execute": _found(_execute),
    "tokens.create": _found(_make_token, lost=True),
    "store.backup": Effect(prepare=_backup, lost=True, of_files=True),
    "triggers.pause": _found(_pause),
}
HARMLESS = {
    "doing it twice is as doing it once": {
        "triggers.resume", "triggers.release", "triggers.drop", "triggers.reset", "bulk.undo", "events.forget",
        "events.star", "events.unstar", "tokens.revoke", "reload", "integrations.renew", "trackers.fix",
        "pollers.pause", "pollers.resume", "pollers.reset", "pollers.reload",
    },
    "it reads once more, and what is known fires nothing": {"triggers.run", "pollers.run"},
    "it needs a token that is good for one change": {"triggers.seek"},
    "as runs.retry and dead.drop": {"dead.retry", "dead.retry_all"},
    "the tracker says who has the ticket": {
        "tickets.claim", "tickets.retry", "tickets.cancel", "tickets.release", "tickets.adopt",
    },
    "the secret of a lost answer is known to nobody, so it is rotated once more": {"tokens.rotate"},
    "its effect is that of a service or of an operation of this table": {"tools.call"},
}  # fmt: skip


def test_every_post_that_changes_something_is_tried_or_is_said_to_be_harmless() -> None:
    harmless = {name for names in HARMLESS.values() for name in names}
    changing = {name for name in CHANGES if ROUTES[name].takes_key}
    assert changing == set(EFFECTS) | harmless
    assert set(EFFECTS).isdisjoint(harmless)


@pytest.fixture(params=["sqlite", "postgres", "redis"] if SOAK else ["sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield str(tmp_path / "harken.db")
    elif request.param == "postgres":
        with PostgresServer() as server:
            yield f"{server.url('postgres')}?sslmode=disable"
    else:
        with RedisServer(appendonly="yes") as redis:
            yield redis.url()


async def test_one_key_is_one_effect_although_the_process_is_killed_before_it_answers(
    store: str, tmp_path: Path
) -> None:
    effects = {name: effect for name, effect in EFFECTS.items() if not effect.of_files or "://" not in store}
    async with killed_again_and_again(tmp_path, store) as harken:
        await harken.start()
        for operation, effect in effects.items():
            request, made = await effect.prepare(harken)
            (tmp_path / MARK).touch()
            await _killed(harken, request, operation)
            await harken.start()
            found = await _answered(harken, request, operation)
            again = await harken.post(*request, key=operation)
            assert await made() == 1, operation
            if effect.lost:
                assert {status for status, _, _ in found} == {409}, (operation, found[0])
                assert {body["code"] for _, body, _ in [*found, again]} == {"answer_lost"}, (operation, found[0])
            else:
                assert {status for status, _, _ in found} <= {200, 201}, (operation, found[0])
                assert (again[1:], again[0]) == ((found[0][1], True), found[0][0]), operation


async def _killed(harken: Harken, request: Request, key: str) -> None:
    """All at once; the process dies when the first of them has had its effect, and nobody gets an answer but 409."""
    replies = await asyncio.gather(*(harken.post(*request, key=key) for _ in range(PARALLEL)), return_exceptions=True)
    assert await harken.died() == -signal.SIGKILL
    assert {reply[0] for reply in replies if not isinstance(reply, BaseException)} <= {409}, replies


async def _answered(harken: Harken, request: Request, key: str) -> list[tuple[int, Any, bool]]:
    """The answers to all of them, when none is told to wait any more."""
    while True:
        replies = await asyncio.gather(*(harken.post(*request, key=key) for _ in range(PARALLEL)))
        settled = [reply for reply in replies if reply[1].get("code") != "still_running"]
        if settled:
            return settled
        await asyncio.sleep(0.1)
