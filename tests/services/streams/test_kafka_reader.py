"""What the mock cluster cannot do: partitions that are added, topics that are created anew while we are connected, and
offsets by time. A small stand-in for the consumer has these, with positions as aiokafka's consumer keeps them."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import OffsetOutOfRangeError, UnknownTopicOrPartitionError
from aiokafka.structs import ConsumerRecord, OffsetAndTimestamp
from pydantic import ValidationError

from harken.errors import NeedsAttention
from harken.event import Event
from harken.services.kafka import KafkaAccount, KafkaStream, KafkaStreamQuery
from harken.services.kafka.account import settings
from harken.services.kafka.position import Position
from harken.services.kafka.stream import TopicReader
from harken.source import Batch, Lag

HOUR = 3_600_000
NOON = 1_772_366_400_000
"""2026-03-01T12:00:00Z"""


class Cluster:
    """A topic `orders`: an id, and for each partition its first offset and its messages. One a hour, from noon."""

    def __init__(self, *partitions: int) -> None:
        self.id = b"first topic 0001"
        self.begins = [0] * len(partitions)
        self.ends = list(partitions)

    def get_random_node(self) -> int:
        return 1

    async def send(self, node: int, request: Any) -> Any:
        return self

    def to_object(self) -> dict[str, Any]:
        partitions = [{"partition": number} for number in range(len(self.ends))]
        return {"topics": [{"error_code": 0, "name": "orders", "topic_id": self.id, "partitions": partitions}]}


class Consumer:
    """Reads the cluster at its positions, and raises for one that is out of range, as aiokafka's does here."""

    def __init__(self, cluster: Cluster) -> None:
        self._client = cluster
        self.positions: dict[TopicPartition, int] = {}

    def partitions_for_topic(self, topic: str) -> set[int]:
        return set(range(len(self._client.ends)))

    async def beginning_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {each: self._client.begins[each.partition] for each in partitions}

    async def end_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {each: self._client.ends[each.partition] for each in partitions}

    async def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, Any]:
        found = {}
        for each, wanted in times.items():
            offset = max(self._client.begins[each.partition], -((NOON - wanted) // HOUR))
            inside = offset < self._client.ends[each.partition]
            found[each] = OffsetAndTimestamp(offset, NOON + offset * HOUR) if inside else None
        return found

    def assignment(self) -> set[TopicPartition]:
        return set(self.positions)

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        self.positions = dict.fromkeys(partitions, -1)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.positions[partition] = offset

    async def position(self, partition: TopicPartition) -> int:
        return self.positions[partition]

    def last_stable_offset(self, partition: TopicPartition) -> int | None:
        return None

    async def getmany(self, *, timeout_ms: int, max_records: int) -> Mapping[TopicPartition, Any]:
        found = {}
        for each, offset in self.positions.items():
            begin, end = self._client.begins[each.partition], self._client.ends[each.partition]
            if not begin <= offset <= end:
                raise OffsetOutOfRangeError({each: offset})
            if offset < end:
                found[each] = [message(each, at) for at in range(offset, min(end, offset + max_records))]
                self.positions[each] = found[each][-1].offset + 1
        return found


def message(partition: TopicPartition, offset: int, at: int | None = None) -> Any:
    value = b'{"n": %d}' % offset
    time = NOON + offset * HOUR if at is None else at
    return ConsumerRecord(partition.topic, partition.partition, offset, time, 0, None, value, None, 0, len(value), ())


def reader(cluster: Cluster, **query: Any) -> TopicReader:
    consumer: Any = Consumer(cluster)
    return TopicReader(consumer, KafkaStreamQuery(topic="orders", **query))


def names(*batches: Batch) -> list[str]:
    """Partition and offset of each event, as in its key."""
    return sorted(event.key.partition("/")[2] for batch in batches for event in batch.events)


async def test_what_waits_is_as_old_as_what_was_read_last_at_most() -> None:
    cluster = Cluster(5, 5)
    following = reader(cluster, start="all", batch=2)
    await following.begin(None)
    first = await following.read()
    assert first.lag is not None and first.lag.messages == 6
    # two of each partition
    assert first.lag.read_to == max(event.occurred_at for event in first.events if event.occurred_at)
    last = first
    while last.lag is not None and last.lag.messages:
        last = await following.read()
    assert last.lag == Lag(messages=0, seconds=0.0)


async def test_a_partition_that_is_added_is_read_from_its_beginning() -> None:
    cluster = Cluster(3)
    following = reader(cluster)
    await following.begin(None)
    cluster.begins.append(0)
    cluster.ends.append(2)
    noticed, read = await following.read(), await following.read()
    assert (noticed.gap, noticed.lag and noticed.lag.messages) == (None, 2)
    assert names(read) == ["1@0", "1@1"]
    assert read.cursor["offsets"] == {"0": 3, "1": 2}


async def test_a_topic_created_anew_while_we_are_connected_is_a_gap_and_has_other_names() -> None:
    cluster = Cluster(5)
    following = reader(cluster, start="all")
    await following.begin(None)
    old = await following.read()
    cluster.id, cluster.ends = b"second topic 002", [2]
    noticed, new = await following.read(), await following.read()
    assert noticed.gap is not None and "created anew" in noticed.gap.reason
    assert names(new) == ["0@0", "0@1"]
    assert not {event.key for event in old.events} & {event.key for event in new.events}


async def test_history_deleted_while_we_are_connected_is_a_gap() -> None:
    cluster = Cluster(0)
    following = reader(cluster)
    await following.begin(None)
    cluster.begins, cluster.ends = [10], [12]
    noticed, read = await following.read(), await following.read()
    assert noticed.gap is not None and noticed.gap.messages == 10
    assert names(read) == ["0@10", "0@11"]


async def test_an_offset_that_is_refused_although_it_is_there_is_an_error_and_not_a_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def refuse(consumer: Consumer, **_: Any) -> Any:
        raise OffsetOutOfRangeError

    following = reader(Cluster(5))
    await following.begin(None)
    monkeypatch.setattr(Consumer, "getmany", refuse)
    with pytest.raises(OffsetOutOfRangeError):
        await following.read()


async def test_a_first_read_begins_at_a_time() -> None:
    following = reader(Cluster(5, 2, 0), start="2026-03-01T14:30:00Z")
    begun = await following.begin(None)
    assert begun.cursor["offsets"] == {"0": 3, "1": 2, "2": 0}
    assert names(await following.read()) == ["0@3", "0@4"]


async def test_a_first_read_of_all_begins_at_the_oldest_message_without_a_gap() -> None:
    cluster = Cluster(5)
    cluster.begins = [3]
    following = reader(cluster, start="all")
    assert (await following.begin(None)).gap is None
    assert names(await following.read()) == ["0@3", "0@4"]


async def test_what_was_stored_counts_and_not_where_a_first_read_begins() -> None:
    following = reader(Cluster(5), start="new")
    position = Position(topic="Zmlyc3QgdG9waWMgMDAwMQ", offsets={"0": 4})
    begun = await following.begin(position)
    assert (begun.gap, begun.cursor["offsets"]) == (None, {"0": 4})


async def test_a_topic_that_is_gone_is_not_taken_for_an_empty_one() -> None:
    cluster = Cluster(5)
    following = reader(cluster)
    await following.begin(None)
    cluster.to_object = lambda: {"topics": [{"error_code": 3, "name": "orders", "partitions": []}]}  # type: ignore[method-assign]
    with pytest.raises(UnknownTopicOrPartitionError):
        await following.read()


@pytest.mark.parametrize("claimed", [-1, -(2**63), 2**63 - 1])
async def test_a_time_that_is_none_is_left_out(claimed: int) -> None:
    following = reader(Cluster(1))
    event = following._event(message(TopicPartition("orders", 0), 0, claimed))
    assert isinstance(event, Event)
    assert event.occurred_at is None


async def test_without_the_driver_it_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiokafka", None)
    source = KafkaStream(KafkaStreamQuery(topic="orders"), KafkaAccount(brokers="a"))
    with pytest.raises(NeedsAttention, match="driver for Kafka is missing") as caught:
        await anext(source.stream(None))
    assert "pip install 'harken[kafka]'" in str(caught.value.fix)


@pytest.mark.parametrize("query", [{"topic": "a\nb"}, {"topic": "../x"}, {"topic": ""}, {"topic": "x", "start": "old"}])
def test_a_query_that_kafka_would_refuse_is_refused(query: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        KafkaStreamQuery(**query)


@pytest.mark.parametrize(
    "account",
    [
        {"brokers": "host:port"},
        {"brokers": "user:pw@host:9092"},
        {"brokers": "a:9092,,b:9092"},
        {"brokers": "a", "username": "me"},
        {"brokers": "a", "password": "pw"},
        {"brokers": "a", "certificate_key": "key.pem"},
        {"brokers": "a", "certificate": "c.pem", "tls": False},
    ],
)
def test_an_account_that_cannot_be_right_is_refused_without_showing_it(account: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as caught:
        KafkaAccount(**account)
    assert "pw" not in str(caught.value)


@pytest.mark.parametrize(
    "account, protocol",
    [
        ({}, "PLAINTEXT"),
        ({"tls": True}, "SSL"),
        ({"username": "me", "password": "pw"}, "SASL_SSL"),
        ({"username": "me", "password": "pw", "tls": False}, "SASL_PLAINTEXT"),
    ],
)
def test_a_password_is_sent_encrypted_unless_tls_is_switched_off(account: dict[str, Any], protocol: str) -> None:
    options = settings(KafkaAccount(brokers="a:9092,b", **account))
    assert options["security_protocol"] == protocol
    assert (options["ssl_context"] is not None) == ("SSL" in protocol)


async def test_the_place_of_a_time_is_found_in_each_partition_beside_our_position() -> None:
    cluster = Cluster(5, 2, 0)
    ours = Position(topic=(await reader(cluster).begin(None)).cursor["topic"], generation=3, offsets={"0": 1, "1": 2})
    at = datetime(2026, 3, 1, 14, 30, tzinfo=UTC)
    place = await reader(cluster).locate(at, ours)
    assert place.cursor == {"topic": ours.topic, "generation": 3, "offsets": {"0": 3, "1": 2, "2": 0}}
    assert (place.messages, place.again, place.skipped, place.oldest) == (2, 0, 2, False)
    earliest = await reader(cluster).locate(at - timedelta(days=1), ours)
    assert (earliest.messages, earliest.again, earliest.skipped, earliest.oldest) == (7, 3, 0, True)
    cluster.id = b"second topic 002"
    anew = await reader(cluster).locate(at, ours)
    assert (anew.cursor["generation"], anew.again, anew.skipped) == (0, 0, 0)
