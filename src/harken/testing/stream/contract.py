"""What every stream keeps: the set of events is exact, whatever happens to the broker, the store and the process."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

import pytest

from harken.source import SeekableSource
from harken.task_cancellation import cancel_and_wait
from harken.testing.stream.broker_interface import Broker
from harken.testing.stream.stream_follower_process import WAIT_SECONDS, Follower, die_while_following

__all__ = ["StreamContract"]

STOP_SECONDS = 5.0
"""A clean stop ends within this time, however full the queue is."""
PROBE_SECONDS = 0.05
"""How often is looked at how late this machine is."""

HOSTILE = (
    b"\xff\xfe not UTF-8",
    b'{"n": NaN}',
    b"[" * 10_000 + b"]" * 10_000,
    b"",
    b'{"n": 1e400}',
    b'{"n": "' + b"x" * 1_200_000 + b'"}',
    b'{"a": "\\ud800"}',
)


def bodies(numbers: Sequence[int] | range) -> list[bytes]:
    return [json.dumps({"n": number}).encode() for number in numbers]


def once(count: int) -> Counter[int]:
    return Counter(range(count))


def needs(possible: object, what: str) -> None:
    if possible is False or possible is None:
        pytest.skip(f"this broker {what}")


class StreamContract:
    """Subclass it and give a `broker` fixture."""

    async def test_every_message_is_one_event_and_one_run(self, broker: Broker, tmp_path: Path) -> None:
        async with Follower.started(tmp_path, broker.source) as follower:
            await follower.until("a first answer", follower.heard)
            await broker.publish(bodies(range(300)))
            await follower.until("300 messages", lambda: follower.has(300))
            assert await follower.numbers() == once(300)
            assert await follower.runs() == 300
            await _is_empty(broker)

    async def test_messages_are_recorded_in_their_order(self, broker: Broker, tmp_path: Path) -> None:
        async with Follower.started(tmp_path, broker.source) as follower:
            await follower.until("a first answer", follower.heard)
            for first in range(0, 60, 20):
                await broker.publish(bodies(range(first, first + 20)))
            await follower.until("60 messages", lambda: follower.has(60))
            newest_first = [event.data["n"] for event in await follower.events()]
            assert newest_first == list(reversed(range(60)))

    async def test_what_was_sent_while_nobody_followed_is_delivered(self, broker: Broker, tmp_path: Path) -> None:
        needs(broker.resumes, "keeps nothing for who is not connected")
        async with Follower.started(tmp_path, broker.source) as follower:
            await follower.until("a first answer", follower.heard)
            await broker.publish(bodies(range(5)))
            await follower.until("5 messages", lambda: follower.has(5))
        await broker.publish(bodies(range(5, 25)))
        async with Follower.started(tmp_path, broker.source) as follower:
            await follower.until("20 more", lambda: follower.has(25))
            assert await follower.numbers() == once(25)
            assert not await follower.gaps()

    @pytest.mark.parametrize("death", ["before the commit", "between commit and acknowledgement"])
    async def test_kill_9(self, broker: Broker, tmp_path: Path, death: str) -> None:
        needs(broker.resumes, "keeps nothing for who is not connected")
        async with Follower.started(tmp_path, broker.source) as follower:
            await follower.until("a first answer", follower.heard)
        await broker.publish(bodies(range(50)))
        await asyncio.to_thread(die_while_following, tmp_path, broker.source, death, at=1)  # type: ignore[arg-type]
        await broker.publish(bodies(range(50, 60)))
        async with Follower.started(tmp_path, broker.source) as follower:
            await follower.until("all messages", lambda: follower.has(60))
            assert await follower.numbers() == once(60)
            assert await follower.runs() == 60
            await _is_empty(broker)
            await _was_spared(broker)

    async def test_the_broker_restarts(self, broker: Broker, tmp_path: Path) -> None:
        needs(broker.resumes, "keeps nothing for who is not connected")
        async with Follower.started(tmp_path, broker.source) as follower:
            await follower.until("a first answer", follower.heard)
            await broker.publish(bodies(range(30)))
            await follower.until("30 messages", lambda: follower.has(30))
            needs(await broker.restart(), "cannot be restarted here")
            await broker.publish(bodies(range(30, 60)))
            await follower.until("what came after the restart", lambda: follower.has(60))
            assert await follower.numbers() == once(60)

    async def test_the_store_stalls_for_longer_than_the_deadline(self, broker: Broker, tmp_path: Path) -> None:
        async with Follower.started(tmp_path, broker.source) as follower:
            await follower.until("a first answer", follower.heard)
            hold = getattr(broker.source(), "hold_seconds", 1.0)
            follower.store.stall_seconds = 2.0 * hold + 0.5
            await broker.publish(bodies(range(40)))
            await follower.until("40 messages", lambda: follower.has(40))
            assert await follower.numbers() == once(40)
            assert await follower.runs() == 40
            await _is_empty(broker)
            await _was_spared(broker)

    async def test_what_is_in_hand_is_offered_to_nobody_while_the_store_stalls(
        self, broker: Broker, tmp_path: Path
    ) -> None:
        async with Follower.started(tmp_path, broker.source) as follower:
            await follower.until("a first answer", follower.heard)
            needs(await broker.offered(), "gives its messages to one reader alone")
            hold = getattr(broker.source(), "hold_seconds", 1.0)
            follower.store.stall_seconds = 2.5 * hold + 1.0
            before = follower.store.commits
            await broker.publish(bodies([0]))
            await follower.until("a commit", lambda: _has_begun(follower, before))
            began, looked = time.monotonic(), 0.0
            while not await follower.has(1):
                looked = time.monotonic() - began
                offered = await broker.offered()
                assert not offered or await follower.has(1), f"after {looked:.1f} s the broker gave it to somebody else"
                await asyncio.sleep(0.05)
            assert looked > 1.2 * hold, "nobody looked when the deadline would have been over"
            assert await follower.numbers() == once(1)
            await _is_empty(broker)
            await _was_spared(broker)

    async def test_the_store_is_away_for_a_while(self, broker: Broker, tmp_path: Path) -> None:
        async with Follower.started(tmp_path, broker.source) as follower:
            await follower.until("a first answer", follower.heard)
            follower.store.failures = 3
            await broker.publish(bodies(range(40)))
            await follower.until("40 messages", lambda: follower.has(40))
            assert await follower.numbers() == once(40)
            await _is_empty(broker)
            await _was_spared(broker)

    async def test_poison_is_dead_lettered_and_stops_nobody(self, broker: Broker, tmp_path: Path) -> None:
        async with Follower.started(tmp_path, broker.source) as follower:
            await follower.until("a first answer", follower.heard)
            messages = bodies(range(1_000))
            messages.insert(500, b"{ this is no JSON")
            await broker.publish(messages)
            await follower.until("all messages", lambda: follower.has(1_001))
            assert await follower.numbers() == once(1_000)
            [letter] = await follower.dead()
            assert "not JSON" in letter.reason
            await _is_empty(broker)
            await _was_spared(broker)

    async def test_hostile_messages_are_dead_lettered(self, broker: Broker, tmp_path: Path) -> None:
        async with Follower.started(tmp_path, broker.source) as follower:
            await follower.until("a first answer", follower.heard)
            sent = 0
            for body in HOSTILE:
                try:
                    await broker.publish([body])
                except Exception as error:
                    # a broker may have limits of its own
                    assert len(body) in (0, *range(100_000, 2_000_000)), repr(error)
                else:
                    sent += 1
            await broker.publish(bodies([7]))
            await follower.until("all of them", lambda: follower.has(sent + 1))
            assert 7 in [event.data.get("n") for event in await follower.events()]
            assert all(letter.reason for letter in await follower.dead())
            assert len(await follower.dead()) >= min(sent, 4)
            await _is_empty(broker)

    async def test_a_seek_back_reads_what_was_never_read_and_doubles_nothing(
        self, broker: Broker, tmp_path: Path
    ) -> None:
        needs(isinstance(broker.source(), SeekableSource), "has no positions of times")
        await _apart()
        began = datetime.now(UTC)
        await broker.publish(bodies(range(5)))
        async with Follower.started(tmp_path, broker.source) as follower:
            await follower.until("a first answer", follower.heard)
            await broker.publish(bodies(range(5, 10)))
            await follower.until("5 messages", lambda: follower.has(5))
            place = await follower.seek(began)
            assert (place.messages, place.again, place.skipped) == (10, 10, 0)
            await follower.until("the 5 before", lambda: follower.has(10))
            await broker.publish(bodies(range(10, 15)))
            await follower.until("5 more", lambda: follower.has(15))
            assert await follower.numbers() == once(15)
            assert await follower.runs() == 15
            assert not await follower.gaps()
        async with Follower.started(tmp_path, broker.source) as follower:
            await broker.publish(bodies([15]))
            await follower.until("what comes later", lambda: follower.has(16))
            assert await follower.numbers() == once(16)

    async def test_a_seek_forward_passes_over_what_waits_and_is_no_coverage_of_it(
        self, broker: Broker, tmp_path: Path
    ) -> None:
        needs(isinstance(broker.source(), SeekableSource), "has no positions of times")
        async with Follower.started(tmp_path, broker.source) as follower:
            await follower.until("a first answer", follower.heard)
            await broker.publish(bodies(range(5)))
            await follower.until("5 messages", lambda: follower.has(5))
        await broker.publish(bodies(range(5, 20)))
        await _apart()
        line = datetime.now(UTC)
        await _apart()
        await broker.publish(bodies(range(20, 25)))
        follower = Follower(tmp_path, broker.source)
        try:
            place = await follower.seek(line)
            assert (place.messages, place.again, place.skipped) == (5, 0, 15)
            await follower.start()
            await follower.until("what came after the time", lambda: follower.has(10))
            assert await follower.numbers() == Counter([*range(5), *range(20, 25)])
            assert not await follower.gaps()
            covered = (await follower.state()).coverage
            assert not any(span.start < line <= span.end for span in covered), "what was passed over was not read"
        finally:
            await follower.stop()

    async def test_history_that_was_deleted_before_it_was_read_is_a_gap(self, broker: Broker, tmp_path: Path) -> None:
        needs(broker.resumes, "keeps nothing that could be deleted")
        needs(broker.keeps_history, "is a queue: who deletes its messages means to")
        async with Follower.started(tmp_path, broker.source) as follower:
            await follower.until("a first answer", follower.heard)
            await broker.publish(bodies(range(10)))
            await follower.until("10 messages", lambda: follower.has(10))
        await broker.publish(bodies(range(10, 20)))
        needs(await broker.trim(), "never deletes unread history")
        await broker.publish(bodies(range(20, 30)))
        async with Follower.started(tmp_path, broker.source) as follower:
            await follower.until("what is left", lambda: follower.has(20))
            assert await follower.numbers() == Counter([*range(10), *range(20, 30)])
            assert len(await follower.gaps()) == 1
        async with Follower.started(tmp_path, broker.source) as follower:
            await follower.until("another answer", follower.heard)
            assert len(await follower.gaps()) == 1

    async def test_a_topic_that_was_created_anew_is_not_a_repeat(self, broker: Broker, tmp_path: Path) -> None:
        async with Follower.started(tmp_path, broker.source) as follower:
            await follower.until("a first answer", follower.heard)
            await broker.publish(bodies(range(10)))
            await follower.until("10 messages", lambda: follower.has(10))
        needs(await broker.recreate(), "has nothing that could be created anew")
        await broker.publish(bodies(range(10, 20)))
        async with Follower.started(tmp_path, broker.source) as follower:
            await follower.until("the messages of the new one", lambda: follower.has(20))
            assert await follower.numbers() == once(20)
            assert await follower.runs() == 20
            if broker.keeps_history:
                assert await follower.gaps(), "nobody knows what the old one still had"

    async def test_a_silent_connection_is_noticed_and_opened_again(self, broker: Broker, tmp_path: Path) -> None:
        def impatient() -> object:
            source = broker.source()
            source.silence_seconds = 3.0
            return source

        async with Follower.started(tmp_path, impatient) as follower:  # type: ignore[arg-type]
            await follower.until("a first answer", follower.heard)
            needs(await broker.freeze(), "cannot be silenced here")

            async def failed() -> bool:
                return (await follower.state()).health.failures > 0

            try:
                await follower.until("a failure", failed)
            finally:
                await broker.thaw()
            if not broker.resumes:
                await follower.until("a new connection", lambda: _has_recovered(follower))
            await broker.publish(bodies(range(10)))
            await follower.until("10 messages", lambda: follower.has(10))
            assert await follower.numbers() == once(10)

    async def test_another_replica_takes_over(self, broker: Broker, tmp_path: Path) -> None:
        async with Follower.started(tmp_path, broker.source) as first:
            await first.until("a first answer", first.heard)
            await broker.publish(bodies(range(10)))
            await first.until("10 messages", lambda: first.has(10))
            first.store.freeze()
            async with Follower.started(tmp_path, broker.source, "second", first) as second:
                if not broker.resumes:
                    await second.until("its own connection", lambda: _is_held(second))
                    await asyncio.sleep(1.0)
                await broker.publish(bodies(range(10, 30)))
                await second.until("what the frozen one does not take", lambda: second.has(30))
                first.store.thaw()
                await broker.publish(bodies(range(30, 40)))
                await second.until("10 more", lambda: second.has(40))
                await asyncio.sleep(0.5)
                assert await second.numbers() == once(40)
                assert await second.runs() == 40

    async def test_a_clean_stop_with_a_full_queue_is_quick(self, broker: Broker, tmp_path: Path) -> None:
        follower = Follower(tmp_path, broker.source)
        await follower.start()
        await follower.until("a first answer", follower.heard)
        follower.store.stall_seconds = WAIT_SECONDS
        await broker.publish(bodies(range(broker.full)))
        await follower.until("a commit", lambda: _has_begun(follower))
        async with _Lateness() as lateness:
            began = time.monotonic()
            await follower.stop()
            took = time.monotonic() - began
        assert took - lateness.seconds < STOP_SECONDS
        if broker.resumes:
            async with Follower.started(tmp_path, broker.source) as again:
                await again.until("all messages", lambda: again.has(broker.full))
                assert await again.numbers() == once(broker.full)
                await _was_spared(broker)

    async def test_a_broker_that_is_away_is_said_in_words(self, broker: Broker, tmp_path: Path) -> None:
        needs(await broker.away(), "cannot be made unreachable here")
        await _fails_in_words(Follower(tmp_path, broker.source))

    async def test_a_refused_credential_is_said_in_words(self, broker: Broker, tmp_path: Path) -> None:
        needs(broker.stranger(), "asks for no credential here")
        await _fails_in_words(Follower(tmp_path, broker.stranger))  # type: ignore[arg-type]

    async def test_a_topic_that_does_not_exist_is_said_in_words(self, broker: Broker, tmp_path: Path) -> None:
        needs(broker.lost(), "has every topic that is asked for")
        await _fails_in_words(Follower(tmp_path, broker.lost))  # type: ignore[arg-type]


class _Lateness:
    """How long others kept this process from running in the block: short naps lasted so much longer."""

    async def __aenter__(self) -> Self:
        self.seconds = 0.0
        self._probing = asyncio.create_task(self._probe())
        return self

    async def __aexit__(self, *_: object) -> None:
        await cancel_and_wait([self._probing])

    async def _probe(self) -> None:
        while True:
            began = time.monotonic()
            try:
                await asyncio.sleep(PROBE_SECONDS)
            finally:
                self.seconds += max(0.0, time.monotonic() - began - PROBE_SECONDS)


async def _fails_in_words(follower: Follower) -> None:
    async def failed() -> bool:
        return (await follower.state()).health.failures > 0

    await follower.start()
    try:
        await follower.until("a failure", failed)
        message = (await follower.state()).health.message
        assert len(message.split()) >= 4
        assert "Error" not in message.split()[0], f"not in words: {message}"
        assert "Traceback" not in message
    finally:
        await follower.stop()


async def _has_recovered(follower: Follower) -> bool:
    return not (await follower.state()).health.failures


async def _has_begun(follower: Follower, before: int = 0) -> bool:
    return follower.store.commits > before


async def _is_held(follower: Follower) -> bool:
    return bool(follower.intake.leases.held)


async def _is_empty(broker: Broker) -> None:
    """All is acknowledged, perhaps a moment after it was recorded; nothing is in the broker's own dead letters."""
    until = time.monotonic() + WAIT_SECONDS
    while await broker.left():
        assert time.monotonic() < until, f"{await broker.left()} messages were never acknowledged"
        await asyncio.sleep(0.05)
    assert not await broker.dead()


async def _was_spared(broker: Broker) -> None:
    """Redelivery budgets are not ours to burn."""
    assert (await broker.redelivered() or 0) <= 2
    assert not await broker.dead()


async def _apart() -> None:
    """Let a time pass that every broker can tell from the ones before and after."""
    await asyncio.sleep(0.02)
