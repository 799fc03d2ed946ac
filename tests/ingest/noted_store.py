"""A store that keeps nothing and notes every write: for tests of what is written, and when."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from harken.event import Event, Known, Recorded, Verdict
from harken.feed import Feed, FeedState, Trigger, TriggerState
from harken.ingest.commit import Committer, RuleCache
from harken.ingest.feed_runtime_state import LiveFeed
from harken.match import Rules, compile_rules
from harken.runs import Claimed
from harken.schedule import Every
from harken.source import Batch
from harken.store import Commit, Committed, EarlyEnd, Failure, IdleRead, Intent, Listeners, Page, Stale
from harken.testing import START

FEED = Feed(name="inbox", kind="world", integration="world", schedule=Every(seconds=60), jitter=0.0)
HOUR = timedelta(hours=1)


def trigger(name: str = "t", **changes: Any) -> Trigger:
    made = Trigger(name=name, feed="inbox", workflow="w", workflow_rev="r")
    return msgspec.structs.replace(made, **changes)


def listener(name: str = "t", *, spec: Mapping[str, Any] | None = None, **state: Any) -> tuple[Trigger, TriggerState]:
    """A trigger with this definition and state, that is there since an hour."""
    known = {"uid": f"u-{name}", "epoch": 1, "start_line": START - HOUR, "created_at": START - HOUR, **state}
    return trigger(name, **(spec or {})), TriggerState(name=name, **known)


def rules(*listeners: tuple[Trigger, TriggerState], revision: int = 1, feed: Feed = FEED) -> Rules:
    return compile_rules(Listeners(revision=revision, feed=feed, triggers=listeners))


def live(source: Any = None, feed: Feed = FEED, **state: Any) -> LiveFeed:
    """The feed as a process has it that read it before, up to the cursor `old`."""
    known = {"revision": 1, "created_at": START - HOUR, "cursor": "old", "baselined": True, **state}
    return LiveFeed(feed, source or Pages(), FeedState(name=feed.name, **known), swept_at=START.timestamp())


def event(name: str, **changes: Any) -> Event:
    made = Event(subject=name, type="x", data={"id": name}, occurred_at=START - timedelta(minutes=1))
    return msgspec.structs.replace(made, **changes)


class Pages:
    """Shows these pages one after the other, and then nothing; notes the cursors that it was asked with."""

    def __init__(self, *pages: Batch | Exception) -> None:
        self._left = list(pages)
        self.cursors: list[Any] = []

    async def poll(self, cursor: Any, since: Any) -> Batch:
        self.cursors.append(cursor)
        page = self._left.pop(0) if self._left else Batch(cursor=cursor)
        if isinstance(page, Exception):
            raise page
        return page


class NotedStore:
    """Accepts a commit at its own revision, answers Stale to any other; `refuses` may raise before that.

    `known` is the memory of the feed; `stored` are events from before, oldest first.
    """

    def __init__(self, *listeners: tuple[Trigger, TriggerState], feed: Feed = FEED) -> None:
        self.feed = feed
        self.listeners_now: list[tuple[Trigger, TriggerState]] = list(listeners)
        self.revision = 1
        self.known: dict[str, Known] = {}
        self.stored: list[Recorded] = []
        self.refuses: Callable[[Commit], None] = lambda commit: None
        self.claimed: Sequence[Claimed] = ()
        self.sent: list[Commit] = []
        self.commits: list[Commit] = []
        self.recalls = 0
        self.idle: list[IdleRead] = []
        self.failures: list[Failure] = []
        self.dead_letters: list[str] = []

    def change(self, *listeners: tuple[Trigger, TriggerState]) -> None:
        """As another process does: the rules are at another revision from now on."""
        self.revision += 1
        self.listeners_now = list(listeners)

    async def listeners(self, feed: str) -> Listeners:
        return Listeners(revision=self.revision, feed=self.feed, triggers=tuple(self.listeners_now))

    async def recall(self, feed: str, ids: Sequence[str]) -> Mapping[str, Known]:
        self.recalls += 1
        return {id: self.known[id] for id in ids if id in self.known}

    async def commit(self, commit: Commit) -> Committed | Stale:
        self.sent.append(commit)
        self.refuses(commit)
        if commit.revision != self.revision:
            return Stale(self.revision)
        self.commits.append(commit)
        names = {state.uid: found.name for found, state in self.listeners_now}
        verdicts = [
            tuple(
                Verdict(trigger=names[one.trigger], outcome="fired") if isinstance(one, Intent) else one
                for one in entry.decisions
            )
            for entry in commit.entries
        ]
        return Committed(event_ids=[7] * len(verdicts), verdicts=verdicts, claimed=self.claimed)

    async def record_idle(self, reads: Sequence[IdleRead]) -> Sequence[str]:
        self.idle += reads
        return ()

    async def fail(self, failure: Failure) -> None:
        self.failures.append(failure)

    async def forget(self, feed: str, token: int, listed: Sequence[str], before: Any) -> int:
        return 0

    async def dead_letter(self, feed: str, event: Event, reason: str) -> None:
        self.dead_letters.append(event.subject)

    async def events(self, *, feed: str, since: Any, before: int | None, limit: int) -> Page:
        older = [one for one in reversed(self.stored) if before is None or one.id < before]
        page = older[:limit]
        return Page(items=page, next=page[-1].id if len(older) > limit else None)

    async def events_by_id(self, ids: Sequence[int]) -> Sequence[Recorded]:
        return [one for one in reversed(self.stored) if one.id in ids]


class Slots:
    """An executor with so many free places."""

    holder = "tests"

    def __init__(self, free: int = 0) -> None:
        self.free = free
        self.accepted: list[Claimed] = []
        self.nudges = 0
        self.end: EarlyEnd | None = None
        self.over: list[tuple[Claimed, EarlyEnd]] = []

    def reserve(self, wanted: int) -> int:
        granted = min(wanted, self.free)
        self.free -= granted
        return granted

    def unreserve(self, count: int) -> None:
        self.free += count

    def accept(self, claimed: Sequence[Claimed]) -> None:
        self.accepted += claimed

    def nudge(self) -> None:
        self.nudges += 1

    def find_end(self, feed: str, trigger: str, event: Event, intent: Intent) -> EarlyEnd | None:
        return self.end

    def note_over(self, claimed: Claimed, end: EarlyEnd) -> None:
        self.over.append((claimed, end))


def committer_on(store: Any, clock: Any, executor: Any = None) -> Committer:
    return Committer(store, RuleCache(store), executor or Slots(), clock)
