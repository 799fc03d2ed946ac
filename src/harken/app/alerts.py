"""Says once that a feed has stopped until a person acts, and once that it goes again: events on the feed `harken`.

What was told is kept in the store, so that neither a restart nor a crash repeats or swallows it.
"""

from __future__ import annotations

from typing import Any

import structlog

from harken.clock import Clock, from_unix
from harken.event import Event
from harken.feed import INTERNAL
from harken.ingest.intake import Intake
from harken.ingest.live import Live
from harken.match import Read
from harken.store import Store

__all__ = ["PAUSED", "RECOVERED", "Alerts"]

log = structlog.get_logger("harken.app")

TOLD = "alert"
PAUSED, RECOVERED = "feed.paused", "feed.recovered"


class Alerts:
    """Compares where the feeds stand with what was told of them. A pause is known by the moment it began."""

    def __init__(self, store: Store, intake: Intake, clock: Clock) -> None:
        self._store = store
        self._intake = intake
        self._clock = clock
        self._told: dict[str, float] | None = None

    async def look(self) -> None:
        """Tell what changed since the last look; whatever fails is told at the next."""
        told = self._told
        if told is None:
            told = {document.name: float(document.value["since"]) for document in await self._store.documents(TOLD)}
            self._told = told
        for name, live in list(self._intake.feeds.items()):
            since = live.health.since or 0.0
            if live.health.state == "paused" and told.get(name) != since:
                await self._tell(name, PAUSED, since, _paused(live))
                await self._store.put(TOLD, name, {"since": since})
                told[name] = since
        for name, since in list(told.items()):
            if await self._is_over(name, since):
                await self._store.delete(TOLD, name)
                del told[name]

    async def _is_over(self, name: str, since: float) -> bool:
        live = self._intake.feeds.get(name)
        if live is None:
            # it left the configuration: nobody waits for it any more
            return True
        if not live.health.clean:
            return False
        last = (await self._store.state(name)).last_success
        if last is None or last.timestamp() <= since:
            # a person has let it go, but it has not been read yet
            return False
        await self._tell(name, RECOVERED, since, _facts(live))
        log.info("feed.recovered", feed=name, stopped_at=from_unix(since).isoformat())
        return True

    async def _tell(self, name: str, type: str, since: float, facts: dict[str, Any]) -> None:
        rules = self._intake.rulebook.get(name)
        triggers = sorted(rule.name for rule in rules.rules) if rules else []
        data = {"feed": name, **facts, "triggers": triggers, "since": from_unix(since).isoformat()}
        # the same stop has the same key, so telling it again after a crash is a repeat that starts nothing
        now, what = self._clock.now(), f"{type}:{name}@{since:.6f}"
        event = Event(subject=name, type=type, key=what, state=what, occurred_at=now, data=data)
        await self._intake.gate.push(INTERNAL, [event], Read(now=now))


def _facts(live: Live) -> dict[str, Any]:
    return {"kind": live.feed.kind, "integration": live.feed.integration}


def _paused(live: Live) -> dict[str, Any]:
    health = live.health
    return {**_facts(live), "code": health.code, "reason": health.message, "failures": health.failures}
