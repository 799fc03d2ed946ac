"""What became of a message of a stream?"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harken.backends.sqlite import SqliteStore
from harken.circuit_breaker import Health
from harken.event import Event
from harken.feed import INTERNAL, Feed
from harken.match import Read, compile_rules, match, recognise
from harken.operate.operator import Operator
from harken.services.redis import RedisAccount, RedisStream, RedisStreamQuery
from harken.source import Lag
from harken.store import Commit, Committed, Failure, Tick
from harken.testing import HandClock
from tests.operate.operator_world import Office, trigger

STREAM = Feed(name="redis-orders", kind="redis", integration="redis", way="stream", identity="change", first="deliver")
OWN = Feed(name=INTERNAL, kind=INTERNAL, integration=INTERNAL, way="internal", identity="change", first="deliver")
TRIGGERS = (trigger("ship", feed=STREAM.name), trigger("watch", feed=INTERNAL))


class Harbour(Office):
    """An office that follows a stream, which is at 5-0 when `reads` was called without anything else."""

    def __init__(self, store: SqliteStore, clock: HandClock, directory: Path) -> None:
        super().__init__(store, clock, directory)
        self.loaded = replace(self.loaded, feeds=(STREAM, OWN), triggers=TRIGGERS)
        self.operator = Operator(store, self.engine, self.loaded, clock)

    def is_log(self, **query: Any) -> None:
        account = RedisAccount.model_validate({"url": "redis://127.0.0.1:1/0"})
        asked = RedisStreamQuery.model_validate({"stream": "orders", **query})
        self.engine.sources[STREAM.name] = RedisStream(asked, account)

    async def reads(self, *events: Event, feed: str = STREAM.name) -> None:
        listeners = await self.store.listeners(feed)
        rules, now = compile_rules(listeners), self.clock.now()
        new = recognise(events, await self.store.recall(feed, [one.subject for one in events]), rules.feed.identity)
        done = await self.store.commit(
            Commit(
                feed=feed,
                revision=listeners.revision,
                token=await self.lease() if feed == STREAM.name else None,
                cursor={"id": "5-0", "added": 5},
                entries=match(new, rules, Read(now=now)),
                tick=Tick(result="events", started_at=now, seen=len(events), new=len(new)),
                done=True,
            )
        )
        assert isinstance(done, Committed)

    async def lease(self) -> int:
        lease = await self.store.lease(0, "tests", 30)
        assert lease is not None
        return lease.token

    async def explain(self, key: str) -> Any:
        return await self.ask("triggers.explain", name="ship", key=key)


@pytest.fixture
async def harbour(tmp_path: Path) -> AsyncIterator[Harbour]:
    clock = HandClock()
    store = SqliteStore.at(tmp_path / "harken.db", clock, inline=True)
    found = Harbour(store, clock, tmp_path)
    await store.open(found.loaded.definitions())
    clock.advance(60)
    yield found
    await store.close()


def message(name: str) -> Event:
    return Event(subject=name, key=name, type="redis.message", data={})


async def test_a_message_that_was_committed_is_told_as_any_event(harbour: Harbour) -> None:
    harbour.is_log()
    await harbour.reads(message("orders@5-0"))
    answer = await harbour.explain("orders@5-0")
    assert (answer["outcome"], answer["stage"]) == ("fired", "run")


async def test_a_message_that_could_not_be_read_is_a_dead_letter_with_its_reason(harbour: Harbour) -> None:
    harbour.is_log()
    await harbour.reads()
    await harbour.store.dead_letter(STREAM.name, message("orders@4-0"), "it is not JSON")
    await harbour.store.dead_letter(INTERNAL, message("orders@3-0"), "of another feed")
    answer = await harbour.explain("orders@4-0")
    assert answer["outcome"] == "dead_letter"
    assert "became a dead letter" in answer["sentence"]
    assert "it is not JSON" in answer["sentence"]
    [letter] = [one for one in (await harbour.store.dead(limit=10)).items if one.key == "orders@4-0"]
    assert answer["advice"][1].endswith(f"harken dead drop {letter.id}")
    assert (await harbour.explain("orders@3-0"))["outcome"] == "lost"


async def test_a_message_ahead_of_our_position_is_not_yet_read_and_the_lag_is_told(harbour: Harbour) -> None:
    harbour.is_log()
    await harbour.reads(message("orders@5-0"))
    harbour.engine.lags[STREAM.name] = Lag(messages=12)
    answer = await harbour.explain("orders@5-1")
    assert answer["outcome"] == "not_read"
    assert "orders@5-1 is not yet read" in answer["sentence"]
    assert "(lag: 12 messages)" in answer["sentence"]
    assert not any("harken status" in line for line in answer["advice"])


async def test_a_message_that_the_store_has_not_taken_yet_is_in_flight(harbour: Harbour) -> None:
    harbour.is_log()
    await harbour.reads(message("orders@5-0"))
    harbour.engine.lags[STREAM.name] = Lag(messages=12)
    harbour.engine.in_hand[STREAM.name, "orders@5-1"] = harbour.clock.now()
    harbour.clock.advance(20)
    answer = await harbour.explain("orders@5-1")
    assert (answer["outcome"], answer["stage"]) == ("in_flight", "read")
    assert "orders@5-1 is in flight: it was taken from the broker of feed" in answer["sentence"]
    assert "20 s ago" in answer["sentence"]
    assert (await harbour.explain("orders@5-2"))["outcome"] == "not_read"


async def test_without_a_controller_the_lag_is_not_known(harbour: Harbour) -> None:
    harbour.is_log()
    await harbour.reads()
    answer = await harbour.explain("orders@6-0")
    assert "(lag: not known)" in answer["sentence"]
    assert answer["advice"][0] == "Does a controller follow the stream? See: harken status"


async def test_a_message_ahead_where_nothing_waits_was_not_sent(harbour: Harbour) -> None:
    harbour.is_log()
    await harbour.reads()
    harbour.engine.lags[STREAM.name] = Lag(messages=0, seconds=0.0)
    answer = await harbour.explain("orders@6-0")
    assert "nothing waits at the broker. It was not sent so far" in answer["sentence"]


async def test_a_message_that_waits_for_a_failing_feed_tells_its_error(harbour: Harbour) -> None:
    harbour.is_log()
    await harbour.reads()
    now = harbour.clock.now()
    health = Health(failures=2, message="Redis cannot be reached", code="retry", blocked_until=now.timestamp() + 30)
    failed = Failure(
        feed=STREAM.name, token=await harbour.lease(), health=health, result="error", error="", started_at=now,
        next_due=None,
    )  # fmt: skip
    await harbour.store.fail(failed)
    answer = await harbour.explain("orders@6-0")
    assert "is not yet read" in answer["sentence"]
    assert "2 failures: Redis cannot be reached" in answer["sentence"]


async def test_a_message_behind_our_position_is_lost_and_the_gaps_are_told(harbour: Harbour) -> None:
    harbour.is_log()
    await harbour.reads(message("orders@5-0"))
    answer = await harbour.explain("orders@4-0")
    assert answer["outcome"] == "lost"
    assert "lost to the retention of the broker or never there" in answer["sentence"]
    assert "No gap was announced" in answer["sentence"]

    def gap(feed: str, reason: str) -> Event:
        key = f"feed.gap:{feed}@1"
        return Event(subject=feed, type="feed.gap", key=key, state=key, data={"reason": reason})

    await harbour.reads(gap(STREAM.name, "3 entries were deleted"), gap("other", "of another feed"), feed=INTERNAL)
    paused = Event(subject=STREAM.name, type="feed.paused", key="p", state="p", data={"reason": "no gap"})
    await harbour.reads(paused, feed=INTERNAL)
    answer = await harbour.explain("orders@4-0")
    assert "Announced gaps: 1, the last" in answer["sentence"]
    assert answer["sentence"].endswith("3 entries were deleted")
    assert len(answer["details"]["announced_gaps"]) == 1


async def test_a_queue_cannot_be_looked_into_and_what_waits_is_told(harbour: Harbour) -> None:
    await harbour.reads(message("jobs@17"))
    harbour.engine.lags[STREAM.name] = Lag(messages=4, seconds=150.0)
    answer = await harbour.explain("a-message")
    assert answer["outcome"] == "never_seen"
    assert "A queue cannot be looked into" in answer["sentence"]
    assert "What waits at the broker: 4 messages, 2 min" in answer["sentence"]
    near = await harbour.explain("jobs@18")
    assert "Something alike was: jobs@17" in near["sentence"]


async def test_of_a_stream_that_was_never_read_nothing_is_claimed(harbour: Harbour) -> None:
    harbour.is_log()
    answer = await harbour.explain("orders@4-0")
    assert answer["outcome"] == "never_seen"
    assert "The stream was not read yet" in answer["sentence"]


@pytest.mark.parametrize(
    "key", ["orders@", "orders@x", "@5-0", "others@4-0", "orders@4", f"orders@{'9' * 5_000}-0", "@@"]
)
async def test_a_key_that_is_no_position_is_not_placed(harbour: Harbour, key: str) -> None:
    harbour.is_log()
    await harbour.reads()
    answer = await harbour.explain(key)
    assert answer["outcome"] == "never_seen"
    assert "The key does not tell where in the stream it is" in answer["sentence"]


async def test_where_messages_have_ids_of_their_own_a_position_that_was_passed_says_nothing(harbour: Harbour) -> None:
    harbour.is_log(id_field="id")
    await harbour.reads()
    assert (await harbour.explain("orders@4-0"))["outcome"] == "never_seen"
    assert (await harbour.explain("orders@6-0"))["outcome"] == "not_read"
