"""Several whole applications on virtual time that share one store and one configuration, and die when told to."""

from __future__ import annotations

import asyncio
import hmac
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

from harken.app import App
from harken.app.store import OpenedStore
from harken.operate.load_and_check_configuration import load_directory
from harken.runs import FINAL, Run
from harken.testing import VirtualClock
from harken.testing.crashing import Crash, CrashingStore
from harken.testing.fakes.github import Issue
from harken.testing.simulated_process_tasks import TaskOwner, note_owners
from harken.timings import Timings
from tests.services.whole import write
from tests.system.property.fleet_stores import SqliteHome
from tests.system.tickets.lagging_github import LAGS, LaggingGitHub, lifecycle_of
from tests.system.tickets.store_homes import Stores

__all__ = ["ENVIRON", "MIXED", "PIPELINE", "Replica", "Replicas", "replicas"]

SECRET = "a-webhook-secret-0123456789"
ENVIRON = {"GITHUB_TOKEN": "classic", "GITHUB_WEBHOOK_SECRET": SECRET}

MIXED = """
trackers:
  acme:
    type: github
    organization: acme
    base_url: {url}
    webhook_secret: ${{GITHUB_WEBHOOK_SECRET}}
    polling: {{enabled: true, interval_seconds: 30}}
projects:
  shop: {{tracker: acme, resolution: {{repo: shop}}, pipeline_from_label: {{fix: fix-bug, scan: fix-bug}}}}
"""

PIPELINE = """
name: fix-bug
steps:
  - {id: think, action: wait, for: 4s}
  - {id: write, action: wait, for: 5s}
  - {id: check, action: wait, for: 4s}
  - {id: break, action: transform, if: 'event.title == "broken"', set: {said: "{{.trigger.event.nothing}}"}}
  - {id: work, action: transform, set: {said: "{{.trigger.event.ref}}"}}
"""


class Replica:
    """One life of an application. `store.crash` lets it die at a verb, `kill` now."""

    def __init__(self, app: App, store: CrashingStore, owner: TaskOwner) -> None:
        self.app = app
        self.store = store
        self.owner = owner

    @property
    def lives(self) -> bool:
        return not self.store.crashed.is_set()

    async def do(self, work: Any) -> Any:
        """Do it as this replica: it ends with it."""
        task = self.owner.spawn(work)
        await asyncio.wait({task})
        return task

    async def kill(self) -> None:
        """End at once, as kill -9 does: nothing more is written, and nothing is given back."""
        self.store.crashed.set()
        self.app.intake.scheduler.stop()
        self.app.intake._stopping = True
        await self.owner.end()
        await self.app.factory.close()


class Replicas:
    def __init__(
        self, clock: VirtualClock, directory: Path, hub: LaggingGitHub, random: Random, stores: Stores, timings: Timings
    ) -> None:
        self.clock = clock
        self.hub = hub
        self.living: list[Replica] = []
        self.lost_webhooks = 0
        self._directory = directory
        self._random = random
        self._stores = stores
        self._timings = timings
        # what a person sees who looks at it
        self._store = stores.store()
        self._deliveries = count(1)
        # what each living replica does when another one releases a lease
        self._on_released: dict[CrashingStore, Callable[[], object]] = {}
        self.verbs: Counter[str] = Counter()

    async def start(self) -> Replica:
        loaded = load_directory(self._directory, ENVIRON)
        assert [str(finding) for finding in loaded.findings] == []

        def note(verb: str, args: Any, kwargs: Any, answer: Any) -> None:
            self.verbs[verb] += 1
            for other in [other for other in self._on_released if verb == "release_lease" and other is not store]:
                self._on_released[other]()

        def listen(on_ready: Callable[[], object], on_released: Callable[[], object]) -> None:
            self._on_released[store] = on_released

        store: Any = CrashingStore(self._stores.store(), note)
        owner = TaskOwner()
        opened = OpenedStore(store=store, shared=True, connect=store.connect, listen=listen)
        app = owner.context.run(App, loaded, opened, self.clock, timings=self._timings)
        replica = Replica(app, store, owner)
        (await replica.do(_begin(app))).result()
        self.living.append(replica)
        return replica

    async def kill(self, replica: Replica) -> None:
        self.living.remove(replica)
        del self._on_released[replica.store]
        await replica.kill()
        await self._stores.release(replica.store.inner)

    async def stop(self, replica: Replica) -> None:
        """Leave as a process does that was asked to."""
        self.living.remove(replica)
        (await replica.do(replica.app.stop())).result()
        replica.store.crashed.set()
        del self._on_released[replica.store]
        await self._stores.release(replica.store.inner)

    async def close(self) -> None:
        for replica in list(self.living):
            await self.stop(replica)
        await self._stores.release(self._store)
        await self._stores.close()

    async def forget_everything(self) -> None:
        """Lose the store, while no replica is there."""
        assert not self.living
        await self._stores.close()
        await self._stores.open(self.clock)
        self._store = self._stores.store()

    async def deliver(self, issue: Issue, action: str = "labeled", *, to: Replica | None = None) -> int:
        """Send a webhook to any replica, as GitHub does: once. Returns the answer, 0 if there is none."""
        told = {"action": action, "issue": issue.to_json(), "repository": {"full_name": issue.repo, "id": 1}}
        body = json.dumps(told).encode()
        replica = to or self._random.choice(self.living)
        sent: list[Any] = []
        done = await replica.do(_request(replica.app, body, next(self._deliveries), sent))
        if done.cancelled() or isinstance(done.exception(), Crash):
            self.lost_webhooks += 1
            return 0
        done.result()
        return int(sent[0]["status"])

    async def runs(self) -> list[Run]:
        found: list[Run] = []
        before: int | None = None
        while True:
            page = await self._store.runs(before=before, limit=200)
            found += page.items
            if (before := page.next) is None:
                return found

    async def outcomes(self) -> Mapping[str, list[str]]:
        """The states of the runs of each ticket, by its number, oldest first."""
        outcomes: dict[str, list[str]] = {}
        for run in reversed(await self.runs()):
            event = await self._store.event(run.event_ids[0])
            assert event is not None
            outcomes.setdefault(str(event.data["number"]), []).append(run.status)
        return outcomes

    async def leader(self) -> Replica:
        """The replica that reads the tracker."""
        shard = self.living[0].app.intake.feeds["tracker/acme"].feed.shard
        held = {lease.holder for lease in await self._store.leases() if lease.shard == shard}
        return next(replica for replica in self.living if replica.app.holder in held)

    async def until_calm(self, *, within: float, every: float = 60.0) -> None:
        """Return when no run is open and every ticket shows the end of its run; fail after so many seconds."""
        ends = self.clock.time() + within
        while not await self._is_calm():
            assert self.clock.time() < ends, await self._what_is_left()
            await self.clock.sleep(every)

    async def _is_calm(self) -> bool:
        # asked of the platform first, which costs nothing
        return not self._unfinished() and not {run.status for run in await self.runs()} - FINAL

    async def _what_is_left(self) -> dict[str, tuple[list[str], list[str]]]:
        outcomes = await self.outcomes()
        return {str(one.number): (one.labels, outcomes.get(str(one.number), [])) for one in self._unfinished()}

    def _unfinished(self) -> list[Issue]:
        ends = (["harken:done"], ["harken:failed"])
        issues = self.hub.repos["acme/shop"].issues.values()
        return [issue for issue in issues if [one for one in lifecycle_of(issue) if one != "harken:mine"] not in ends]


async def _begin(app: App) -> None:
    await app.begin()
    app._join_fleet()


async def _request(app: App, body: bytes, delivery: int, sent: list[Any]) -> None:
    headers = {
        "content-type": "application/json",
        "x-github-event": "issues",
        "x-github-delivery": f"d{delivery}",
        "x-hub-signature-256": f"sha256={hmac.digest(SECRET.encode(), body, 'sha256').hex()}",
    }
    scope = {
        "method": "POST",
        "path": "/webhooks/github/acme",
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 1),
    }

    async def receive() -> Any:
        return {"type": "http.request", "body": body}

    async def send(message: Any) -> None:
        sent.append(message)

    await app.intake.webhooks(scope, receive, send)


@asynccontextmanager
async def replicas(
    clock: VirtualClock,
    directory: Path,
    *,
    size: int = 3,
    seed: int = 1,
    text: str = MIXED,
    pipeline: str = PIPELINE,
    lags: tuple[float, ...] = LAGS,
    stores: Stores | None = None,
    timings: Timings = Timings(),
) -> AsyncIterator[Replicas]:
    """So many replicas that are up, and a GitHub. Without `stores` they share a file of SQLite."""
    note_owners(asyncio.get_running_loop())
    random = Random(seed)
    hub = LaggingGitHub(clock, random, lags)
    async with hub.serve():
        write(directory, text.format(url=hub.url), **{"fix-bug": pipeline})
        stores = stores or Stores(SqliteHome(directory))
        await stores.open(clock)
        fleet = Replicas(clock, directory, hub, random, stores, timings)
        for _ in range(size):
            await fleet.start()
        yield fleet
        await fleet.close()
