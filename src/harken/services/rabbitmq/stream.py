"""A queue of RabbitMQ, consumed with manual acknowledgement: https://www.rabbitmq.com/docs/confirms

Nothing is refused or given back for our own trouble, as a quorum queue counts that, and throws messages away that come
back too often. Only when our lease has ended, and another process may follow the queue, the connection is closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
from pydantic import Field

from harken.errors import RetryLater
from harken.event import Event
from harken.kit.stream_messages import MessageQuery, MessageReader
from harken.services.rabbitmq.connection import ANSWER_SECONDS, RabbitAccount, abort, connected
from harken.services.rabbitmq.message_ids import MessageNames
from harken.source import Batch, Cursor, Lag, Rejected

if TYPE_CHECKING:
    from aio_pika import Connection
    from aio_pika.abc import AbstractChannel, AbstractIncomingMessage

__all__ = ["RabbitQuery", "RabbitStream"]

WAIT_SECONDS = 2.0
"""How long we wait for something new before we ask whether the server is there."""
RETURN_SECONDS = 60.0
"""By then the server has taken back what a broken connection of ours had in hand."""
HOLD_SECONDS = 30.0
LONGEST_ID = 200


class RabbitQuery(MessageQuery):
    """Which queue is followed."""

    queue: str = Field(min_length=1, max_length=255, description="the name of the queue, which must exist")
    max_in_flight: int = Field(
        1_000, ge=1, le=65_535, description="most messages taken and not yet acknowledged (prefetch)"
    )


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """The names that we gave to messages without an id, and whose acknowledgement may not have arrived."""

    unacknowledged: list[str] = []


class RabbitStream:
    silence_seconds = 30.0

    def __init__(self, query: RabbitQuery, account: RabbitAccount, *, hold_seconds: float = HOLD_SECONDS) -> None:
        self._query = query
        self._account = account
        self._reader = MessageReader(query, "rabbitmq.message")
        self.hold_seconds = hold_seconds
        self._held_until = 0.0

    async def stream(self, cursor: Cursor) -> AsyncIterator[Batch]:
        position = msgspec.convert(cursor, Position) if cursor else Position()
        async with connected(self._account, f"queue {self._query.queue}") as connection:
            # acknowledgements are numbered by channel, so each connection has one of its own
            channel = await connection.channel(publisher_confirms=False)
            consumer = Consumer(channel, self._query, MessageNames(position.unacknowledged))
            waiting = await consumer.start()
            yield Batch(cursor=msgspec.to_builtins(position), lag=Lag(messages=waiting))
            while True:
                messages = await consumer.take()
                async with self._deadline(connection):
                    yield self._batch(consumer, messages)
                await consumer.acknowledge(messages)

    async def hold(self) -> None:
        self._held_until = asyncio.get_running_loop().time() + self.hold_seconds

    @asynccontextmanager
    async def _deadline(self, connection: Connection) -> AsyncIterator[None]:
        """RabbitMQ leaves messages to whoever is connected. So we end the connection, unless `hold` is called."""
        loop = asyncio.get_running_loop()

        timer: asyncio.TimerHandle

        def look() -> None:
            nonlocal timer
            if loop.time() < self._held_until:
                timer = loop.call_at(self._held_until, look)
            else:
                abort(connection)

        await self.hold()
        timer = loop.call_at(self._held_until, look)
        try:
            yield
        finally:
            timer.cancel()

    def _batch(self, consumer: Consumer, messages: list[AbstractIncomingMessage]) -> Batch:
        names = [consumer.name(message) for message in messages]
        read = [self._event(name, message) for name, message in zip(names, messages, strict=True)]
        ours = [name for name, message in zip(names, messages, strict=True) if not _id(message)]
        return Batch(
            events=[one for one in read if isinstance(one, Event)],
            rejected=[one for one in read if isinstance(one, Rejected)],
            cursor=msgspec.to_builtins(Position(unacknowledged=[*consumer.names.left, *ours])),
            lag=consumer.lag,
        )

    def _event(self, name: str, message: AbstractIncomingMessage) -> Event | Rejected:
        at = message.timestamp if isinstance(message.timestamp, datetime) else None
        metadata = _metadata(message) if self._query.metadata else None
        full = f"{self._query.queue}@{name}"
        if at is not None and at.tzinfo is None:
            at = at.replace(tzinfo=UTC)
        return self._reader.read(full, message.body, at=at, metadata=metadata)


class Consumer:
    """The messages that the server has handed to one channel, in their order."""

    def __init__(self, channel: AbstractChannel, query: RabbitQuery, names: MessageNames) -> None:
        self._channel = channel
        self._query = query
        self.names = names
        self._arrived: asyncio.Queue[AbstractIncomingMessage] = asyncio.Queue()
        self._tag = ""
        self._ready = 0
        self._began = asyncio.get_running_loop().time()
        self._taken = 0

    async def start(self) -> int:
        """Consume; return how many messages wait."""
        await self._channel.set_qos(prefetch_count=self._query.max_in_flight, timeout=ANSWER_SECONDS)
        queue = await self._channel.declare_queue(self._query.queue, passive=True, timeout=ANSWER_SECONDS)
        self._ready = queue.declaration_result.message_count or 0
        self._tag = await queue.consume(self._arrived.put, timeout=ANSWER_SECONDS)
        return self._ready

    @property
    def lag(self) -> Lag:
        messages = self._ready + self._arrived.qsize()
        return Lag(messages=messages, seconds=None if messages else 0.0)

    async def take(self) -> list[AbstractIncomingMessage]:
        """The next messages; none when nothing came within the wait, and the server has said that it is there."""
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                found = [await self._arrived.get()]
        except TimeoutError:
            await self._ask()
            if not self._ready and self._is_settled:
                self.names.forget()
            return []
        while len(found) < self._query.batch and not self._arrived.empty():
            found.append(self._arrived.get_nowait())
        # what was returned comes first, so it has been among these
        self._taken += len(found) if self._is_settled else 0
        if self._taken > 2 * self._query.max_in_flight:
            self.names.forget()
        return found

    @property
    def _is_settled(self) -> bool:
        """Whether everything that an earlier connection had in hand is back in the queue."""
        return asyncio.get_running_loop().time() > self._began + RETURN_SECONDS

    async def acknowledge(self, messages: list[AbstractIncomingMessage]) -> None:
        """All of them with the last: what came before was acknowledged before. The answer behind it proves it."""
        if messages:
            await messages[-1].ack(multiple=True)
            await self._ask()

    def name(self, message: AbstractIncomingMessage) -> str:
        if id := _id(message):
            return id
        parts = (message.exchange, message.routing_key, message.type, message.correlation_id, message.timestamp)
        content = "\n".join(map(str, parts)).encode(errors="replace") + b"\n" + message.body
        return self.names.name(content, message.delivery_tag or 0, redelivered=bool(message.redelivered))

    async def _ask(self) -> None:
        """Ask for the state of the queue. The server answers in the order of what we sent."""
        underlay: Any = await self._channel.get_underlay_channel()
        answer = await underlay.queue_declare(self._query.queue, passive=True, timeout=ANSWER_SECONDS)
        self._ready = answer.message_count or 0
        if self._tag not in underlay.consumers:
            raise RetryLater(f"RabbitMQ no longer delivers from the queue {self._query.queue}: it was deleted or moved")


def _id(message: AbstractIncomingMessage) -> str:
    """The id that the sender gave it, unless it is too long to be one."""
    found = message.message_id or ""
    return found if len(found) <= LONGEST_ID else ""


def _metadata(message: AbstractIncomingMessage) -> dict[str, Any]:
    return {
        "exchange": message.exchange,
        "routing_key": message.routing_key,
        "headers": {str(key)[:1_000]: _plain(value) for key, value in (message.headers or {}).items()},
        "type": message.type,
        "correlation_id": message.correlation_id,
        "content_type": message.content_type,
    }


def _plain(value: Any) -> Any:
    """A header as JSON has it."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
