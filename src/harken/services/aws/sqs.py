"""Queues of Amazon SQS: followed, and sent to.

A queue forgets a message when it is deleted, which we do after the commit. Until then it hides it for
`visibility_seconds`, and shows it again if it was not deleted. Each time that it is shown counts against the queue's
redrive policy, so a message is asked for once, and kept hidden while the store is away.
https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ReceiveMessage.html
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec
import structlog
from pydantic import Field

from harken.clock import from_unix
from harken.durations import format_duration
from harken.errors import HarkenError, Refused, RetryLater
from harken.event import Event
from harken.kit import ParamsModel
from harken.kit.stream_messages import MessageQuery, MessageReader
from harken.services.aws.api import ENVIRONMENT, Aws, AwsAccount
from harken.services.aws.idempotency import KEY_ATTRIBUTE, deduplication_id
from harken.services.aws.sns_notification_in_sqs_message import Notification, read_notification
from harken.source import Act, Batch, Call, Cursor, Gap, Host, Lag, Plugin, Rejected

__all__ = ["MOST", "QUEUE_NAME", "Message", "Queue", "SqsQuery", "SqsStream", "plugin"]

log = structlog.get_logger("harken.services.sqs")

MOST = 10
"""So many messages SQS takes, gives or deletes in one request."""
PARALLEL = 32
"""Most requests of ours that it answers at one time."""
LAG_SECONDS = 5.0
"""How often a busy queue is asked how much waits in it."""
DELETE_WAITS = (0.2, 1.0)
"""After so many seconds a message that could not be deleted is tried again, and then with the next batch."""
HOUR = 3_600
QUEUE_NAME = r"^([A-Za-z0-9_-]{1,80}|[A-Za-z0-9_-]{1,75}\.fifo|https?://[^\s?#]{1,500})$"
_ATTRIBUTE = re.compile(r"[A-Za-z0-9_.-]{1,256}")
_ASKED = ("CreatedTimestamp", "MessageRetentionPeriod", "ApproximateNumberOfMessages")


class SqsQuery(MessageQuery):
    """Which queue is followed, and how long a message stays hidden that is not yet committed."""

    queue: str = Field(pattern=QUEUE_NAME, description="name or address of the queue")
    owner: str = Field("", pattern="^([0-9]{12})?$", description="the account that has the queue, if it is another")
    unwrap: Literal["auto", "sns", "raw"] = Field(
        "auto", description="what an SNS topic sent is taken out of its envelope; raw leaves it there"
    )
    visibility_seconds: int = Field(
        30, ge=1, le=43_200, description="how long a message is hidden from others until it is committed"
    )
    wait_seconds: int = Field(5, ge=1, le=20, description="how long a request waits for a message")


class Message(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """A message as SQS delivers it. Its id stays, the receipt handle is another one each time."""

    message_id: str
    receipt_handle: str
    body: str = ""
    attributes: Mapping[str, str] = {}
    message_attributes: Mapping[str, Mapping[str, Any]] = {}


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """Which queue of that name it was, and the hour when it was last read."""

    created: str
    hour: int


class SqsStream:
    def __init__(self, query: SqsQuery, account: AwsAccount, host: Host) -> None:
        self.hold_seconds = float(query.visibility_seconds)
        self.silence_seconds = query.wait_seconds + 30.0
        self._query = query
        self._queue = Queue(Aws(account, host, "sqs"), query.queue, query.owner)
        self._clock = host.clock
        self._reader = MessageReader(query, "sqs.message")
        self._in_hand: dict[str, str] = {}
        # committed and not yet deleted: the next connection goes on with that
        self._committed: dict[str, str] = {}
        self._parallel = 1
        self._waiting = 0
        self._asked_at = 0.0

    async def stream(self, cursor: Cursor) -> AsyncIterator[Batch]:
        self._in_hand.clear()
        about = await self._queue.attributes(_ASKED)
        gap = self._gap(msgspec.convert(cursor, Position) if cursor else None, about)
        created = about.get("CreatedTimestamp", "")
        await self._delete()
        self._note_waiting(about)
        yield Batch(cursor=self._position(created), gap=gap, lag=Lag(messages=self._waiting))
        while True:
            messages = await self._receive()
            self._in_hand = {one.message_id: one.receipt_handle for one in messages}
            read = [self._event(one) for one in messages]
            yield Batch(
                events=[one for one in read if isinstance(one, Event)],
                rejected=[one for one in read if isinstance(one, Rejected)],
                cursor=self._position(created),
                lag=self._lag(messages),
            )
            self._committed |= self._in_hand
            self._in_hand = {}
            await self._delete()

    def _lag(self, messages: Sequence[Message]) -> Lag:
        """What waits, and how old the oldest was of those that were just received: a queue has no other age to tell."""
        if not self._waiting:
            return Lag(messages=0, seconds=0.0)
        sent = [at for one in messages if (at := _sent_at(one)) is not None]
        return Lag(messages=self._waiting, read_to=min(sent, default=None))

    async def hold(self) -> None:
        """Keep what is in hand hidden. What that fails for may be delivered again, and is then known already."""
        try:
            failed = await self._queue.hide(self._in_hand, self._query.visibility_seconds)
        except HarkenError as error:
            log.warning("sqs.hold_failed", queue=self._queue.name, reason=str(error))
        else:
            if failed:
                log.warning("sqs.hold_failed", queue=self._queue.name, messages=len(failed))

    def _position(self, created: str) -> Any:
        return msgspec.to_builtins(Position(created=created, hour=int(self._clock.time()) // HOUR))

    def _gap(self, position: Position | None, about: Mapping[str, str]) -> Gap | None:
        """What may be lost since the last read: the queue was made anew, or messages were older than it keeps them."""
        if position is None:
            return None
        if position.created != about.get("CreatedTimestamp", ""):
            reason = f"{self._queue.name} was deleted and created anew; what it had is not known"
            return Gap(key=f"anew after {position.created}", reason=reason)
        kept = _number(about.get("MessageRetentionPeriod", ""))
        away = self._clock.time() - (position.hour + 1) * HOUR
        if not kept or away <= kept:
            return None
        reason = (
            f"{self._queue.name} was not read for {format_duration(away)} and keeps messages for "
            f"{format_duration(kept)}; older ones were deleted"
        )
        return Gap(key=f"not read since {position.hour}", reason=reason)

    async def _receive(self) -> list[Message]:
        """What is there, oldest first as far as the queue has an order; nothing after the wait.

        One request waits for the first messages. Then several at once, which do not wait, fetch what lies behind them:
        so no message waits here for others.
        """
        room = min(self._query.batch, self._query.max_in_flight)
        found = await self._receive_once(min(MOST, room), self._query.wait_seconds)
        if not found:
            self._waiting, self._parallel = 0, 1
            return []
        if len(found) < room and (len(found) == MOST or self._waiting > 0):
            found += await self._receive_behind(room - len(found))
        await self._count_waiting(len(found))
        return self._fresh(found)

    async def _receive_behind(self, room: int) -> list[Message]:
        counts = [min(MOST, room - begin) for begin in range(0, room, MOST)][: self._parallel]
        asking = (self._receive_once(count, 0) for count in counts)
        answers = await asyncio.gather(*asking, return_exceptions=True)
        # one that failed fails again with the next request; what the others brought is not thrown away for it
        errors = [one for one in answers if isinstance(one, BaseException) and not isinstance(one, HarkenError)]
        if errors:
            raise errors[0]
        brought = [one for one in answers if isinstance(one, list)]
        all_came = len(brought) == len(counts) and all(brought)
        self._parallel = min(self._parallel * 2, PARALLEL) if all_came else max(1, self._parallel // 2)
        return [message for messages in brought for message in messages]

    async def _receive_once(self, count: int, wait_seconds: int) -> list[Message]:
        return await self._queue.receive(count, wait_seconds, self._query.visibility_seconds)

    async def _count_waiting(self, received: int) -> None:
        if self._clock.time() - self._asked_at >= LAG_SECONDS:
            self._note_waiting(await self._queue.attributes(_ASKED[2:]))
        else:
            self._waiting = max(0, self._waiting - received)

    def _note_waiting(self, about: Mapping[str, str]) -> None:
        self._waiting = _number(about.get("ApproximateNumberOfMessages", ""))
        self._asked_at = self._clock.time()

    def _fresh(self, messages: Sequence[Message]) -> list[Message]:
        """Without those that are committed, could not be deleted and came again: only their new handle is taken."""
        for message in messages:
            if message.message_id in self._committed:
                self._committed[message.message_id] = message.receipt_handle
        # a standard queue may deliver one message twice in a moment: the later handle is the one that counts
        return list({one.message_id: one for one in messages if one.message_id not in self._committed}.values())

    async def _delete(self) -> None:
        """Delete what is committed. A part that fails is tried again at once, later, and after a reconnect."""
        for wait in (*DELETE_WAITS, 0.0):
            if not self._committed:
                return
            failed = await self._queue.delete(self._committed)
            self._committed = {id: self._committed[id] for id in failed}
            if failed and wait:
                await self._clock.sleep(wait)

    def _event(self, message: Message) -> Event | Rejected:
        body, attributes = message.body.encode("utf-8", "replace"), message.attributes
        at = _sent_at(message)
        envelope = read_notification(body) if self._query.unwrap != "raw" else None
        name = f"{self._queue.name}@{envelope.message_id if envelope else message.message_id}"
        if envelope is None and self._query.unwrap == "sns":
            return self._reader.reject(name, body, "it is not in an envelope of SNS (unwrap)", at=at)
        return self._reader.read(
            name,
            envelope.message.encode("utf-8", "replace") if envelope else body,
            about=attributes.get("MessageGroupId", ""),
            at=at,
            metadata=_metadata(message, envelope) if self._query.metadata else None,
        )


def _sent_at(message: Message) -> datetime | None:
    sent = _number(message.attributes.get("SentTimestamp", ""))
    return from_unix(sent / 1_000) if sent else None


def _metadata(message: Message, envelope: Notification | None) -> Mapping[str, Any]:
    found: dict[str, Any] = {
        "id": message.message_id,
        "receives": _number(message.attributes.get("ApproximateReceiveCount", "")),
        "group": message.attributes.get("MessageGroupId", ""),
        "sequence": message.attributes.get("SequenceNumber", ""),
        "attributes": {name: _attribute(value) for name, value in message.message_attributes.items()},
    }
    if envelope:
        found |= {"topic": envelope.topic_arn, "topic_subject": envelope.subject or ""}
        found["attributes"] |= {name: value.get("Value") for name, value in envelope.message_attributes.items()}
    return found


def _attribute(value: Mapping[str, Any]) -> Any:
    """The text of an attribute, or a binary one in base64."""
    return value.get("StringValue", value.get("BinaryValue"))


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0


class Queue:
    """The requests of one queue. Its address is asked for once."""

    def __init__(self, aws: Aws, queue: str, owner: str = "") -> None:
        self._aws = aws
        self._url = queue if "://" in queue else ""
        self._owner = owner
        self.name = queue.rstrip("/").rpartition("/")[2]

    async def url(self) -> str:
        if not self._url:
            asked = {"QueueName": self.name, **({"QueueOwnerAWSAccountId": self._owner} if self._owner else {})}
            answer = await self._aws.call("GetQueueUrl", asked, about=self.name)
            self._url = str(answer.get("QueueUrl") or "")
        return self._url

    async def attributes(self, names: Sequence[str]) -> Mapping[str, str]:
        answer = await self._call("GetQueueAttributes", AttributeNames=names)
        found = answer.get("Attributes")
        return {str(name): str(value) for name, value in found.items()} if isinstance(found, dict) else {}

    async def receive(self, count: int, wait_seconds: int, visibility_seconds: int) -> list[Message]:
        answer = await self._call(
            "ReceiveMessage",
            wait=wait_seconds,
            MaxNumberOfMessages=count,
            WaitTimeSeconds=wait_seconds,
            VisibilityTimeout=visibility_seconds,
            MessageSystemAttributeNames=[
                "SentTimestamp",
                "ApproximateReceiveCount",
                "MessageGroupId",
                "SequenceNumber",
            ],
            MessageAttributeNames=["All"],
        )
        try:
            return msgspec.convert(answer.get("Messages") or [], list[Message])
        except msgspec.ValidationError:
            raise RetryLater("the server did not answer like SQS", fix="Check endpoint") from None

    async def delete(self, handles: Mapping[str, str]) -> list[str]:
        """Delete the messages with these ids and handles. Return the ids of those to try again."""
        return await self._batches("DeleteMessageBatch", handles)

    async def hide(self, handles: Mapping[str, str], seconds: int) -> list[str]:
        """Let these messages be hidden for so many seconds from now. Return the ids of those to try again."""
        return await self._batches("ChangeMessageVisibilityBatch", handles, VisibilityTimeout=seconds)

    async def send(self, message: Mapping[str, Any]) -> dict[str, Any]:
        return await self._call("SendMessage", **message)

    async def _batches(self, action: str, handles: Mapping[str, str], **each: Any) -> list[str]:
        items = list(handles.items())
        parts = [items[begin : begin + MOST] for begin in range(0, len(items), MOST)]
        failed: list[str] = []
        for begin in range(0, len(parts), PARALLEL):
            asking = (self._batch(action, part, each) for part in parts[begin : begin + PARALLEL])
            failed += [id for ids in await asyncio.gather(*asking) for id in ids]
        return failed

    async def _batch(self, action: str, items: Sequence[tuple[str, str]], each: Mapping[str, Any]) -> list[str]:
        entries = [{"Id": str(number), "ReceiptHandle": handle, **each} for number, (_, handle) in enumerate(items)]
        answer = await self._call(action, Entries=entries)
        failed = answer.get("Failed") or []
        again = {str(one.get("Id")) for one in failed if isinstance(one, dict) and not one.get("SenderFault")}
        # a handle that is not valid any more never becomes so: that message comes again, and is known then
        return [id for number, (id, _) in enumerate(items) if str(number) in again]

    async def _call(self, action: str, wait: float = 0.0, **params: Any) -> dict[str, Any]:
        return await self._aws.call(action, {"QueueUrl": await self.url(), **params}, about=self.name, wait=wait)


class SendParams(ParamsModel):
    """A message to send to a queue."""

    queue: str = Field(pattern=QUEUE_NAME, description="name or address of the queue")
    owner: str = Field("", pattern="^([0-9]{12})?$", description="the account that has the queue, if it is another")
    data: Any = Field(description="what to send; JSON")
    group: str = Field("", max_length=128, description="message group: within it a FIFO queue keeps the order")
    delay_seconds: int = Field(0, ge=0, le=900, description="the queue shows it after so many seconds; not for FIFO")
    attributes: dict[str, str] = Field(default_factory=dict, max_length=9, description="message attributes")


async def _publish(call: Call) -> Any:
    """Send a message. A FIFO queue drops a repeat of the same step for five minutes, by its deduplication id."""
    params: SendParams = call.params
    queue = Queue(Aws(call.account, call.host, "sqs"), params.queue, params.owner)
    wrong = [name for name in params.attributes if not _ATTRIBUTE.fullmatch(name)]
    if wrong:
        raise Refused("a name of attributes: is not one for SQS", fix="Use letters, digits, _ - and .")
    attributes = {KEY_ATTRIBUTE: call.idempotency_key, **params.attributes}
    message: dict[str, Any] = {
        "MessageBody": msgspec.json.encode(params.data).decode(),
        "MessageAttributes": {
            name: {"DataType": "String", "StringValue": value} for name, value in attributes.items() if value
        },
    }
    if queue.name.endswith(".fifo"):
        if not params.group:
            raise Refused(f"{queue.name} is a FIFO queue and needs a group", fix="Write group:")
        message["MessageDeduplicationId"] = deduplication_id(call.idempotency_key)
    elif params.delay_seconds:
        message["DelaySeconds"] = params.delay_seconds
    if params.group:
        message["MessageGroupId"] = params.group
    answer = await queue.send(message)
    return {"id": str(answer.get("MessageId") or ""), "queue": queue.name}


plugin = Plugin(
    kind="sqs",
    summary="Queues of Amazon SQS, and SNS topics through them, followed and sent to",
    docs="reference/services/sqs.md",
    account=AwsAccount,
    stream_query=SqsQuery,
    stream=SqsStream,
    actions={"publish": Act(params=SendParams, run=_publish)},
    identity="change",
    first="all",
    environment=ENVIRONMENT,
)
