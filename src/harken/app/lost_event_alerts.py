"""Announces gaps in the coverage ledger, and events that became dead letters, each once, on the feed `harken`.

Streams announce their own gaps, with what the broker says of them; of every other feed the ledger tells. What was
announced is kept in the store, so that neither a restart nor another replica repeats it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import structlog

from harken.clock import Clock
from harken.event import Event
from harken.feed import INTERNAL, FeedState
from harken.ingest.intake import Intake
from harken.ingest.stream import GAP
from harken.match import Read
from harken.store import DeadLetter, Store
from harken.store.document_kinds import GAP_TOLD, LETTERS, LETTERS_TOLD

__all__ = ["EVENT_DEAD", "LedgerAlerts"]

EVENT_DEAD = "event.dead"
PAGE = 200
MOST_PAGES = 25
"""So many pages of dead letters are looked through for new ones."""

log = structlog.get_logger("harken.app")


class LedgerAlerts:
    """Compares the ledger and the dead letters with what was announced. Only the replica that keeps house checks."""

    def __init__(self, store: Store, intake: Intake, clock: Clock) -> None:
        self._store = store
        self._intake = intake
        self._clock = clock
        self._told: dict[str, datetime] | None = None
        self._letters = -1

    def forget(self) -> None:
        """Another replica keeps house, and stores what it announces."""
        self._told, self._letters = None, -1

    async def check(self) -> None:
        """Announce what is new since the last check; whatever fails is announced by the next."""
        await self._check_gaps()
        await self._check_letters()

    async def _check_gaps(self) -> None:
        if self._told is None:
            found = await self._store.documents(GAP_TOLD)
            self._told = {one.name: datetime.fromisoformat(one.value["until"]) for one in found}
        ways = {name: live.feed.way for name, live in self._intake.feeds.items()}
        for state in await self._store.feeds():
            if len(state.coverage) > 1 and ways.get(state.name) not in (None, "stream"):
                await self._check_feed(state)

    async def _check_feed(self, state: FeedState) -> None:
        assert self._told is not None
        told = self._told.get(state.name)
        # of a feed whose gaps were never announced only the last is news
        since = told if told is not None else state.coverage[-2].end
        for before, after in zip(state.coverage, state.coverage[1:], strict=False):
            if after.start > since:
                await self._announce_gap(state.name, before.end, after.start)
        last = state.coverage[-1].start
        if told is None or last > told:
            await self._store.put(GAP_TOLD, state.name, {"until": last.isoformat()})
            self._told[state.name] = last

    async def _announce_gap(self, feed: str, start: datetime, end: datetime) -> None:
        name = self._intake.display_name(feed)
        reason = f"it was not read from {start.isoformat()} to {end.isoformat()}, and its source may not show it again"
        rules = self._intake.rule_cache.get(feed)
        log.error(GAP, feed=name, reason=reason)
        data: dict[str, Any] = {
            "feed": name,
            "feed_id": feed,
            "reason": reason,
            "messages": None,
            "since": start.isoformat(),
            "until": end.isoformat(),
            "triggers": sorted(rule.name for rule in rules.rules) if rules else [],
            "alert": True,
            "text": f"{name} has a gap: {reason}",
        }
        await self._announce(feed, GAP, f"{GAP}:{feed}@{start.isoformat()}", data)

    async def _check_letters(self) -> None:
        count = (await self._store.counts()).get("refused_events", 0)
        if count == self._letters:
            return
        document = await self._store.get(LETTERS, LETTERS_TOLD)
        told = int(document.value["last"]) if document is not None else 0
        new = await self._new_letters(told)
        for letter in sorted(new, key=_number):
            await self._announce_letter(letter)
        if new:
            await self._store.put(LETTERS, LETTERS_TOLD, {"last": max(map(_number, new))})
        self._letters = count

    async def _new_letters(self, told: int) -> list[DeadLetter]:
        found: list[DeadLetter] = []
        before: int | None = None
        for _ in range(MOST_PAGES):
            page = await self._store.dead(before=before, limit=PAGE)
            events = [letter for letter in page.items if letter.what == "event"]
            found += [letter for letter in events if _number(letter) > told]
            before = page.next
            if before is None or any(_number(letter) <= told for letter in events):
                break
        return found

    async def _announce_letter(self, letter: DeadLetter) -> None:
        feed = self._intake.display_name(letter.trigger)
        data: dict[str, Any] = {
            "letter": letter.id,
            "feed": feed,
            "feed_id": letter.trigger,
            "key": letter.key,
            "status": "dead",
            "error": letter.reason,
            "alert": True,
            "text": f"An event of {feed} is a dead letter: {letter.reason}",
        }
        await self._announce(letter.id, EVENT_DEAD, f"{EVENT_DEAD}:{letter.id}@{letter.at.isoformat()}", data)

    async def _announce(self, subject: str, type: str, key: str, data: dict[str, Any]) -> None:
        now = self._clock.now()
        event = Event(subject=subject, type=type, key=key, state=key, occurred_at=now, data=data)
        await self._intake.committer.push(INTERNAL, [event], Read(now=now))


def _number(letter: DeadLetter) -> int:
    return int(letter.id.rpartition("-")[2])
