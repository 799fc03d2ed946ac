"""What every contract test starts with: a store with one polled feed, two triggers and one lease."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeAlias

import msgspec
import pytest

from harken.event import Event, Recorded, Verdict
from harken.feed import INTERNAL, Feed, FeedState, Trigger, TriggerState
from harken.runs import Claimed, Finished, Run
from harken.schedule import Every
from harken.store import Commit, Committed, Definitions, Entry, Intent, Lease, Opened, Settlement, Stale, Store
from harken.testing.clock import HandClock

__all__ = ["INBOX", "INTERNAL_FEED", "MAIL", "OTHER", "Given", "Reopen", "StoreWorld", "definitions", "feed", "trigger"]

Reopen: TypeAlias = Callable[[Store], Awaitable[Store]]
"""Drop this store object without closing it, as a crash does, and open the same store again."""

LEASE_SECONDS = 30.0


def feed(name: str, **changes: Any) -> Feed:
    return Feed(name=name, kind="json", integration="acct", schedule=Every(seconds=60), **changes)


def trigger(name: str, *, on: str = "inbox", **changes: Any) -> Trigger:
    return msgspec.structs.replace(Trigger(name=name, feed=on, workflow="triage", workflow_rev="r1"), **changes)


INBOX = feed("inbox", identity="transition")
INTERNAL_FEED = Feed(name=INTERNAL, kind="internal", integration="", way="internal", identity="once")
MAIL = trigger("mail")
OTHER = trigger("other")


def definitions(
    feeds: Sequence[Feed] = (INBOX, INTERNAL_FEED), triggers: Sequence[Trigger] = (MAIL, OTHER), generation: str = "g1"
) -> Definitions:
    workflows = {"triage": ("r1", b'{"steps":[]}')}
    return Definitions(generation=generation, feeds=feeds, triggers=triggers, workflows=workflows)


class Given:
    """A store whose feed `inbox` is leased by `a`, and short methods that put events and runs into it.

    Methods take changes to the value that they build as keyword arguments: `given.intent("k", slot="s")`.
    """

    def __init__(self, store: Store, clock: HandClock, opened: Opened, lease: Lease) -> None:
        self.store = store
        self.clock = clock
        self.opened = opened
        self.lease = lease
        self.revision = opened.feeds["inbox"].revision

    def now(self, plus: float = 0.0) -> datetime:
        return self.clock.now() + timedelta(seconds=plus)

    async def open(self, new: Definitions) -> Opened:
        self.opened = await self.store.open(new)
        return self.opened

    async def feed(self, name: str = "inbox") -> FeedState:
        return await self.store.state(name)

    def trigger(self, name: str = "mail") -> TriggerState:
        return self.opened.triggers[name]

    async def renew(self, holder: str = "a") -> Lease:
        lease = await self.store.lease(0, holder, LEASE_SECONDS)
        assert lease is not None
        self.lease = lease
        return lease

    async def refresh(self) -> FeedState:
        """Read the feed's revision again, as a reader does after Stale."""
        state = await self.feed()
        self.revision = state.revision
        return state

    def intent(self, run_key: str, *, trigger: str = "mail", **changes: Any) -> Intent:
        state = self.trigger(trigger)
        plain = Intent(trigger=state.uid, epoch=state.epoch, run_key=run_key, workflow_rev="r1", due_at=self.now())
        return msgspec.structs.replace(plain, **changes)

    def entry(self, subject: str, *decisions: Verdict | Intent, state: str | None = None, **changes: Any) -> Entry:
        event = Event(
            subject=subject,
            type="mail",
            data={"id": subject},
            key=f"{subject}:{state}",
            state=state,
            occurred_at=self.now(),
        )
        return msgspec.structs.replace(Entry(event=event, memory_id=subject, decisions=decisions), **changes)

    def page(self, *entries: Entry, **changes: Any) -> Commit:
        plain = Commit(feed="inbox", revision=self.revision, token=self.lease.token, entries=entries)
        return msgspec.structs.replace(plain, **changes)

    async def commit(self, *entries: Entry, **changes: Any) -> Committed:
        answer = await self.store.commit(self.page(*entries, **changes))
        assert isinstance(answer, Committed), answer
        return answer

    async def fires(self, *subjects: str, **intent: Any) -> list[str]:
        """Commit an event with one intent for each subject. Return the ids of their runs."""
        committed = await self.commit(*(self.entry(each, self.intent(each, **intent)) for each in subjects))
        return [verdicts[0].run_id for verdicts in committed.verdicts]

    async def decides(self, subject: str, **intent: Any) -> Verdict:
        """Commit an event with one intent. Return its verdict."""
        committed = await self.commit(self.entry(subject, self.intent(subject, **intent)))
        return committed.verdicts[0][0]

    async def claims(self, limit: int = 10, holder: str = "w", seconds: float = 60.0) -> Sequence[Claimed]:
        return await self.store.claim(holder, limit, seconds)

    async def claims_one(self, holder: str = "w") -> Claimed:
        claims = await self.claims(1, holder)
        assert len(claims) == 1, claims
        return claims[0]

    async def running(self, subject: str = "s", **intent: Any) -> Claimed:
        """Commit an event with one intent and claim its run as `w`."""
        await self.fires(subject, **intent)
        return await self.claims_one()

    async def settle(self, claim: Claimed, outcome: Any = None, **changes: Any) -> str | Stale:
        settlement = Settlement(id=claim.id, token=claim.token, outcome=outcome or Finished(), **changes)
        answers = await self.store.settle([settlement])
        return answers[0]

    async def run(self, run_id: str) -> Run:
        found = await self.store.run(run_id)
        assert found is not None, run_id
        return found

    async def status(self, run_id: str) -> str:
        return (await self.run(run_id)).status

    async def statuses(self, run_ids: Sequence[str]) -> list[str]:
        return [await self.status(run_id) for run_id in run_ids]

    async def events(self, **filters: Any) -> list[Recorded]:
        return list((await self.store.events(**filters)).items)

    async def subjects(self, **filters: Any) -> list[str]:
        """Subjects of the recorded events, oldest first."""
        return [event.subject for event in reversed(await self.events(**filters))]


class StoreWorld:
    """The fixtures of a contract. A subclass provides `store` (empty, and using `clock`) and `reopen` (see Reopen)."""

    @pytest.fixture
    def clock(self) -> HandClock:
        return HandClock()

    @pytest.fixture
    async def given(self, store: Store, clock: HandClock) -> Given:
        opened = await store.open(definitions())
        lease = await store.lease(0, "a", LEASE_SECONDS)
        assert lease is not None
        return Given(store, clock, opened, lease)
