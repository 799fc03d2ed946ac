"""MQTT 5: topics followed in a session that the broker keeps for us, and published to.

https://docs.oasis-open.org/mqtt/mqtt/v5.0/mqtt-v5.0.html. Messages are acknowledged (QoS 1) when they are stored: the
library is paho with acknowledgement by hand, as others acknowledge when a message enters their queue.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from pydantic import Field, SecretStr, field_validator

from harken.errors import NeedsAttention, Refused, RetryLater
from harken.event import Event
from harken.kit import AccountModel, ParamsModel, dump_cursor, load_cursor
from harken.kit.stream_messages import MessageQuery, MessageReader
from harken.services.mqtt.connection import Connection, Ended, Pong, Server
from harken.services.mqtt.redeliveries import Deliveries, Position, mark_of
from harken.source import Act, Batch, Call, Cursor, Gap, Host, Plugin, Rejected

if TYPE_CHECKING:
    from paho.mqtt.client import MQTTMessage

__all__ = ["MqttAccount", "MqttQuery", "MqttStream", "Publication", "plugin"]

PING_SECONDS = 2.0
"""A broker that has nothing for so long is asked whether it is there."""
DAY = 86_400
LONGEST_TOPIC = 65_535
_NO_SUBSCRIBERS = 16


class MqttAccount(AccountModel):
    """The broker, as mqtt:// or mqtts:// with user and password."""

    url: SecretStr = Field(description="mqtt://user:password@host:1883; mqtts:// for TLS")
    ca_bundle: str = Field("", description="file with certificates to trust; else those of the system")

    @field_validator("url")
    @classmethod
    def _is_an_address(cls, value: SecretStr) -> SecretStr:
        Server.at(value.get_secret_value())
        return value

    def server(self) -> Server:
        return Server.at(self.url.get_secret_value(), self.ca_bundle)


class MqttQuery(MessageQuery):
    """Which topics are followed, and in which session."""

    topics: list[str] = Field(min_length=1, max_length=100, description="topic filters, with + and # as wildcards")
    client_id: str = Field("", max_length=200, description="name of our session at the broker; else that of the feed")
    session_expiry: int = Field(
        7 * DAY, ge=DAY, le=4_294_967_295, description="seconds for which the broker keeps messages while we are away"
    )
    retained: bool = Field(True, description="whether messages that a topic retains come when it is first followed")

    @field_validator("topics")
    @classmethod
    def _are_filters(cls, topics: list[str]) -> list[str]:
        for topic in topics:
            _check_topic(topic)
            levels = topic.split("/")
            if topic.startswith("$share/"):
                raise ValueError("a shared subscription leaves messages with whoever is away; one process follows")
            if "#" in "".join(levels[:-1]) or any(
                len(level) > 1 and ("#" in level or "+" in level) for level in levels
            ):
                raise ValueError("+ is a level of its own, and # the last one")
        return topics


def _check_topic(topic: str) -> None:
    if not topic or "\0" in topic or len(topic.encode(errors="replace")) > LONGEST_TOPIC:
        raise ValueError("a topic has 1 to 65,535 bytes")


class MqttStream:
    silence_seconds = 15.0

    def __init__(self, query: MqttQuery, account: MqttAccount, host: Host) -> None:
        self._query = query
        self._server = account.server()
        self._allow_private = host.allow_private
        self._client_id = query.client_id or f"harken-{host.feed}"
        self._reader = MessageReader(query, "mqtt.message")

    async def stream(self, cursor: Cursor) -> AsyncIterator[Batch]:
        before = load_cursor(cursor, Position) if cursor else None
        connection = Connection(
            self._server,
            allow_private=self._allow_private,
            client_id=self._client_id,
            in_flight=self._query.max_in_flight,
            session_seconds=self._query.session_expiry,
        )
        try:
            present = await connection.open()
            await connection.unsubscribe(
                [one for one in before.topics if one not in self._query.topics] if before else []
            )
            await connection.subscribe(self._query.topics, retained=self._query.retained)
            position, gap = self._begin(before, present)
            yield Batch(cursor=dump_cursor(position), gap=gap)
            deliveries, pongs = Deliveries(position), 0
            while True:
                found = await connection.take(self._query.batch, PING_SECONDS)
                pongs += sum(isinstance(one, Pong) for one in found)
                deliveries.confirm(pongs)
                messages: list[Any] = [one for one in found if not isinstance(one, Pong | Ended)]
                if messages:
                    marks = [_mark(message) if message.qos else "" for message in messages]
                    yield self._batch(messages, marks, deliveries)
                    # to be asked for the next batch means that this one is stored
                    ping = connection.acknowledge([message.mid for message in messages if message.qos])
                    deliveries.acknowledge([mark for mark in marks if mark], ping)
                elif not found:
                    connection.ping()
                elif isinstance(found[-1], Pong):
                    deliveries.rest()
                    yield Batch(cursor=dump_cursor(deliveries.position))
                for one in found:
                    if isinstance(one, Ended):
                        raise connection.in_words(one)
        finally:
            await connection.close()

    def _begin(self, before: Position | None, present: bool) -> tuple[Position, Gap | None]:
        """Where we are, and what was lost with the session that the broker does not have any more."""
        topics = tuple(self._query.topics)
        if before is not None and present:
            return msgspec.structs.replace(before, topics=topics), None
        position = Position(session=secrets.token_hex(6), topics=topics)
        if before is None:
            return position, None
        reason = f"the broker at {self._server.name} lost our session, and with it what it kept for us"
        return position, Gap(key=f"session {before.session}", reason=reason)

    def _batch(self, messages: Sequence[MQTTMessage], marks: Sequence[str], deliveries: Deliveries) -> Batch:
        """`marks` are those of the messages, empty for one that is not acknowledged (QoS 0)."""
        position = deliveries.position
        marked = zip(messages, marks, strict=True)
        new = [one for one, mark in marked if not (one.dup and mark and deliveries.is_repeat(mark))]
        read = [self._event(one, f"{position.session}-{position.count + at}") for at, one in enumerate(new, 1)]
        deliveries.take([mark for mark in marks if mark], len(new))
        return Batch(
            events=[one for one in read if isinstance(one, Event)],
            rejected=[one for one in read if isinstance(one, Rejected)],
            cursor=dump_cursor(deliveries.position),
        )

    def _event(self, message: MQTTMessage, name: str) -> Event | Rejected:
        body = bytes(message.payload)
        try:
            topic = message.topic
        except UnicodeDecodeError:
            return self._reader.reject(f"?@{name}", body, "its topic is not UTF-8")
        metadata = _metadata(topic, message) if self._query.metadata else None
        return self._reader.read(f"{topic}@{name}", body, about=topic, metadata=metadata)


def _mark(message: MQTTMessage) -> str:
    properties: Any = message.properties
    headers = [part.encode() for pair in getattr(properties, "UserProperty", ()) for part in pair]
    correlation = getattr(properties, "CorrelationData", b"")
    return mark_of(message.mid, _topic_bytes(message), bytes(message.payload), correlation, *headers)


def _topic_bytes(message: MQTTMessage) -> bytes:
    try:
        return message.topic.encode()
    except UnicodeDecodeError as error:
        return error.object


def _metadata(topic: str, message: MQTTMessage) -> dict[str, Any]:
    """What the broker says about the message. `retained`: it is an old one, which the topic keeps for newcomers."""
    properties: Any = message.properties
    correlation = getattr(properties, "CorrelationData", b"")
    return {
        "topic": topic,
        "qos": message.qos,
        "retained": bool(message.retain),
        "content_type": getattr(properties, "ContentType", ""),
        "response_topic": getattr(properties, "ResponseTopic", ""),
        "correlation": correlation.decode(errors="replace"),
        "headers": dict(getattr(properties, "UserProperty", ())),
    }


class Publication(ParamsModel):
    """A message to publish."""

    topic: str = Field(min_length=1, description="the topic, without wildcards")
    data: Any = Field(description="what to send, as JSON")
    retain: bool = Field(False, description="whether the topic keeps it for newcomers")

    @field_validator("topic")
    @classmethod
    def _is_a_topic(cls, topic: str) -> str:
        _check_topic(topic)
        if "+" in topic or "#" in topic:
            raise ValueError("a message goes to one topic: + and # are not allowed")
        return topic


async def _publish(call: Call) -> Any:
    """Publish with QoS 1. A repeat of the same step sends it again with the same correlation data."""
    params: Publication = call.params
    server: Server = call.account.server()
    connection = Connection(server, allow_private=call.host.allow_private)
    try:
        await connection.open()
        reason = await connection.publish(
            params.topic,
            msgspec.json.encode(params.data),
            retain=params.retain,
            content_type="application/json",
            correlation=call.idempotency_key.encode(),
        )
    finally:
        await connection.close()
    _check_published(reason, server, params.topic)
    return {"topic": params.topic, "subscribers": reason != _NO_SUBSCRIBERS}


def _check_published(reason: int, server: Server, topic: str) -> None:
    where = f"the broker at {server.name}"
    if reason == 135:
        raise NeedsAttention(f"{where} does not let this user publish to {topic}", fix="Let it, or name another topic")
    if reason in (144, 149, 153):
        raise Refused(f"{where} refuses the message to {topic} (reason {reason})", fix="Check its topic and size")
    if reason >= 128:
        raise RetryLater(f"{where} did not take the message to {topic} (reason {reason})")


def _stream(query: MqttQuery, account: MqttAccount, host: Host) -> MqttStream:
    return MqttStream(query, account, host)


plugin = Plugin(
    kind="mqtt",
    summary="MQTT 5 topics, followed and published to",
    docs="reference/services/mqtt.md",
    account=MqttAccount,
    stream_query=MqttQuery,
    stream=_stream,
    actions={"publish": Act(params=Publication, run=_publish)},
    identity="change",
    first="all",
    environment={"MQTT_URL": "url"},
    extra=lambda query, account: "mqtt",
)
