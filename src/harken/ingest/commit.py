"""Every event passes here: recall, recognise, match, commit, and match again when the rules have moved on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec
import structlog

from harken.clock import Clock
from harken.errors import HarkenError, LeaseLost, RetryLater
from harken.event import Event
from harken.feed import Trigger, TriggerState
from harken.match import Read, Rules, Sighting, compile_rules, match, memory_id, recognise
from harken.runs import Claimed
from harken.store import Commit, Committed, Definitions, Entry, Feeds, Intent, Listeners, Opened, Stale

__all__ = ["MOST_REMATCHES", "CommitRequest", "Committer", "Executor", "RuleCache"]

log = structlog.get_logger("harken.ingest")


class RuleCache:
    def __init__(self, store: Feeds) -> None:
        self._store = store
        self._rules: dict[str, Rules] = {}
        self._told: dict[str, Listeners] = {}

    def get(self, feed: str) -> Rules | None:
        """The rules as last learnt, without asking."""
        return self._rules.get(feed)

    async def rules(self, feed: str) -> Rules:
        rules = self._rules.get(feed)
        if rules is None and feed in self._told:
            rules = self._rules[feed] = compile_rules(self._told.pop(feed))
        return rules or await self.learn(feed)

    async def learn(self, feed: str) -> Rules:
        """Read the rules from the store and compile them."""
        listeners = await self._store.listeners(feed)
        told = self._told.pop(feed, None)
        if told is not None and told.revision > listeners.revision:
            listeners = told
        rules = self._rules[feed] = compile_rules(listeners)
        return rules

    def adopt(self, definitions: Definitions, opened: Opened) -> None:
        """Keep what is still true; what the store has just been told of the others need not be asked of it again."""
        self._rules = {
            name: rules
            for name, rules in self._rules.items()
            if name in opened.feeds and rules.revision >= opened.feeds[name].revision
        }
        heard: dict[str, list[tuple[Trigger, TriggerState]]] = {}
        for trigger in sorted(definitions.triggers, key=lambda trigger: trigger.name):
            heard.setdefault(trigger.feed, []).append((trigger, opened.triggers[trigger.name]))
        self._told = {
            feed.name: Listeners(
                revision=opened.feeds[feed.name].revision, feed=feed, triggers=heard.get(feed.name, ())
            )
            for feed in definitions.feeds
            if feed.name not in self._rules
        }


MOST_REMATCHES = 20


class Executor(Protocol):
    """Who executes runs: takes those that a commit hands over, and looks for the rest when nudged."""

    holder: str

    def reserve(self, wanted: int) -> int: ...

    def unreserve(self, count: int) -> None: ...

    def accept(self, claimed: Sequence[Claimed]) -> None: ...

    def nudge(self) -> None: ...


class CommitRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What to commit for a feed besides its events; `rest` are the other fields of the Commit.

    `epochs` are those of the triggers when the read began; `ends_first`: this is the last page of a first read.
    """

    events: Sequence[Event]
    read: Read
    token: int | None = None
    rest: dict[str, Any] = {}
    epochs: Mapping[str, int] = {}
    ends_first: bool = False


class Committer:
    """Makes one commit of a batch. What the store refuses is dead-lettered alone and never blocks its feed."""

    def __init__(self, store: Feeds, rule_cache: RuleCache, executor: Executor, clock: Clock) -> None:
        self._store = store
        self.rule_cache = rule_cache
        self._executor = executor
        self._clock = clock
        self.committed = 0
        self.on_commit: Callable[[str, Commit, Committed], None] | None = None

    async def recognise(self, feed: str, events: Sequence[Event]) -> list[Sighting]:
        """The events that the feed does not know yet."""
        rules = await self.rule_cache.rules(feed)
        identity = rules.feed.identity
        known = await self._store.recall(feed, [memory_id(event, identity) for event in events])
        return recognise(events, known, identity)

    async def take(self, feed: str, page: CommitRequest, sightings: list[Sighting] | None = None) -> Committed:
        """Commit the page; when this returns, everything in it is safe."""
        for _ in range(MOST_REMATCHES):
            if sightings is None:
                sightings = await self.recognise(feed, page.events)
            rules = await self.rule_cache.rules(feed)
            if any(page.epochs.get(rule.uid, rule.state.epoch) != rule.state.epoch for rule in rules.rules):
                raise LeaseLost(f"{feed} was reset during the read")
            entries = match(sightings, rules, page.read)
            # also of a trigger that was not there when the read began
            release = _flood_limits(rules) if page.ends_first else {}
            commit = Commit(
                feed=feed, revision=rules.revision, token=page.token, entries=entries, release=release, **page.rest
            )
            answer = await self.commit(commit)
            if isinstance(answer, Committed):
                return answer
            await self.rule_cache.learn(feed)
            sightings = None
        raise RetryLater(f"the rules of {feed} changed {MOST_REMATCHES} times during one read")

    async def push(self, feed: str, events: Sequence[Event], read: Read) -> Committed:
        """Commit events that were pushed to us. The commit itself finds the repeats, so nothing is recalled."""
        rules = self.rule_cache.get(feed) or await self.rule_cache.learn(feed)
        identity = rules.feed.identity
        if identity == "transition":
            return await self.take(feed, CommitRequest(events=events, read=read))
        sightings = recognise(events, {}, identity)
        for _ in range(MOST_REMATCHES):
            entries = match(sightings, rules, read)
            answer = await self.commit(Commit(feed=feed, revision=rules.revision, entries=entries))
            if isinstance(answer, Committed):
                return answer
            rules = await self.rule_cache.learn(feed)
        raise RetryLater(f"the rules of {feed} changed {MOST_REMATCHES} times during one delivery")

    async def commit(self, commit: Commit) -> Committed | Stale:
        """Commit what was matched, and hand over the runs that it starts."""
        wanted = 0
        for entry in commit.entries:
            for decision in entry.decisions:
                wanted += type(decision) is Intent
        executor = self._executor
        reserved = executor.reserve(wanted) if wanted else 0
        if reserved:
            commit = msgspec.structs.replace(commit, claim=reserved, holder=executor.holder)
        answer: Committed | Stale | None = None
        try:
            answer = await self._store_all(commit)
        finally:
            claimed = answer.claimed if isinstance(answer, Committed) else ()
            if reserved > len(claimed):
                executor.unreserve(reserved - len(claimed))
            if claimed:
                executor.accept(claimed)
        if isinstance(answer, Committed):
            self.committed += len(commit.entries)
            if self.on_commit is not None:
                self.on_commit(commit.feed, commit, answer)
            if wanted > len(answer.claimed):
                executor.nudge()
        return answer

    async def _store_all(self, commit: Commit) -> Committed | Stale:
        try:
            return await self._store.commit(commit)
        except HarkenError:
            raise
        except Exception as error:
            if not commit.entries:
                raise
            return await self._sift(commit, error)

    async def _sift(self, commit: Commit, error: Exception) -> Committed | Stale:
        """Find what the store refuses: commit the halves without the cursor, then the cursor alone."""
        bare: dict[str, Any] = {
            "cursor": msgspec.UNSET,
            "watermark": None,
            "next_due": None,
            "tick": None,
            "done": False,
            "release": {},
            "backfilled": (),
        }
        ids: list[int] = []
        verdicts: list[tuple[Any, ...]] = []
        claimed: list[Claimed] = []
        for part in _halves(commit.entries):
            if len(commit.entries) == 1:
                await self._bury(commit.feed, part[0], error)
                ids.append(0)
                verdicts.append(())
                continue
            room = max(0, commit.claim - len(claimed))
            answer = await self._store_all(msgspec.structs.replace(commit, entries=part, claim=room, **bare))
            if isinstance(answer, Stale):
                return answer
            ids.extend(answer.event_ids)
            verdicts.extend(answer.verdicts)
            claimed.extend(answer.claimed)
        last = await self._store_all(msgspec.structs.replace(commit, entries=(), claim=0))
        if isinstance(last, Stale):
            return last
        return Committed(event_ids=ids, verdicts=verdicts, claimed=claimed)

    async def _bury(self, feed: str, entry: Entry, error: Exception) -> None:
        reason = f"the store refused it ({type(error).__name__})"
        log.error("event.refused", feed=feed, reason=reason)
        await self._store.dead_letter(feed, entry.event, reason)


def _flood_limits(rules: Rules) -> dict[str, int]:
    return {rule.uid: rule.trigger.flood_limit for rule in rules.rules if rule.trigger.flood_limit > 0}


def _halves(entries: Sequence[Entry]) -> list[Sequence[Entry]]:
    middle = len(entries) // 2
    return [part for part in (entries[:middle], entries[middle:]) if part]
