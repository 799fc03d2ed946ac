"""A real store with one polled feed, one pushed feed and a few triggers, and an operator in front of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from harken.app.store import scratch_store
from harken.backends.sqlite import SqliteStore
from harken.circuit_breaker import Health
from harken.clock import Clock
from harken.config.loaded import Account, Loaded
from harken.config.settings import Settings
from harken.event import Event, Span
from harken.feed import Digest, Feed, Trigger
from harken.ingest.feed_runtime_state import Late
from harken.ingest.refused_webhooks import Refusal, Refusals
from harken.match import Read, compile_rules, match, recognise
from harken.operate.activity_counts import Buckets
from harken.operate.engine_protocol import DraftEvents, DraftFeed, Preview, Shown
from harken.operate.operator import Operator
from harken.operate.trigger_activity_counts import Counts
from harken.outgoing_rate_limit import Level
from harken.runs import Workflow
from harken.schedule import Every
from harken.source import Announced, Cursor, Host, Lag, Located, Place, PositionedSource
from harken.store import Commit, Committed, Failure, Store, Tick
from harken.testing import HandClock
from harken.ticket import TicketTracker
from harken.tickets.recovery_after_store_loss import AdoptionResult
from harken.tickets.write_pace import WritePace

POLLED = Feed(name="company/incidents", kind="json", integration="company", schedule=Every(seconds=60))
PUSHED = Feed(name="deploys", kind="webhook", integration="webhook", way="push", path="webhook/deploys")
FLOW = Workflow(name="oncall", rev="r1", definition={"steps": [{"id": "page", "action": "llm", "prompt": "x"}]})


def trigger(name: str = "oncall", **changes: Any) -> Trigger:
    made = Trigger(name=name, feed=POLLED.name, workflow="oncall", workflow_rev="r1")
    return msgspec.structs.replace(made, **changes)


TRIGGERS = (
    trigger(condition='event.urgency == "high"'),
    trigger("digest", gather=Digest(window=600, max=5)),
    trigger("deploys", feed="deploys"),
)


class FakeEngine:
    """As much of an engine as operations ask for; it remembers what it was asked."""

    def __init__(self, clock: HandClock) -> None:
        self.clock = clock
        self.nudges = 0
        self.synced = 0
        self.ticked: list[str] = []
        self.facts: dict[str, Any] = {"pid": 1, "url": "http://127.0.0.1:9091"}
        self.levels: dict[str, Level] = {}
        self.refusals = Refusals(clock)
        self.skews: dict[str, float] = {}
        self.late: dict[str, Late] = {}
        self.sources: dict[str, PositionedSource] = {}
        self.lags: dict[str, Lag] = {}
        self.bells: dict[str, Announced] = {}
        self.in_hand: dict[tuple[str, str], datetime] = {}
        self.waits = 0
        self.beats = 1
        self.activity: Buckets = {}
        self.trigger_activity: Counts = {}
        self.shown_since: tuple[Shown, ...] = ()
        self.places: dict[str, Located] = {}

    async def reload(self) -> Mapping[str, Any]:
        return {"add": ["workflow:new"], "replace": [], "remove": [], "keep": [], "refused": []}

    async def diff(self) -> Mapping[str, Any]:
        return await self.reload()

    async def tick(self, feed: str, by_hand: str = "") -> Mapping[str, Any]:
        self.ticked.append(feed)
        return {"result": "events", "seen": 2, "new": 1}

    async def preview(self, trigger: str, lookback_seconds: float, *, since_start: bool = False) -> Preview:
        if since_start:
            return Preview(trigger=trigger, feed=POLLED.name, since=None, shown=self.shown_since)
        shown = (
            Shown(key="INC-1", subject="INC-1", type="json.item", outcome="fired", title="Disk full"),
            Shown(key="INC-2", subject="INC-2", type="json.item", outcome="filtered", reason="urgency is low"),
        )
        return Preview(trigger=trigger, feed=POLLED.name, since=None, shown=shown)

    async def read_draft(self, draft: DraftFeed, lookback_seconds: float) -> DraftEvents:
        raise NotImplementedError("the office has no services")

    def status(self) -> Mapping[str, Any]:
        return self.facts

    def lend(self, account: Account) -> Host:
        raise NotImplementedError("the office has no services")

    def trackers(self, name: str) -> Mapping[str, TicketTracker]:
        raise NotImplementedError("the office has no trackers")

    def write_pace(self, tracker: str) -> WritePace:
        raise NotImplementedError("the office has no trackers")

    async def tell(self, feed: str, events: Sequence[Event]) -> None:
        raise NotImplementedError("the office has no trackers")

    async def adopt_tickets(self, tracker: str) -> AdoptionResult:
        raise NotImplementedError("the office has no trackers")

    def refused_webhooks(self, path: str) -> Sequence[Refusal]:
        return self.refusals.last(path)

    def refused_count(self, path: str) -> int:
        return self.refusals.count(path)

    def unsaved_activity(self) -> Buckets:
        return self.activity

    def unsaved_trigger_activity(self) -> Counts:
        return self.trigger_activity

    def budgets(self) -> Mapping[str, Level]:
        return self.levels

    def clock_skews(self) -> Mapping[str, float]:
        return self.skews

    def service_clocks(self) -> Mapping[str, float]:
        return self.skews

    def late_reads(self) -> Mapping[str, Late]:
        return self.late

    def stream_lags(self) -> Mapping[str, Lag]:
        return self.lags

    def announced(self) -> Mapping[str, Announced]:
        return self.bells

    def in_hand_since(self, feed: str, key: str) -> datetime | None:
        return self.in_hand.get((feed, key))

    async def place_of(self, feed: str, key: str, cursor: Cursor) -> Place | None:
        source = self.sources.get(feed)
        return source.place_of(key, cursor) if source else None

    async def locate(self, feed: str, at: datetime, cursor: Cursor) -> Located | None:
        return self.places.get(feed)

    def scratch(self, clock: Clock) -> AbstractAsyncContextManager[Store]:
        return scratch_store(clock)

    async def sync_rows(self) -> None:
        self.synced += 1

    def nudge(self) -> None:
        self.nudges += 1

    async def changed(self, seconds: float) -> bool:
        self.waits += 1
        self.clock.advance(seconds)
        return self.waits <= self.beats


class Office:
    def __init__(self, store: SqliteStore, clock: HandClock, directory: Path) -> None:
        self.store = store
        self.clock = clock
        self.engine = FakeEngine(clock)
        self.loaded = Loaded(
            directory=directory,
            settings=Settings(),
            store=str(directory / "harken.db"),
            feeds=(POLLED, PUSHED),
            triggers=TRIGGERS,
            workflows={"oncall": FLOW},
        )
        self.operator = Operator(store, self.engine, self.loaded, clock)

    async def ask(self, operation: str, **params: Any) -> Any:
        return await self.operator.call(operation, **params)

    async def shows(
        self, *events: Event, feed: str = POLLED.name, first: bool = False, cursor: Any = msgspec.UNSET
    ) -> Committed:
        """The source shows these, and what is new of them is matched and committed, as a read does it."""
        listeners = await self.store.listeners(feed)
        rules = compile_rules(listeners)
        known = await self.store.recall(feed, [event.subject for event in events])
        new = recognise(events, known, rules.feed.identity)
        now = self.clock.now()
        committed = await self.store.commit(
            Commit(
                feed=feed,
                revision=listeners.revision,
                token=await self._token(feed),
                entries=match(new, rules, Read(now=now, first=first)),
                cursor=cursor,
                next_due=now + timedelta(seconds=60),
                tick=Tick(
                    result="events",
                    started_at=now,
                    seen=len(events),
                    new=len(new),
                    covered=Span(now - timedelta(minutes=5), now),
                ),
                done=True,
            )
        )
        assert isinstance(committed, Committed)
        return committed

    async def fires(self, name: str) -> str:
        """An incident that starts a run of `oncall`; the run's id."""
        committed = await self.shows(self.incident(name))
        return {verdict.trigger: verdict.run_id for verdict in committed.verdicts[0]}["oncall"]

    async def fails(self, message: str, **health: Any) -> None:
        """A read fails."""
        now = self.clock.now()
        made = Health(failures=3, message=message, code="retry", blocked_until=now.timestamp() + 60)
        await self.store.fail(
            Failure(
                feed=POLLED.name,
                token=await self._token(POLLED.name),
                health=msgspec.structs.replace(made, **health),
                next_due=now + timedelta(seconds=60),
                result="error",
                error=message,
                started_at=now,
            )
        )

    async def _token(self, feed: str) -> int | None:
        lease = await self.store.lease(0, "tests", 30)
        assert lease is not None
        return lease.token if feed == POLLED.name else None

    def incident(self, name: str, *, urgency: str = "high", age: float = 0.0) -> Event:
        occurred = self.clock.now() - timedelta(seconds=age)
        return Event(subject=name, type="json.item", data={"id": name, "urgency": urgency}, occurred_at=occurred)


@asynccontextmanager
async def opened(directory: Path) -> AsyncIterator[Office]:
    clock = HandClock()
    store = SqliteStore.at(directory / "harken.db", clock, inline=True)
    office = Office(store, clock, directory)
    await store.open(office.loaded.definitions())
    clock.advance(60)
    yield office
    await store.close()
