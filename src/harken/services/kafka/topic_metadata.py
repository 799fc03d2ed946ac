"""What a broker says about a topic: its id, which changes when it is created anew, and its partitions.

The client library asks for no ids, and may create the topic that it asks for. So this request is our own, in version 10
of the protocol (Kafka 2.8); older brokers are asked in the library's way, and have no ids:
https://kafka.apache.org/protocol#The_Messages_Metadata

Imported only where a connection is made, as it needs the client library.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from io import BytesIO
from typing import TYPE_CHECKING, Any

import msgspec
from aiokafka import errors
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.metadata import MetadataRequest_v4, MetadataRequest_v5
from aiokafka.protocol.types import Boolean, CompactArray, CompactString, Int16, Int32, Schema, TaggedFields

if TYPE_CHECKING:
    from aiokafka.client import AIOKafkaClient

__all__ = ["Topic", "describe"]

METADATA = 3
"""The number of this request in the protocol."""
NO_ID = bytes(16)


class Topic(msgspec.Struct, frozen=True, kw_only=True):
    """`id` is as Kafka's own tools show it, and empty when the broker has none."""

    id: str
    partitions: frozenset[int]


class _Id:
    """Sixteen bytes, as they are."""

    @classmethod
    def encode(cls, value: bytes) -> bytes:
        return value

    @classmethod
    def decode(cls, data: BytesIO) -> bytes:
        return data.read(16)


class _Response(Response):  # type: ignore[misc]
    API_KEY = METADATA
    API_VERSION = 10
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "brokers",
            CompactArray(
                ("node_id", Int32),
                ("host", CompactString()),
                ("port", Int32),
                ("rack", CompactString()),
                ("tags", TaggedFields),
            ),
        ),
        ("cluster_id", CompactString()),
        ("controller_id", Int32),
        (
            "topics",
            CompactArray(
                ("error_code", Int16),
                ("name", CompactString()),
                ("topic_id", _Id),
                ("is_internal", Boolean),
                (
                    "partitions",
                    CompactArray(
                        ("error_code", Int16),
                        ("partition", Int32),
                        ("leader", Int32),
                        ("leader_epoch", Int32),
                        ("replicas", CompactArray(Int32)),
                        ("isr", CompactArray(Int32)),
                        ("offline_replicas", CompactArray(Int32)),
                        ("tags", TaggedFields),
                    ),
                ),
                ("authorized_operations", Int32),
                ("tags", TaggedFields),
            ),
        ),
        ("cluster_authorized_operations", Int32),
        ("tags", TaggedFields),
    )


class _RequestWithId(RequestStruct):  # type: ignore[misc]
    FLEXIBLE_VERSION = True
    API_KEY = METADATA
    API_VERSION = 10
    RESPONSE_TYPE = _Response
    SCHEMA = Schema(
        ("topics", CompactArray(("topic_id", _Id), ("name", CompactString()), ("tags", TaggedFields))),
        ("allow_auto_topic_creation", Boolean),
        ("include_cluster_authorized_operations", Boolean),
        ("include_topic_authorized_operations", Boolean),
        ("tags", TaggedFields),
    )


class _DescribeTopic(Request[MetadataRequest_v4 | MetadataRequest_v5 | _RequestWithId]):  # type: ignore[misc]
    """Asks for one topic, and never creates it."""

    API_KEY = METADATA

    def __init__(self, topic: str) -> None:
        self._topic = topic

    def build(self, request_struct_class: Any) -> Any:
        if request_struct_class is _RequestWithId:
            return _RequestWithId([(NO_ID, self._topic, {})], False, False, False, {})
        return request_struct_class([self._topic], False)


async def describe(client: AIOKafkaClient, topic: str) -> Topic:
    """Ask any broker. Raises errors of aiokafka."""
    node = client.get_random_node()
    if node is None:
        raise errors.NodeNotReadyError()
    answer = (await client.send(node, _DescribeTopic(topic))).to_object()
    for found in answer["topics"]:
        if found.get("name", found.get("topic")) == topic:
            return _topic(found)
    raise errors.UnknownTopicOrPartitionError(topic)


def _topic(found: dict[str, Any]) -> Topic:
    error = errors.for_code(found["error_code"])
    if error is not errors.NoError:
        raise error()
    id = found.get("topic_id", NO_ID)
    return Topic(
        id="" if id == NO_ID else urlsafe_b64encode(id).decode().rstrip("="),
        partitions=frozenset(one["partition"] for one in found["partitions"]),
    )
