"""Streams: what a broker pushes is on disk before it is acknowledged, and what comes twice runs once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from harken.backends.sqlite import SqliteStore
from harken.clock import from_unix
from harken.errors import NeedsAttention, RetryLater
from harken.event import Event
from harken.feed import INTERNAL, Feed, Trigger
from harken.ingest.intake import Intake
from harken.source import Batch, Cursor, Gap, Lag, Located, Rejected
from harken.store import Definitions
from harken.testing import START, VirtualClock, run_virtual
from harken.testing.crashing import CrashingStore
from tests.ingest.process import NoExecutor

FEED = Feed(name="orders", kind="broker", integration="broker", way="stream", identity="once", first="deliver")
OWN = Feed(name=INTERNAL, kind=INTERNAL, integration=INTERNAL, way="internal", identity="change", first="deliver")
TRIGGER = Trigger(name="ship", feed="orders", workflow="w", workflow_rev="r1", flood_limit=0)
DEFINITIONS = Definitions(
    generation="1", starting=True, feeds=[FEED, OWN], triggers=[TRIGGER], workflows={"w": ("r1", b'{"steps": []}')}
)


class Broker:
    """Delivers what is not acknowledged. `errors` are those with which the next connections break.

    So many connections as `ends` says are closed by the broker at once, without an error."""

    silence_seconds = 30.0

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.queue: list[str] = []
        self.acknowledged: list[str] = []
        self.errors: list[Exception] = []
        self.ends = 0
        self.began: list[Cursor] = []
        self.after_delivery: list[int] = []
        self.next: list[Batch] = []
        self.silent = False
        self.store: SqliteStore | None = None

    async def stream(self, cursor: Cursor) -> AsyncIterator[Batch]:
        self.began.append(cursor)
        if self.ends:
            self.ends -= 1
            return
        while True:
            if self.errors:
                raise self.errors.pop(0)
            if self.silent:
                await self._clock.sleep(3_600.0)
            if self.next:
                yield self.next.pop(0)
                continue
            if not self.queue:
                await self._clock.sleep(1.0)
                yield Batch(cursor=self.acknowledged[-1] if self.acknowledged else cursor)
                continue
            name = self.queue[0]
            yield Batch(events=[Event(subject=name, type="order", data={"id": name})], cursor=name)
            # the engine asks for the next batch only when this one is committed
            self.after_delivery.append(await self._stored())
            self.acknowledged.append(self.queue.pop(0))

    async def _stored(self) -> int:
        assert self.store is not None
        return len((await self.store.events(limit=100)).items)


async def start(clock: VirtualClock, path: Path, broker: Broker, locked: int = 0) -> tuple[SqliteStore, Intake]:
    """`locked`: so many commits fail, because the database is locked."""
    store = broker.store = SqliteStore.at(path, clock, inline=True)
    used: Any = CrashingStore(store)
    used.lock(locked, only="commit")
    intake = Intake(used, clock, Random(1), NoExecutor(), lambda feed: broker, holder="test")
    await intake.start(DEFINITIONS)
    return store, intake


async def crash(store: SqliteStore) -> None:
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await asyncio.sleep(0)
    store.abandon()


async def runs(store: SqliteStore) -> int:
    return len((await store.runs(limit=100)).items)


def test_a_batch_is_committed_before_it_is_acknowledged(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        broker = Broker(clock)
        store, intake = await start(clock, tmp_path / "s.db", broker)
        broker.queue += ["o1", "o2", "o3"]
        await clock.sleep(10.0)
        assert broker.acknowledged == ["o1", "o2", "o3"]
        assert broker.after_delivery == [1, 2, 3]
        assert await runs(store) == 3
        assert (await store.state("orders")).cursor == "o3"
        await intake.stop()
        await store.close()

    run_virtual(main)


def test_a_batch_that_could_not_be_committed_is_held_and_tried_again_on_the_same_connection(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        broker = Broker(clock)
        store, intake = await start(clock, tmp_path / "s.db", broker, locked=2)
        broker.queue += ["o1", "o2"]
        await clock.sleep(60.0)
        assert broker.began == [None]
        assert (broker.acknowledged, await runs(store)) == (["o1", "o2"], 2)
        await intake.stop()
        await store.close()

    run_virtual(main)


def test_a_stream_that_the_broker_ends_is_opened_again(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        broker = Broker(clock)
        broker.ends = 3
        store, intake = await start(clock, tmp_path / "s.db", broker)
        broker.queue += ["o1"]
        await clock.sleep(60.0)
        assert (len(broker.began), broker.acknowledged) == (4, ["o1"])
        await intake.stop()
        await store.close()

    run_virtual(main)


def test_what_is_delivered_again_after_a_crash_runs_once(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        broker = Broker(clock)
        store, intake = await start(clock, tmp_path / "s.db", broker)
        broker.queue += ["o1"]
        await clock.sleep(3.0)
        # the acknowledgement got lost with the process
        await crash(store)
        broker.queue.insert(0, "o1")
        store, intake = await start(clock, tmp_path / "s.db", broker)
        broker.queue.append("o2")
        await clock.sleep(10.0)
        assert broker.began[-1] == "o1"
        assert broker.acknowledged == ["o1", "o1", "o2"]
        assert await runs(store) == 2
        await intake.stop()
        await store.close()

    run_virtual(main)


def test_a_connection_that_breaks_goes_on_where_it_stood(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        broker = Broker(clock)
        store, intake = await start(clock, tmp_path / "s.db", broker)
        broker.queue += ["o1"]
        await clock.sleep(3.0)
        broker.errors.append(RetryLater("the broker hung up"))
        broker.queue += ["o2"]
        await clock.sleep(2.0)
        assert (await store.state("orders")).health.failures == 1
        broker.queue += ["o3"]
        await clock.sleep(120.0)
        assert broker.began == [None, "o1"]
        assert await runs(store) == 3
        assert (await store.state("orders")).health.failures == 0
        await intake.stop()
        await store.close()

    run_virtual(main)


def test_a_stream_that_needs_attention_stops_and_says_why(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        broker = Broker(clock)
        broker.errors.append(NeedsAttention("the broker refused the password", fix="Set BROKER_PASSWORD"))
        store, intake = await start(clock, tmp_path / "s.db", broker)
        await clock.sleep(600.0)
        health = (await store.state("orders")).health
        assert (health.state, len(broker.began)) == ("paused", 1)
        assert "Set BROKER_PASSWORD" in health.message
        broker.queue += ["o1"]
        await clock.sleep(600.0)
        assert ((await store.state("orders")).health.state, broker.acknowledged) == ("closed", ["o1"])
        await intake.stop()
        await store.close()

    run_virtual(main)


@pytest.mark.parametrize(
    "trouble",
    [
        RetryLater("nobody listens at the broker"),
        NeedsAttention("the broker refused the password", fix="Set it"),
        NeedsAttention("the broker has no such topic", fix="Create it"),
        RuntimeError("a bug of a client library"),
    ],
    ids=["away", "refused", "no such topic", "a bug"],
)
def test_a_stream_in_trouble_stops_no_other(tmp_path: Path, trouble: Exception) -> None:
    async def main(clock: VirtualClock) -> None:
        well, ill = Broker(clock), Broker(clock)
        ill.errors += [trouble] * 1_000
        store = well.store = ill.store = SqliteStore.at(tmp_path / "s.db", clock, inline=True)
        other = msgspec.structs.replace(FEED, name="parcels", integration="elsewhere")
        brokers: dict[str, Any] = {FEED.name: well, other.name: ill}
        intake = Intake(
            store, clock, Random(1), NoExecutor(), lambda feed: brokers.get(feed.name, object()), holder="test"
        )
        await intake.start(msgspec.structs.replace(DEFINITIONS, feeds=[FEED, other, OWN]))
        for name in ("o1", "o2", "o3"):
            well.queue.append(name)
            await clock.sleep(60.0)
        assert well.acknowledged == ["o1", "o2", "o3"]
        assert (await store.state(FEED.name)).health.state == "closed"
        health = (await store.state(other.name)).health
        assert health.failures and health.message
        await intake.stop()
        await store.close()

    run_virtual(main)


class HeldBroker(Broker):
    """Delivers a message again unless it is acknowledged or held within ten seconds."""

    hold_seconds = 10.0

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.held_at: list[float] = []

    async def hold(self) -> None:
        self.held_at.append(self._clock.time())


def test_messages_in_hand_are_held_while_the_store_stalls_and_only_then(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        broker = HeldBroker(clock)
        store, intake = await start(clock, tmp_path / "s.db", broker)
        broker.queue += ["o1"]
        await clock.sleep(30.0)
        assert (broker.acknowledged, broker.held_at) == (["o1"], [])
        stalled: Any = intake.committer._store
        stalled.meanwhile["commit"] = [lambda: clock.sleep(25.0)]
        began = clock.time()
        broker.queue += ["o2"]
        await clock.sleep(60.0)
        assert broker.acknowledged == ["o1", "o2"]
        assert len(broker.held_at) == 7
        pauses = [later - earlier for earlier, later in pairwise([began, *broker.held_at])]
        assert max(pauses) < HeldBroker.hold_seconds / 2
        await intake.stop()
        await store.close()

    run_virtual(main)


def test_nothing_is_held_after_the_lease_has_ended(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        broker = HeldBroker(clock)
        store, intake = await start(clock, tmp_path / "s.db", broker)
        stalled: Any = intake.committer._store
        stalled.meanwhile["commit"] = [lambda: clock.sleep(25.0)]
        intake.leases.has_expired = lambda shard: len(broker.held_at) >= 2  # type: ignore[method-assign]
        intake.registry.streamer._has_expired = intake.leases.has_expired
        broker.queue += ["o1"]
        await clock.sleep(60.0)
        assert broker.acknowledged == ["o1"]
        assert len(broker.held_at) == 2
        await intake.stop()
        await store.close()

    run_virtual(main)


def test_a_stream_that_says_nothing_at_all_is_opened_again(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        broker = Broker(clock)
        store, intake = await start(clock, tmp_path / "s.db", broker)
        await clock.sleep(5.0)
        broker.silent = True
        await clock.sleep(32.0)
        health = (await store.state("orders")).health
        assert (health.failures, health.message) == (1, "nothing was heard for 30 s")
        broker.silent = False
        broker.queue += ["o1"]
        await clock.sleep(60.0)
        assert (broker.acknowledged, (await store.state("orders")).health.failures) == (["o1"], 0)
        await intake.stop()
        await store.close()

    run_virtual(main)


def test_a_quiet_stream_is_known_to_be_alive(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        store, intake = await start(clock, tmp_path / "s.db", Broker(clock))
        await clock.sleep(3_600.0)
        state = await store.state("orders")
        assert state.last_success is not None
        assert (clock.now() - state.last_success).total_seconds() < 30
        assert len(state.coverage) == 1
        await intake.stop()
        await store.close()

    run_virtual(main)


def test_a_gap_is_announced_once_and_left_out_of_the_ledger(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        broker = Broker(clock)
        store, intake = await start(clock, tmp_path / "s.db", broker)
        await clock.sleep(60.0)
        await crash(store)
        await clock.sleep(600.0)
        gap = Gap(key="4-9", reason="6 messages were deleted before they were read", messages=6)
        broker.next = [Batch(cursor="9", gap=gap), Batch(cursor="9", gap=gap)]
        store, intake = await start(clock, tmp_path / "s.db", broker)
        await clock.sleep(60.0)
        [said] = [event for event in (await store.events(feed=INTERNAL, limit=10)).items if event.type == "feed.gap"]
        assert said.data["messages"] == 6
        assert "6 messages were deleted" in said.data["text"]
        before, after = (await store.state("orders")).coverage
        assert 590 < (after.start - before.end).total_seconds() < 620
        await intake.stop()
        await store.close()

    run_virtual(main)


def test_what_waits_at_the_broker_is_known_while_it_is_heard(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        broker = Broker(clock)
        broker.next = [Batch(cursor="1", lag=Lag(messages=12, seconds=3.0))]
        store, intake = await start(clock, tmp_path / "s.db", broker)
        await clock.sleep(10.0)
        assert intake.stream_lags() == {"orders": Lag(messages=12, seconds=3.0)}
        broker.errors = [RetryLater("the broker is away")]
        await clock.sleep(2.0)
        assert intake.stream_lags() == {}
        await intake.stop()
        await store.close()

    run_virtual(main)


def test_where_the_broker_tells_no_age_it_is_that_of_the_last_message_that_was_read(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        broker = Broker(clock)
        read_to = clock.now() - timedelta(seconds=90)
        broker.next = [Batch(cursor="1", lag=Lag(messages=12, read_to=read_to))]
        store, intake = await start(clock, tmp_path / "s.db", broker)
        await clock.sleep(10.0)
        [lag] = intake.stream_lags().values()
        assert lag.messages == 12
        assert lag.seconds == pytest.approx(100.0)
        await intake.stop()
        await store.close()

    run_virtual(main)


@pytest.mark.parametrize(
    ("lag", "seconds"),
    [
        (Lag(messages=3, read_to=START), 5.0),
        (Lag(read_to=START), 5.0),
        (Lag(read_to=START + timedelta(seconds=9)), 0.0),
        (Lag(messages=0, read_to=START), 0.0),
        (Lag(messages=3, seconds=1.0, read_to=START), 1.0),
        (Lag(messages=3), None),
    ],
    ids=["waiting", "nobody knows how many", "clocks differ", "nothing waits", "the broker says", "nobody knows"],
)
def test_the_seconds_of_a_lag(lag: Lag, seconds: float | None) -> None:
    found = lag.at(START + timedelta(seconds=5))
    assert (found.messages, found.seconds) == (lag.messages, seconds)


def test_what_is_taken_and_not_committed_is_known_by_its_name(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        broker = Broker(clock)
        store, intake = await start(clock, tmp_path / "s.db", broker, locked=1_000)
        letter = Rejected(event=Event(subject="o2", key="m2", type="order", data={}), reason="it is not JSON")
        event = Event(subject="o1", key="m1", type="order", data={})
        broker.next = [Batch(cursor="2", events=[event], rejected=[letter])]
        await clock.sleep(30.0)
        taken = intake.in_hand_since("orders", "m1")
        assert taken is not None and 20 < (clock.now() - taken).total_seconds() <= 30
        assert intake.in_hand_since("orders", "o2") == intake.in_hand_since("orders", "m2") == taken
        assert intake.in_hand_since("orders", "m3") is intake.in_hand_since("others", "m1") is None
        await intake.stop()
        assert intake.in_hand_since("orders", "m1") is None
        await store.close()

    run_virtual(main)


def test_a_rejected_message_is_a_dead_letter_and_the_others_run(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        broker = Broker(clock)
        letter = Rejected(event=Event(subject="o2", key="o2", type="order", data={}), reason="it is not JSON")
        good = [Event(subject=name, type="order", data={"id": name}) for name in ("o1", "o3")]
        broker.next = [Batch(events=good, rejected=[letter], cursor="o3")]
        store, intake = await start(clock, tmp_path / "s.db", broker)
        await clock.sleep(10.0)
        assert [(dead.key, dead.reason) for dead in (await store.dead(limit=10)).items] == [("o2", "it is not JSON")]
        assert await runs(store) == 2
        await intake.stop()
        await store.close()

    run_virtual(main)


def test_a_reset_during_a_connection_begins_again_from_the_beginning(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        broker = Broker(clock)
        store, intake = await start(clock, tmp_path / "s.db", broker)
        broker.queue += ["o1"]
        await clock.sleep(10.0)
        await store.reset("ship", cursor=True)
        broker.queue += ["o2"]
        await clock.sleep(60.0)
        assert broker.began == [None, None]
        assert broker.acknowledged == ["o1", "o2"]
        await intake.stop()
        await store.close()

    run_virtual(main)


class Log:
    """A stream that is kept: whoever has no position begins at its end. `down` is the time until which it is away."""

    silence_seconds = 30.0

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.messages: list[tuple[float, str]] = []
        self.down = 0.0
        self.connections = 0

    def add(self, name: str) -> None:
        self.messages.append((self._clock.time(), name))

    async def stream(self, cursor: Cursor) -> AsyncIterator[Batch]:
        if self._clock.time() < self.down:
            raise RetryLater("the broker is away")
        self.connections += 1
        place = len(self.messages) if cursor is None else int(cursor)
        yield Batch(cursor=place)
        while True:
            await self._clock.sleep(0.1)
            events = [Event(subject=name, type="order", data={"id": name}) for _, name in self.messages[place:]]
            place = len(self.messages)
            yield Batch(events=events, cursor=place)


class TimedLog(Log):
    """The same with positions of times."""

    begins_with_new = True

    async def locate(self, at: datetime, cursor: Cursor) -> Located:
        if self._clock.time() < self.down:
            raise RetryLater("the broker is away")
        place = sum(sent < at.timestamp() for sent, _ in self.messages)
        return Located(cursor=place, messages=len(self.messages) - place)


async def started_on(clock: VirtualClock, path: Path, source: Log) -> tuple[SqliteStore, Intake]:
    store = SqliteStore.at(path, clock, inline=True)
    intake = Intake(store, clock, Random(1), NoExecutor(), lambda feed: source, holder="test")
    await intake.start(DEFINITIONS)
    return store, intake


async def recorded(store: SqliteStore) -> set[str]:
    return {event.subject for event in (await store.events(limit=100)).items}


class TestTheFirstPosition:
    def test_a_crash_right_after_the_first_connection_loses_nothing_that_comes_then(self, tmp_path: Path) -> None:
        async def main(clock: VirtualClock) -> None:
            source = Log(clock)
            source.add("before")
            store, _ = await started_on(clock, tmp_path / "s.db", source)
            await clock.sleep(0.05)
            assert source.connections == 1
            await crash(store)
            source.add("meanwhile")
            await clock.sleep(60.0)
            store, intake = await started_on(clock, tmp_path / "s.db", source)
            await clock.sleep(60.0)
            assert await recorded(store) == {"meanwhile"}
            await intake.stop()
            await store.close()

        run_virtual(main)

    def test_it_is_kept_until_the_store_can_be_written_again(self, tmp_path: Path) -> None:
        async def main(clock: VirtualClock) -> None:
            source = Log(clock)
            store = SqliteStore.at(tmp_path / "s.db", clock, inline=True)
            used: Any = CrashingStore(store)
            used.lock(3, only="record_idle")
            intake = Intake(used, clock, Random(1), NoExecutor(), lambda feed: source, holder="test")
            await intake.start(DEFINITIONS)
            await clock.sleep(0.05)
            source.add("meanwhile")
            await clock.sleep(60.0)
            assert (await recorded(store), source.connections) == ({"meanwhile"}, 1)
            await intake.stop()
            await store.close()

        run_virtual(main)

    def test_what_came_after_the_creation_and_before_the_first_connection_is_read(self, tmp_path: Path) -> None:
        async def main(clock: VirtualClock) -> None:
            source = TimedLog(clock)
            source.add("before")
            await clock.sleep(5.0)
            source.down = clock.time() + 600.0
            store, intake = await started_on(clock, tmp_path / "s.db", source)
            await clock.sleep(60.0)
            source.add("while it was away")
            await clock.sleep(1_200.0)
            source.add("later")
            await clock.sleep(60.0)
            assert await recorded(store) == {"while it was away", "later"}
            assert await runs(store) == 2
            assert (await store.state("orders")).coverage[0].start == from_unix(source.messages[0][0] + 5.0)
            await intake.stop()
            await store.close()

        run_virtual(main)

    def test_after_a_reset_it_is_what_is_new_then(self, tmp_path: Path) -> None:
        async def main(clock: VirtualClock) -> None:
            source = TimedLog(clock)
            store, intake = await started_on(clock, tmp_path / "s.db", source)
            await clock.sleep(10.0)
            source.add("old")
            await clock.sleep(10.0)
            await intake.stop()
            source.add("passed over")
            await store.reset("ship", cursor=True)
            intake = Intake(store, clock, Random(1), NoExecutor(), lambda feed: source, holder="test")
            await intake.start(DEFINITIONS)
            await clock.sleep(10.0)
            source.add("new")
            await clock.sleep(10.0)
            assert await recorded(store) == {"old", "new"}
            await intake.stop()
            await store.close()

        run_virtual(main)
