"""Google Pub/Sub over REST: subscriptions are followed (pull), topics are published to.

A message that is not acknowledged within the subscription's deadline is delivered again, and counts against its
dead-letter policy. It is acknowledged after our commit, and its deadline is extended while the store is away.
https://cloud.google.com/pubsub/docs/reference/rest/v1/projects.subscriptions/pull
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
import structlog
from pydantic import Field

from harken.durations import format_duration
from harken.errors import HarkenError, RetryLater
from harken.event import Event
from harken.http import Reply
from harken.kit import ParamsModel, instant
from harken.kit.stream_messages import MessageQuery, MessageReader
from harken.language.dotted_paths import lookup
from harken.services.pubsub.api import PubSub, PubSubAccount
from harken.source import Act, Batch, Call, Cursor, Gap, Host, Lag, Plugin, Rejected

__all__ = ["PubSubAccount", "PubSubQuery", "PubSubStream", "plugin"]

log = structlog.get_logger("harken.services.pubsub")

MOST_PULLED = 1_000
MOST_IDS = 1_000
"""So many messages one request acknowledges or extends: their ids must fit in 512 kB."""
DEADLINE_SECONDS = 10.0
"""The deadline of a subscription whose settings we may not read: the shortest that Pub/Sub allows."""
SERVER_WAIT_SECONDS = 90.0
"""So long Pub/Sub may keep a pull that has nothing to give, if it does not follow our wish."""
KEY_ATTRIBUTE = "idempotency-key"
HOUR = 3_600
_SUBSCRIPTION = r"^(projects/[a-z0-9:.-]{4,80}/subscriptions/)?[A-Za-z][A-Za-z0-9._~+%-]{2,254}$"
_TOPIC = r"^(projects/[a-z0-9:.-]{4,80}/topics/)?[A-Za-z][A-Za-z0-9._~+%-]{2,254}$"


class PubSubQuery(MessageQuery):
    """Which subscription is followed."""

    subscription: str = Field(pattern=_SUBSCRIPTION, description="its name, or projects/PROJECT/subscriptions/NAME")
    wait_seconds: int = Field(5, ge=1, le=60, description="how long a request waits for a message")


class Message(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    message_id: str
    data: str = ""
    attributes: Mapping[str, str] = {}
    publish_time: str = ""
    ordering_key: str = ""


class Received(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A delivery of a message. Each delivery has another ackId."""

    ack_id: str
    message: Message
    delivery_attempt: int = 0


class Pulled(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The answer to a pull; without messages it may be an empty object."""

    received_messages: list[Received] | None = None


_decode_pulled = msgspec.json.Decoder(Pulled).decode


class PubSubStream:
    silence_seconds = SERVER_WAIT_SECONDS + 30.0

    def __init__(self, query: PubSubQuery, account: PubSubAccount, host: Host) -> None:
        self.hold_seconds = DEADLINE_SECONDS
        self._query = query
        self._api = PubSub(account, host)
        self._clock = host.clock
        self._reader = MessageReader(query, "pubsub.message")
        self._name = query.subscription.rpartition("/")[2]
        self._path = ""
        self._in_hand: list[str] = []
        # committed and not yet acknowledged: the next connection goes on with that
        self._committed: list[str] = []

    async def stream(self, cursor: Cursor) -> AsyncIterator[Batch]:
        self._in_hand = []
        self._path = await self._api.path("subscriptions", self._query.subscription)
        settings = await self._settings()
        self.hold_seconds = float(settings.get("ackDeadlineSeconds") or DEADLINE_SECONDS)
        await self._acknowledge()
        gap = self._gap(cursor, _seconds(settings.get("messageRetentionDuration")))
        yield Batch(cursor=self._position(), gap=gap)
        while True:
            received = await self._pull()
            self._in_hand = [one.ack_id for one in received]
            sent = [instant(one.message.publish_time) for one in received]
            read = [self._event(one, at) for one, at in zip(received, sent, strict=True)]
            yield Batch(
                events=[one for one in read if isinstance(one, Event)],
                rejected=[one for one in read if isinstance(one, Rejected)],
                cursor=self._position(),
                lag=_lag(sent),
            )
            self._committed += self._in_hand
            self._in_hand = []
            await self._acknowledge()

    async def hold(self) -> None:
        """Extend the deadline of what is in hand. What that fails for may be delivered again, and is then known."""
        seconds = min(600, max(1, round(self.hold_seconds)))
        try:
            for ids in _parts(self._in_hand):
                asked = {"ackIds": ids, "ackDeadlineSeconds": seconds}
                reply = await self._api.send("POST", f"{self._path}:modifyAckDeadline", asked)
                self._api.expect(reply, self._name)
        except HarkenError as error:
            log.warning("pubsub.hold_failed", subscription=self._name, reason=str(error))

    async def _settings(self) -> Mapping[str, Any]:
        """The subscription's settings; none if the account may only consume, as Pub/Sub Subscriber may."""
        reply = await self._api.send("GET", self._path)
        return {} if reply.status == 403 else self._api.expect(reply, self._name)

    async def _pull(self) -> list[Received]:
        query = self._query
        reply = await self._api.send(
            "POST",
            f"{self._path}:pull",
            {"maxMessages": min(query.batch, query.max_in_flight, MOST_PULLED)},
            headers={"X-Server-Timeout": str(query.wait_seconds)},
            wait=SERVER_WAIT_SECONDS,
        )
        if reply.status == 504:
            # nothing came within our wait
            return []
        if reply.status >= 300 or not reply.body:
            self._api.expect(reply, self._name)
            return []
        try:
            return _decode_pulled(reply.body).received_messages or []
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise RetryLater("the server did not answer like Pub/Sub", fix="Check endpoint") from None

    async def _acknowledge(self) -> None:
        """Acknowledge what is committed. What fails for now is tried again with the next batch or connection."""
        for ids in _parts(list(self._committed)):
            reply = await self._api.send("POST", f"{self._path}:acknowledge", {"ackIds": ids})
            refused = _refused_ids(reply)
            if refused is None:
                self._api.expect(reply, self._name)
            done = {id for id in ids if not (refused or {}).get(id, "").startswith("TRANSIENT_")}
            self._committed = [id for id in self._committed if id not in done]

    def _position(self) -> Any:
        return {"hour": int(self._clock.time()) // HOUR}

    def _gap(self, cursor: Cursor, kept: float) -> Gap | None:
        """A subscription that was not read for longer than it keeps messages may have lost some."""
        if not cursor or not kept:
            return None
        away = self._clock.time() - (int(cursor["hour"]) + 1) * HOUR
        if away <= kept:
            return None
        reason = (
            f"{self._name} was not read for {format_duration(round(away))} and keeps messages for "
            f"{format_duration(kept)}; older ones were deleted"
        )
        return Gap(key=f"not read since {cursor['hour']}", reason=reason)

    def _event(self, received: Received, at: datetime | None) -> Event | Rejected:
        message = received.message
        name = f"{self._name}@{message.message_id}"
        try:
            body = b64decode(message.data, validate=True)
        except ValueError:
            return self._reader.reject(name, message.data.encode(), "its data is not base64", at=at)
        metadata = _metadata(received) if self._query.metadata else None
        return self._reader.read(name, body, about=message.ordering_key, at=at, metadata=metadata)


def _metadata(received: Received) -> Mapping[str, Any]:
    message = received.message
    return {
        "id": message.message_id,
        "ordering_key": message.ordering_key,
        "deliveries": received.delivery_attempt,
        "attributes": message.attributes,
    }


def _lag(sent: Sequence[datetime | None]) -> Lag:
    """How old the oldest was of those that were just received: Pub/Sub says nothing of what waits."""
    known = [at for at in sent if at is not None]
    return Lag(read_to=min(known)) if known else Lag(seconds=0.0)


def _parts(ids: list[str]) -> list[list[str]]:
    return [ids[begin : begin + MOST_IDS] for begin in range(0, len(ids), MOST_IDS)]


def _refused_ids(reply: Reply) -> Mapping[str, str] | None:
    """Why each of the refused ids was, of a subscription with exactly-once delivery; None if it says no such thing.

    What is refused for good was delivered again meanwhile: it comes again, and is known by its name then.
    """
    if reply.status != 400:
        return None
    details = lookup(reply.json(), "error.details")
    for detail in details if isinstance(details, list) else ():
        if isinstance(detail, dict) and detail.get("reason") == "EXACTLY_ONCE_ACKID_FAILURE":
            found = detail.get("metadata")
            return {str(id): str(why) for id, why in found.items()} if isinstance(found, dict) else None
    return None


def _seconds(duration: Any) -> float:
    """Seconds of a duration as Google writes it, `604800s`; 0 if it is none."""
    digits = duration.removesuffix("s") if isinstance(duration, str) else ""
    return float(digits) if digits.isascii() and digits.isdigit() and len(digits) < 12 else 0.0


class PublishParams(ParamsModel):
    """A message to publish to a topic."""

    topic: str = Field(pattern=_TOPIC, description="its name, or projects/PROJECT/topics/NAME")
    data: Any = Field(description="what to send; JSON")
    ordering_key: str = Field("", max_length=1_024, description="messages with one key keep their order")
    attributes: dict[str, str] = Field(default_factory=dict, max_length=99, description="attributes of the message")


async def _publish(call: Call) -> Any:
    """Publish a message. A repeat of the same step publishes it again, with the same attribute `idempotency-key`."""
    params: PublishParams = call.params
    api = PubSub(call.account, call.host)
    path = await api.path("topics", params.topic)
    message: dict[str, Any] = {
        "data": b64encode(msgspec.json.encode(params.data)).decode(),
        "attributes": {KEY_ATTRIBUTE: call.idempotency_key, **params.attributes},
    }
    if params.ordering_key:
        message["orderingKey"] = params.ordering_key
    reply = await api.send("POST", f"{path}:publish", {"messages": [message]})
    ids = api.expect(reply, params.topic.rpartition("/")[2]).get("messageIds")
    if not isinstance(ids, list) or len(ids) != 1:
        raise RetryLater("the server did not answer like Pub/Sub", fix="Check endpoint")
    return {"id": str(ids[0]), "topic": path}


plugin = Plugin(
    kind="pubsub",
    summary="Google Pub/Sub: subscriptions followed, topics published to",
    docs="reference/services/pubsub.md",
    account=PubSubAccount,
    stream_query=PubSubQuery,
    stream=PubSubStream,
    actions={"publish": Act(params=PublishParams, run=_publish)},
    identity="change",
    first="all",
    environment={"GOOGLE_APPLICATION_CREDENTIALS": "key_file", "PUBSUB_EMULATOR_HOST": "endpoint"},
)
