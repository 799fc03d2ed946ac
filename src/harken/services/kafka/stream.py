"""A Kafka topic that is followed: all its partitions, by offsets that are stored with the events.

There is no consumer group, so nothing is committed at the brokers and nobody else is disturbed: the lease of the feed
decides which process reads.
"""

from __future__ import annotations

import re
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec
from pydantic import Field, field_validator

from harken.clock import from_unix
from harken.event import Event
from harken.kit.stream_messages import MessageQuery, MessageReader
from harken.kit.values_from_payload import instant
from harken.services.kafka.account import (
    TOPIC_NAME,
    KafkaAccount,
    close,
    in_words,
    load_driver,
    settings,
    why_unreachable,
)
from harken.services.kafka.position import Position, Retained, located, resume
from harken.source import Batch, Cursor, Gap, Lag, Located, Place, Rejected

if TYPE_CHECKING:
    from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

__all__ = ["KafkaStream", "KafkaStreamQuery"]

CHECK_SECONDS = 2.0
"""So often the brokers are asked what they have: that they are there, new partitions, a new topic, deleted history."""
FETCH_BYTES = 16_000_000
MESSAGE = re.compile(
    r"(?P<topic>[^~/@]+)(?:~(?P<incarnation>[^/@]+))?/(?P<partition>[0-9]{1,10})@(?P<offset>[0-9]{1,19})"
)
"""How messages are named."""
LATEST_SECONDS = 253_402_300_799
"""The last second that a datetime can hold."""


class KafkaStreamQuery(MessageQuery):
    """Which topic is followed, and from where."""

    topic: str = Field(pattern=TOPIC_NAME, description="the name of the topic")
    start: str = Field("new", description="a first read begins with what is new, with all, or at a time (RFC 3339)")

    @field_validator("start")
    @classmethod
    def _is_a_start(cls, value: str) -> str:
        if value not in ("new", "all") and instant(value) is None:
            raise ValueError("start is new, all, or a time such as 2026-03-01T00:00:00Z")
        return value


class KafkaStream:
    silence_seconds = 30.0

    def __init__(self, query: KafkaStreamQuery, account: KafkaAccount) -> None:
        self._query = query
        self._account = account

    async def stream(self, cursor: Cursor) -> AsyncIterator[Batch]:
        load_driver()
        from aiokafka.errors import KafkaError

        consumer = _consumer(self._query, self._account)
        try:
            await self._start(consumer)
            reader = TopicReader(consumer, self._query)
            yield await reader.begin(msgspec.convert(cursor, Position) if cursor else None)
            while True:
                yield await reader.read()
        except (KafkaError, OSError, NotImplementedError) as error:
            raise in_words(error, self._account, self._query.topic) from error
        finally:
            await close(consumer.stop, consumer._client)

    def place_of(self, key: str, cursor: Cursor) -> Place:
        named = MESSAGE.fullmatch(key)
        if cursor is None or named is None or named["topic"] != self._query.topic:
            return "unknown"
        position = msgspec.convert(cursor, Position)
        ours = position.offsets.get(str(int(named["partition"])))
        if ours is None or (named["incarnation"] or "") != position.incarnation:
            return "unknown"
        if int(named["offset"]) >= ours:
            return "ahead"
        # with id_field its event has another name
        return "unknown" if self._query.id_field else "behind"

    @property
    def begins_with_new(self) -> bool:
        return self._query.start == "new"

    async def locate(self, at: datetime, cursor: Cursor) -> Located:
        load_driver()
        from aiokafka.errors import KafkaError

        consumer = _consumer(self._query, self._account)
        try:
            await self._start(consumer)
            ours = msgspec.convert(cursor, Position) if cursor else None
            return await TopicReader(consumer, self._query).locate(at, ours)
        except (KafkaError, OSError, NotImplementedError) as error:
            raise in_words(error, self._account, self._query.topic) from error
        finally:
            await close(consumer.stop, consumer._client)

    async def _start(self, consumer: AIOKafkaConsumer) -> None:
        from aiokafka.errors import KafkaConnectionError

        try:
            await consumer.start()
        except KafkaConnectionError:
            raise await why_unreachable(self._account) from None


class TopicReader:
    """One connection: reads batches, and compares now and then what the brokers have with our position."""

    def __init__(self, consumer: AIOKafkaConsumer, query: KafkaStreamQuery) -> None:
        self._consumer = consumer
        self._query = query
        self._messages = MessageReader(query, "kafka.message")
        self._most = min(query.batch, query.max_in_flight)
        self._position = Position(offsets={})
        self._retained: Mapping[int, Retained] = {}
        self._check_at = 0.0
        # when the last message of each partition was sent
        self._read_to: dict[int, datetime] = {}

    async def begin(self, position: Position | None) -> Batch:
        """Read on at the position, or where the query says if there is none."""
        topic_id = await self._look()
        if position is None:
            position = Position(topic=topic_id, offsets=await self._first())
        return self._continue(position, topic_id)

    async def locate(self, at: datetime, ours: Position | None) -> Located:
        """The place of that time in each partition, and what lies between it and our position."""
        topic_id = await self._look()
        return located(ours, topic_id, await self._offsets_at(at), self._retained)

    async def read(self) -> Batch:
        """Messages, or an empty batch once the brokers have answered that there are none."""
        from aiokafka.errors import OffsetOutOfRangeError

        left = self._check_at - time.monotonic()
        if left > 0:
            try:
                found = await self._consumer.getmany(timeout_ms=int(left * 1_000) + 1, max_records=self._most)
            except OffsetOutOfRangeError:
                # our next message was deleted, or the topic was: the comparison says which
                batch = await self._compare()
                if batch.gap is None:
                    raise
                return batch
            if found:
                return await self._batch([record for records in found.values() for record in records], found)
        return await self._compare()

    async def _compare(self) -> Batch:
        """Compare our position with what the brokers have."""
        await self._move_on(self._partitions())
        return self._continue(self._position, await self._look())

    async def _look(self) -> str:
        """Ask the brokers for what they have of the topic. Returns its id."""
        from aiokafka import TopicPartition

        from harken.services.kafka.topic_metadata import describe

        name = self._query.topic
        topic = await describe(self._consumer._client, name)
        partitions = [TopicPartition(name, number) for number in sorted(topic.partitions)]
        await self._know(topic.partitions)
        begins = await self._consumer.beginning_offsets(partitions)
        ends = await self._consumer.end_offsets(partitions)
        self._retained = {each.partition: Retained(begin=begins[each], end=ends[each]) for each in partitions}
        self._check_at = time.monotonic() + CHECK_SECONDS
        return topic.id

    async def _know(self, partitions: frozenset[int]) -> None:
        """Let the client find out who leads a partition that is new to it; it looks by itself every few minutes."""
        if not partitions <= (self._consumer.partitions_for_topic(self._query.topic) or frozenset()):
            await self._consumer._client.add_topic(self._query.topic)
            await self._consumer._client.force_metadata_update()

    def _continue(self, position: Position, topic_id: str) -> Batch:
        """Read on at the position as far as the brokers still have it; the batch says what is lost."""
        self._position, gap = resume(self._query.topic, position, topic_id, self._retained)
        self._assign(gap)
        return Batch(cursor=msgspec.to_builtins(self._position), gap=gap, lag=self._lag())

    def _assign(self, gap: Gap | None) -> None:
        wanted = self._partitions()
        if gap is None and self._consumer.assignment() == set(wanted):
            return
        self._consumer.assign(wanted)
        for partition in wanted:
            self._consumer.seek(partition, self._position.offsets[str(partition.partition)])

    async def _first(self) -> dict[str, int]:
        """Where a first read begins in each partition."""
        have = self._retained
        if self._query.start == "all":
            return {str(number): each.begin for number, each in have.items()}
        if at := instant(self._query.start):
            return await self._offsets_at(at)
        return {str(number): each.end for number, each in have.items()}

    async def _offsets_at(self, at: datetime) -> dict[str, int]:
        """The first message of that time or later in each partition; its end where there is none."""
        partitions = self._named(self._retained)
        found = await self._consumer.offsets_for_times(dict.fromkeys(partitions, int(at.timestamp() * 1_000)))
        places = {str(each.partition): place.offset for each, place in found.items() if place is not None}
        return {str(number): each.end for number, each in self._retained.items()} | places

    async def _batch(self, records: Sequence[ConsumerRecord[Any, Any]], drained: Mapping[TopicPartition, Any]) -> Batch:
        await self._move_on(drained)
        last = {record.partition: record.timestamp for record in records}
        sent = {partition: _time(timestamp) for partition, timestamp in last.items()}
        self._read_to |= {partition: at for partition, at in sent.items() if at is not None}
        read = [self._event(record) for record in records]
        return Batch(
            events=[one for one in read if isinstance(one, Event)],
            rejected=[one for one in read if isinstance(one, Rejected)],
            cursor=msgspec.to_builtins(self._position),
            lag=self._lag(),
        )

    async def _move_on(self, partitions: Any) -> None:
        """Take over how far the client has read: also past the marks of transactions, which are no messages."""
        offsets = {str(each.partition): await self._consumer.position(each) for each in partitions}
        offsets = self._position.offsets | offsets
        self._position = msgspec.structs.replace(self._position, offsets=offsets)

    def _lag(self) -> Lag:
        waiting = 0
        read_to: list[datetime] = []
        for partition in self._partitions():
            offset = self._position.offsets[str(partition.partition)]
            stable = self._consumer.last_stable_offset(partition)
            behind = max(0, max(stable or 0, self._retained[partition.partition].end) - offset)
            waiting += behind
            if behind and partition.partition in self._read_to:
                read_to.append(self._read_to[partition.partition])
        return Lag(messages=waiting, seconds=None if waiting else 0.0, read_to=min(read_to, default=None))

    def _partitions(self) -> list[TopicPartition]:
        return self._named(self._position.offsets)

    def _named(self, numbers: Any) -> list[TopicPartition]:
        from aiokafka import TopicPartition

        return [TopicPartition(self._query.topic, int(number)) for number in numbers]

    def _event(self, record: ConsumerRecord[Any, Any]) -> Event | Rejected:
        incarnation = self._position.incarnation
        name = f"{record.topic}{f'~{incarnation}' if incarnation else ''}/{record.partition}@{record.offset}"
        return self._messages.read(
            name,
            self._body(record.value),
            about=_text(record.key) if record.key is not None else "",
            at=_time(record.timestamp),
            metadata=_metadata(record) if self._query.metadata else None,
        )

    def _body(self, value: bytes | None) -> bytes:
        """A message without a value (a tombstone) says that its key is gone: in JSON that is null."""
        if value is None:
            return b"null" if self._query.format == "json" else b""
        return value


def _consumer(query: KafkaStreamQuery, account: KafkaAccount) -> AIOKafkaConsumer:
    from aiokafka import AIOKafkaConsumer

    return AIOKafkaConsumer(
        **settings(account),
        group_id=None,
        enable_auto_commit=False,
        # an offset that is not there any more is for us to judge, not for the client to skip
        auto_offset_reset="none",
        isolation_level="read_committed",
        fetch_max_bytes=FETCH_BYTES,
    )


def _metadata(record: ConsumerRecord[Any, Any]) -> dict[str, Any]:
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "headers": {name: _text(value) if value is not None else None for name, value in record.headers},
    }


def _text(value: bytes) -> str:
    """Text as it is; other bytes in base64, so that two keys never look the same."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return "base64:" + b64encode(value).decode()


def _time(milliseconds: int | None) -> datetime | None:
    """When it was sent, as the sender says; None if that is no time at all."""
    if milliseconds is None or not 0 <= milliseconds <= LATEST_SECONDS * 1_000:
        return None
    return from_unix(milliseconds / 1_000)
