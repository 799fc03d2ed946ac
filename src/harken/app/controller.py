"""The running engine as operations see it: reload, tick, preview, status."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import msgspec
import structlog

from harken import __version__
from harken.app.parts import Parts
from harken.app.preview import preview
from harken.budget import Level
from harken.clock import Clock
from harken.config import Account, Loaded, carry_over, inherit, plan
from harken.errors import HarkenError, NotFound, Refused
from harken.feed import AT_START, Feed, Trigger
from harken.ingest.intake import Intake
from harken.operate.check import load_directory
from harken.operate.engine import Preview
from harken.operate.mended import free
from harken.operate.queries import checked
from harken.run.worker import Worker
from harken.source import Closable, Host
from harken.store import Definitions, Store

__all__ = ["Controller", "Offline"]

log = structlog.get_logger("harken.app")


class Offline:
    """As much of an engine as a single command needs when no controller runs: it reads, and writes nothing.

    `made_up`: there is no store yet, and what this one says of when a trigger began means nothing.
    """

    def __init__(self, store: Store, parts: Parts, clock: Clock, *, made_up: bool = False) -> None:
        self._store = store
        self._parts = parts
        self._clock = clock
        self._made_up = made_up

    async def reload(self) -> Mapping[str, Any]:
        raise Refused("no controller is running", fix="Start one with: harken start")

    async def diff(self) -> Mapping[str, Any]:
        before = await last_applied(self._store, self._parts.loaded)
        answer: dict[str, Any] = msgspec.to_builtins(plan(before, self._parts.loaded))
        return answer | {"findings": _findings(self._parts.loaded)}

    async def tick(self, feed: str, by_hand: str = "") -> Mapping[str, Any]:
        raise Refused("no controller is running", fix="Start one with: harken start")

    async def preview(self, trigger: str, lookback_seconds: float) -> Preview:
        begun = {} if self._made_up else await _start_lines(self._store)
        return await _preview(self._store, self._parts, self._clock, trigger, lookback_seconds, begun)

    def status(self) -> Mapping[str, Any]:
        return {}

    def lend(self, account: Account) -> Host:
        return self._parts.lend(account)

    def budgets(self) -> Mapping[str, Level]:
        return self._parts.budgets()

    def nudge(self) -> None:
        """Nothing runs that would have to look."""

    async def changed(self, seconds: float) -> bool:
        await self._clock.sleep(min(seconds, 1.0))
        return True


class Controller:
    """Joins intake, worker and configuration, and keeps them in step."""

    def __init__(self, store: Store, parts: Parts, intake: Intake, worker: Worker, clock: Clock) -> None:
        self._store = store
        self._parts = parts
        self._intake = intake
        self._worker = worker
        self._clock = clock
        self._started = clock.time()
        self._waiting: list[asyncio.Future[bool]] = []
        self._refreshing: asyncio.Task[None] | None = None
        self._refresh_again = False
        self._reloading = asyncio.Lock()
        self._stopping = False
        self.url = ""
        self.on_loaded: Callable[[Loaded], None] = lambda loaded: None

    async def open(self) -> None:
        """Apply the configuration for the first time in this process."""
        loaded = self._parts.loaded
        before = await last_applied(self._store, loaded)
        feeds = inherit(loaded.feeds, loaded.triggers, before.feeds, before.triggers)
        pause = {job.id: AT_START for job in loaded.jobs.values() if job.paused_on_boot}
        definitions = msgspec.structs.replace(loaded.definitions(), feeds=feeds, starting=True, pause=pause)
        await self._intake.start(definitions)
        await _remember(self._store, definitions)

    async def reload(self) -> Mapping[str, Any]:
        async with self._reloading:
            old = self._parts.loaded
            # reads go on meanwhile: with a thousand jobs this takes its time
            merged, answer, definitions, renewed = await asyncio.to_thread(_prepared, old)
            # first of all what runs need: those of the new triggers may begin at once
            self._use(merged)
            try:
                await self._intake.apply(definitions, renew=renewed)
                await _remember(self._store, definitions)
            except BaseException:
                # nothing is lost: the next reload finds the same differences
                self._use(old)
                raise
            answer["freed"] = (await free(self._store, merged.triggers, renewed)).freed
            # feeds that were freed stand where the store says; the others go on undisturbed
            (self.nudge if answer["freed"] else self._worker.nudge)()
            log.info("config.reloaded", **{name: len(answer[name]) for name in ("add", "replace", "remove", "refused")})
            return answer

    def _use(self, loaded: Loaded) -> None:
        self._parts.loaded = loaded
        self._worker.use(self._parts.reach())
        self.on_loaded(loaded)

    async def diff(self) -> Mapping[str, Any]:
        old = self._parts.loaded
        found = await asyncio.to_thread(load_directory, old.directory)
        return _planned(old, carry_over(old, found), found)

    async def tick(self, feed: str, by_hand: str = "") -> Mapping[str, Any]:
        return dict(msgspec.to_builtins(await self._intake.tick(feed, by_hand)))

    async def preview(self, trigger: str, lookback_seconds: float) -> Preview:
        begun = await _start_lines(self._store)
        return await _preview(self._store, self._parts, self._clock, trigger, lookback_seconds, begun)

    def status(self) -> Mapping[str, Any]:
        worker, intake = self._worker, self._intake
        return {
            "version": __version__,
            "pid": os.getpid(),
            "url": self.url,
            "uptime_seconds": round(self._clock.time() - self._started, 1),
            "generation": self._parts.loaded.generation,
            "leading": intake.keeper.held,
            "schedule_lag_seconds": round(max(0.0, intake.timer.lag), 3),
            "events_committed": intake.gate.committed,
            "webhooks_received": intake.webhooks.received,
            "runs_started": worker.started,
            "runs_done": worker.done,
            "runs_failed": worker.failed,
            "runs_dead": worker.dead,
            "runs_in_flight": worker.in_flight,
        }

    def lend(self, account: Account) -> Host:
        return self._parts.lend(account)

    def budgets(self) -> Mapping[str, Level]:
        return self._parts.budgets()

    def nudge(self) -> None:
        """A person changed the store: feeds stand where it says, and runs that became ready are claimed."""
        self._worker.nudge()
        self._refresh_again = True
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._refresh(), name="refresh")

    async def _refresh(self) -> None:
        while self._refresh_again:
            self._refresh_again = False
            try:
                for state in await self._store.feeds():
                    rules = self._intake.rulebook.get(state.name)
                    if rules is None or rules.revision != state.revision:
                        await self._intake.refresh(state.name)
            except HarkenError as error:
                log.warning("refresh.failed", reason=str(error))
        self.tell()

    def tell(self, *_: object) -> None:
        """Something was committed: wake whoever watches."""
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for future in waiting:
                if not future.done():
                    future.set_result(True)

    async def changed(self, seconds: float) -> bool:
        if self._stopping:
            return False
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        try:
            async with asyncio.timeout(seconds):
                return await future
        except TimeoutError:
            return True

    def stop(self) -> None:
        """End whoever watches."""
        self._stopping = True
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(False)


def _prepared(old: Loaded) -> tuple[Loaded, dict[str, Any], Definitions, frozenset[str]]:
    """What the files say now, what it changes, and what the engine needs to run it."""
    found = load_directory(old.directory)
    merged = carry_over(old, found)
    return merged, _planned(old, merged, found), merged.definitions(), _renewed(old, merged)


def _renewed(old: Loaded, new: Loaded) -> frozenset[str]:
    """The feeds that go on as they are, but with another credential, or with other things that a service may do."""
    return frozenset(
        feed.name
        for feed in new.feeds
        if old.settings.services != new.settings.services
        or old.integrations.get(feed.integration) != new.integrations.get(feed.integration)
        or old.queries.get(feed.name) != new.queries.get(feed.name)
    )


def _planned(old: Loaded, merged: Loaded, found: Loaded) -> dict[str, Any]:
    answer: dict[str, Any] = msgspec.to_builtins(plan(old, merged))
    answer["refused"] = sorted(found.refused)
    answer["findings"] = _findings(found)
    return answer


def _findings(loaded: Loaded) -> list[str]:
    return [str(finding) for finding in loaded.findings]


async def last_applied(store: Store, loaded: Loaded) -> Loaded:
    """The feeds and triggers that were applied last, whoever did it; empty for a new store."""
    document = await store.get("config", "applied")
    if document is None:
        return Loaded(directory=loaded.directory)
    feeds = msgspec.convert(document.value["feeds"], tuple[Feed, ...])
    triggers = msgspec.convert(document.value["triggers"], tuple[Trigger, ...])
    return Loaded(directory=loaded.directory, feeds=feeds, triggers=triggers)


async def _remember(store: Store, definitions: Definitions) -> None:
    value = {"feeds": list(definitions.feeds), "triggers": list(definitions.triggers)}
    await store.put("config", "applied", value)


async def _start_lines(store: Store) -> Mapping[str, datetime]:
    return {state.name: state.start_line for state in await store.triggers()}


async def _preview(
    store: Store, parts: Parts, clock: Clock, trigger: str, lookback: float, begun: Mapping[str, datetime]
) -> Preview:
    loaded = parts.loaded
    wanted = next((found for found in loaded.triggers if found.name == trigger), None)
    if wanted is None:
        raise NotFound(f"there is no trigger {trigger}", fix="See: harken triggers list")
    feed = next(found for found in loaded.feeds if found.name == wanted.feed)
    names = await checked(feed, loaded, parts.plugins, parts.lend)
    start_line = begun.get(trigger)
    source = parts.source(feed)
    try:
        return await preview(store, feed, wanted, source, clock, lookback, names, start_line)
    finally:
        if isinstance(source, Closable):
            await source.aclose()
