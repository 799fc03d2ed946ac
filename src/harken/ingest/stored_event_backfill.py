"""A trigger that looks back: stored events of that time are decided again, before the rest of it is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol

import msgspec

from harken.clock import Clock
from harken.event import Event, Recorded
from harken.ingest.commit import Committer
from harken.match import Read, Rule, Rules, Sighting, match
from harken.store import Commit, Definitions, Entry, Feeds, Intent, Opened, Records, Registry

__all__ = ["Backfill", "FeedStore"]

PAGE = 100
SKEW = timedelta(days=1)
"""An event may be recorded before it says it happened: clocks differ, and some items are dated ahead."""


class FeedStore(Feeds, Records, Registry, Protocol):
    """The part of a store that intake needs."""


class Backfill:
    """Repeating it changes nothing: an event that a trigger has decided keeps its verdict."""

    def __init__(self, store: FeedStore, committer: Committer, clock: Clock) -> None:
        self._store = store
        self._committer = committer
        self._clock = clock

    async def decide_again(self, feed: str, token: int | None) -> Mapping[str, datetime]:
        """Show stored events to the triggers that look back and have not decided them yet.

        Returns the start lines of these triggers, by uid."""
        rules = await self._committer.rule_cache.rules(feed)
        spaced: dict[str, int] = {}
        stored = await self._stored(feed, rules.backfilling)
        for begin in range(0, len(stored), PAGE):
            found = await self._store.events_by_id(stored[begin : begin + PAGE])
            await self._commit(feed, found[::-1], token, spaced)
        return {rule.uid: rule.start_line for rule in rules.backfilling}

    async def of_pushed(self, definitions: Definitions, opened: Opened) -> None:
        """Decide stored events of pushed feeds again. They cannot be read again, so that completes their backfill."""
        pushed = {feed.name for feed in definitions.feeds if feed.way != "poll"}
        backfilling = {
            feed
            for trigger in definitions.triggers
            if opened.triggers[trigger.name].backfilling
            for feed in trigger.feeds
        }
        for feed in sorted(backfilling & pushed):
            await self.of_feed(feed)

    async def of_feed(self, feed: str, token: int | None = None) -> None:
        """Decide the stored events of one pushed feed again, which completes its backfill."""
        await self._finish(feed, await self.decide_again(feed, token), token)

    async def _finish(self, feed: str, start_lines: Mapping[str, datetime], token: int | None) -> None:
        """Note that these triggers have looked back; not those that were reset or came in the meantime."""

        async def end_backfill(rules: Rules) -> Commit:
            done = [rule.uid for rule in rules.backfilling if start_lines.get(rule.uid) == rule.start_line]
            return Commit(feed=feed, revision=rules.revision, token=token, backfilled=done)

        await self._committer.commit_matched(feed, await self._committer.rule_cache.rules(feed), end_backfill)
        await self._committer.rule_cache.learn(feed)

    async def _stored(self, feed: str, backfilling: Sequence[Rule]) -> list[int]:
        """Ids of events that one of the triggers may want, oldest first. Only ids: a day of events may be large."""
        oldest = min((rule.start_line for rule in backfilling), default=self._clock.now())
        found: list[int] = []
        before: int | None = None
        while True:
            page = await self._store.events(feed=feed, since=oldest - SKEW, before=before, limit=PAGE)
            found += [event.id for event in page.items if any(_wants(rule, event) for rule in backfilling)]
            before = page.next
            if before is None:
                return found[::-1]

    async def _commit(self, feed: str, events: Sequence[Recorded], token: int | None, spaced: dict[str, int]) -> None:
        read = Read(now=self._clock.now(), again=True, spaced=spaced)
        entries: list[Entry] = []

        async def match_stored(rules: Rules) -> Commit:
            entries[:] = _entries(events, rules, read)
            return Commit(feed=feed, revision=rules.revision, token=token, entries=entries)

        rules = await self._committer.rule_cache.rules(feed)
        await self._committer.commit_matched(feed, rules, match_stored)
        _count_spaced(entries, spaced)


def _wants(rule: Rule, event: Recorded) -> bool:
    if event.occurred_at is None or not rule.begun_by(event.occurred_at):
        return False
    verdicts = {verdict.trigger: verdict.outcome for verdict in event.verdicts}
    return verdicts.get(rule.name, "before_start") == "before_start"


def _entries(events: Sequence[Recorded], rules: Rules, read: Read) -> list[Entry]:
    looking = Rules(rules.revision, rules.feed, rules.backfilling)
    sightings = [Sighting(_event_of(event), "", 0, 1) for event in events]
    decided = match(sightings, looking, read)
    return [msgspec.structs.replace(entry, again=event.id) for entry, event in zip(decided, events, strict=True)]


def _event_of(event: Recorded) -> Event:
    dated: datetime | None = event.occurred_at
    return Event(
        subject=event.subject, type=event.type, data=event.data, key=event.key, state=event.state, occurred_at=dated
    )


def _count_spaced(entries: Sequence[Entry], spaced: dict[str, int]) -> None:
    for entry in entries:
        for decision in entry.decisions:
            if isinstance(decision, Intent):
                spaced[decision.trigger] = spaced.get(decision.trigger, 0) + 1
