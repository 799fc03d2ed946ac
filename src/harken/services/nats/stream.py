"""A JetStream stream, followed by a durable pull consumer: https://docs.nats.io/nats-concepts/jetstream/consumers

The consumer knows what was acknowledged, the cursor what was committed. When the connection is made the two are
compared, and the stream with the one that was followed before.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec
from pydantic import Field

from harken.errors import NeedsAttention, Refused, RetryLater
from harken.event import Event
from harken.kit.stream_messages import MessageQuery, MessageReader
from harken.kit.values_from_payload import instant
from harken.services.nats.connection import ANSWER_SECONDS, NatsAccount, connected
from harken.services.nats.pull import WAIT_SECONDS, Pulls
from harken.source import Batch, Cursor, Gap, Lag, Located, Place, Rejected

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.js.api import ConsumerInfo, StreamInfo

__all__ = ["NatsQuery", "NatsStream"]

HOLD_SECONDS = 15.0
RESETS = (2, 14)
"""Since this version a server can set a consumer back."""
DESCRIPTION = "Harken"
"""By this a consumer is known as one that we have made."""
NAME = r"^[^\s.*>/\\]+$"
MESSAGE = re.compile(r"(?P<stream>[^@]+)@(?P<seq>[0-9]{1,19})-(?P<at>[0-9]{1,15})")
"""How messages are named."""


class NatsQuery(MessageQuery):
    """Which stream is followed, and from where."""

    stream: str = Field(min_length=1, max_length=200, pattern=NAME, description="the name of the stream")
    subject: str = Field("", pattern=r"^\S*$", description="only messages with such a subject, such as orders.*")
    consumer: str = Field("", max_length=200, pattern=f"^$|{NAME}", description="durable consumer; else one of our own")
    start: str = Field("new", pattern="^(new|all)$", description="a first read begins with what is new, or with all")


class Position(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The last sequence that was read, and when its stream was created. `moved`: the consumer is not there yet."""

    created: str
    seq: int
    moved: bool = False


class NatsStream:
    silence_seconds = 30.0

    def __init__(
        self, query: NatsQuery, account: NatsAccount, feed: str = "", *, hold_seconds: float = HOLD_SECONDS
    ) -> None:
        self._query = query
        self._account = account
        self._consumer = query.consumer or _consumer_name(feed)
        self._reader = MessageReader(query, "nats.message")
        self.hold_seconds = hold_seconds
        self._in_hand: list[Msg] = []

    def place_of(self, key: str, cursor: Cursor) -> Place:
        named = MESSAGE.fullmatch(key)
        if cursor is None or named is None or named["stream"] != self._query.stream:
            return "unknown"
        position = msgspec.convert(cursor, Position)
        created = instant(position.created)
        if created is None or int(named["at"]) < int(created.timestamp() * 1_000):
            # it was in another stream of this name
            return "unknown"
        if int(named["seq"]) > position.seq:
            return "ahead"
        # with id_field its event has another name
        return "unknown" if self._query.id_field else "behind"

    async def stream(self, cursor: Cursor) -> AsyncIterator[Batch]:
        before = msgspec.convert(cursor, Position) if cursor else None
        self._in_hand = []
        async with connected(self._account, f"stream {self._query.stream}") as client:
            position, gap = await self._begin(client, before)
            yield Batch(cursor=msgspec.to_builtins(position), gap=gap)
            async for _ in self._wait_for_unacknowledged(client):
                yield Batch(cursor=msgspec.to_builtins(position))
            pulls = await Pulls.opened(client, self._query.stream, self._consumer)
            while True:
                position, batch = await self._read(client, pulls, position)
                yield batch
                await self._acknowledge()

    @property
    def begins_with_new(self) -> bool:
        return self._query.start == "new"

    async def locate(self, at: datetime, cursor: Cursor) -> Located:
        from nats.js.api import RetentionPolicy

        ours = msgspec.convert(cursor, Position) if cursor else None
        async with connected(self._account, f"stream {self._query.stream}") as client:
            info = await client.jetstream(timeout=ANSWER_SECONDS).stream_info(self._query.stream)
            if info.config.retention != RetentionPolicy.LIMITS:
                reason = f"{self._query.stream} forgets what its consumers have acknowledged ({info.config.retention})"
                raise Refused(reason, fix="Only streams with the retention limits keep what was read")
            consumer = await self._find_consumer(client)
            if consumer is not None and consumer.config.description != DESCRIPTION:
                reason = f"the consumer {self._consumer} of {self._query.stream} was not made by Harken"
                raise Refused(reason, fix="Leave out consumer:, and Harken makes one of its own")
            seq, pending = await self._find_time(client, at)
        place = Position(created=_created(info), seq=seq, moved=True)
        way = ours.seq - seq if ours is not None and ours.created == place.created else 0
        if consumer is not None and self._query.subject:
            # of a subject only the server knows how many there are
            way = pending - (consumer.num_pending or 0) - (consumer.num_ack_pending or 0)
        return Located(
            cursor=msgspec.to_builtins(place),
            messages=pending,
            again=max(0, way),
            skipped=max(0, -way),
            oldest=seq <= _before_first(info),
        )

    async def _find_time(self, client: Client, at: datetime) -> tuple[int, int]:
        """The sequence before the first message of that time, and how many come after it.

        Only a consumer can be asked: one that reads nothing, and that the server forgets by itself if we cannot."""
        from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

        js = client.jetstream(timeout=ANSWER_SECONDS)
        config = ConsumerConfig(
            deliver_policy=DeliverPolicy.BY_START_TIME,
            opt_start_time=at,
            ack_policy=AckPolicy.NONE,
            filter_subject=self._query.subject or None,
            inactive_threshold=ANSWER_SECONDS,
            mem_storage=True,
        )
        found = await js.add_consumer(self._query.stream, config)
        await js.delete_consumer(self._query.stream, found.name)
        return (found.delivered.stream_seq if found.delivered else 0), found.num_pending or 0

    async def hold(self) -> None:
        """Tell the server that the messages in hand are being worked on."""
        from nats.errors import Error

        try:
            for message in self._in_hand:
                await message.in_progress()
        except (Error, OSError) as error:
            raise RetryLater("the connection to NATS ended while the store was away") from error

    async def _acknowledge(self) -> None:
        """Messages are acknowledged in their order, so the answer to the last one is that to all."""
        for message in self._in_hand[:-1]:
            await message.ack()
        for message in self._in_hand[-1:]:
            await message.ack_sync(timeout=ANSWER_SECONDS)
        self._in_hand = []

    async def _begin(self, client: Client, before: Position | None) -> tuple[Position, Gap | None]:
        """Where to read on, and what was lost since then. The consumer is made, or brought to that place."""
        js = client.jetstream(timeout=ANSWER_SECONDS)
        info = await js.stream_info(self._query.stream)
        consumer = await self._find_consumer(client)
        position, gap = self._compare(before, info) if before else (self._first(info, consumer), None)
        if consumer is not None and before is not None and before.moved and consumer.config.description == DESCRIPTION:
            # a consumer cannot be brought before the place where it began
            await js.delete_consumer(self._query.stream, self._consumer)
            consumer = None
        position = msgspec.structs.replace(position, moved=False)
        if consumer is None:
            await self._create_consumer(client, info, position.seq + 1)
        elif _floor(consumer) > position.seq or consumer.num_ack_pending:
            position, gap = await self._set_back(client, consumer, position, gap)
        return position, gap

    def _first(self, info: StreamInfo, consumer: ConsumerInfo | None) -> Position:
        """Where a first read begins. A consumer that is there already has gone on counting for us."""
        if consumer is not None:
            seq = _floor(consumer)
        else:
            seq = info.state.last_seq if self._query.start == "new" else _before_first(info)
        return Position(created=_created(info), seq=seq)

    def _compare(self, before: Position, info: StreamInfo) -> tuple[Position, Gap | None]:
        """Our position in this stream, and what was deleted since then."""
        name = self._query.stream
        if _created(info) != before.created or info.state.last_seq < before.seq:
            reason = f"{name} was created anew; what it had after {before.seq} is not known"
            gap = Gap(key=f"anew after {before.created} {before.seq}", reason=reason)
            return Position(created=_created(info), seq=_before_first(info)), gap
        return self._after_deleted(before, info)

    def _after_deleted(self, before: Position, info: StreamInfo) -> tuple[Position, Gap | None]:
        lost = _before_first(info) - before.seq
        if lost <= 0:
            return before, None
        position = Position(created=before.created, seq=before.seq + lost)
        if not self._query.subject:
            reason = f"{lost:,} messages of {self._query.stream} after {before.seq} were deleted before they were read"
            return position, Gap(key=f"{before.seq}+{lost}", reason=reason, messages=lost)
        if info.config.retention != "limits":
            # messages of other subjects are deleted when their own readers have acknowledged them
            return position, None
        reason = (
            f"{lost:,} messages of {self._query.stream} after {before.seq} were deleted before they were read; "
            f"which of them had the subject {self._query.subject} is not known"
        )
        return position, Gap(key=f"{before.seq}+{lost}", reason=reason)

    async def _find_consumer(self, client: Client) -> ConsumerInfo | None:
        """The durable consumer, with our deadline and limits; None if there is none yet."""
        from nats.js.api import AckPolicy
        from nats.js.errors import NotFoundError

        js = client.jetstream(timeout=ANSWER_SECONDS)
        try:
            found: ConsumerInfo = await js.consumer_info(self._query.stream, self._consumer)
        except NotFoundError:
            return None
        config = found.config
        if config.deliver_subject or config.ack_policy != AckPolicy.EXPLICIT:
            reason = (
                f"the consumer {self._consumer} of {self._query.stream} does not pull with explicit acknowledgements"
            )
            raise NeedsAttention(reason, fix="Name another one in consumer:")
        wanted = self._settings()
        if all(getattr(config, name) == value for name, value in wanted.items()):
            return found
        return await js.add_consumer(self._query.stream, config.evolve(**wanted))

    async def _create_consumer(self, client: Client, info: StreamInfo, start: int) -> None:
        from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, RetentionPolicy

        # a work queue has only what nobody has acknowledged, and NATS insists on all of it
        everything = info.config.retention == RetentionPolicy.WORK_QUEUE
        config = ConsumerConfig(
            durable_name=self._consumer,
            description=DESCRIPTION,
            deliver_policy=DeliverPolicy.ALL if everything else DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=None if everything else start,
            ack_policy=AckPolicy.EXPLICIT,
            **self._settings(),
        )
        await client.jetstream(timeout=ANSWER_SECONDS).add_consumer(self._query.stream, config)

    def _settings(self) -> dict[str, Any]:
        return {
            "ack_wait": self.hold_seconds,
            # a message is never given up by the server: what cannot be read becomes our dead letter
            "max_deliver": -1,
            "max_ack_pending": self._query.max_in_flight,
            "filter_subject": self._query.subject or None,
        }

    async def _set_back(
        self, client: Client, consumer: ConsumerInfo, position: Position, gap: Gap | None
    ) -> tuple[Position, Gap | None]:
        """Have everything that is not committed delivered anew, at once and in its order."""
        from nats.js.errors import BadRequestError

        ahead = _floor(consumer) - position.seq
        version = client.connected_server_version
        if (version.major, version.minor) >= RESETS:
            js = client.jetstream(timeout=ANSWER_SECONDS)
            try:
                await js.reset_consumer(self._query.stream, self._consumer, position.seq + 1 if ahead > 0 else None)
            except BadRequestError:
                # a consumer that somebody else made may not go back so far
                pass
            else:
                return position, gap
        if ahead <= 0 or self._query.subject:
            return position, gap
        reason = f"{ahead:,} messages after {position.seq} were acknowledged by somebody else as {self._consumer}"
        lost = Gap(key=f"{position.seq} acknowledged +{ahead}", reason=reason, messages=ahead)
        return Position(created=position.created, seq=position.seq + ahead), gap or lost

    async def _wait_for_unacknowledged(self, client: Client) -> AsyncIterator[None]:
        """Wait until messages that were in other hands are due again, so that none overtakes them."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self.hold_seconds
        js = client.jetstream(timeout=ANSWER_SECONDS)
        while (await js.consumer_info(self._query.stream, self._consumer)).num_ack_pending and loop.time() < until:
            yield
            await asyncio.sleep(min(WAIT_SECONDS, self.hold_seconds / 2))

    async def _read(self, client: Client, pulls: Pulls, position: Position) -> tuple[Position, Batch]:
        messages = await pulls.fetch(min(self._query.batch, self._query.max_in_flight))
        if not messages:
            position = await self._pass_over(client, position)
            return position, Batch(cursor=msgspec.to_builtins(position), lag=Lag(messages=0, seconds=0.0))
        self._in_hand = messages
        position, gap = await self._skip_deleted(client, position, messages[0].metadata.sequence.stream)
        last = max(position.seq, *(message.metadata.sequence.stream for message in messages))
        position = Position(created=position.created, seq=last)
        read = [self._event(message) for message in messages]
        batch = Batch(
            events=[one for one in read if isinstance(one, Event)],
            rejected=[one for one in read if isinstance(one, Rejected)],
            cursor=msgspec.to_builtins(position),
            gap=gap,
            lag=Lag(messages=messages[-1].metadata.num_pending, read_to=messages[-1].metadata.timestamp),
        )
        return position, batch

    async def _pass_over(self, client: Client, position: Position) -> Position:
        """Nothing waits for us. With a subject, all that the stream has is of others: their end is no loss of ours."""
        if not self._query.subject:
            return position
        js = client.jetstream(timeout=ANSWER_SECONDS)
        info = await js.stream_info(self._query.stream)
        consumer = await js.consumer_info(self._query.stream, self._consumer)
        if consumer.num_pending or consumer.num_ack_pending:
            return position
        return Position(created=position.created, seq=max(position.seq, info.state.last_seq))

    async def _skip_deleted(self, client: Client, position: Position, first: int) -> tuple[Position, Gap | None]:
        """What was deleted while we followed, because we are too slow."""
        if self._query.subject or first <= position.seq + 1:
            return position, None
        info = await client.jetstream(timeout=ANSWER_SECONDS).stream_info(self._query.stream)
        if info.config.retention != "limits" or _before_first(info) <= position.seq:
            return position, None
        lost = min(first - 1, _before_first(info)) - position.seq
        reason = f"{lost:,} messages of {self._query.stream} after {position.seq} were deleted before they were read"
        return position, Gap(key=f"{position.seq}+{lost}", reason=reason, messages=lost)

    def _event(self, message: Msg) -> Event | Rejected:
        about = message.metadata
        # sequences begin again in a stream that is created anew, and the time tells the two apart
        name = f"{self._query.stream}@{about.sequence.stream}-{int(about.timestamp.timestamp() * 1_000)}"
        metadata = _metadata(message) if self._query.metadata else None
        return self._reader.read(name, message.data, about=message.subject, at=about.timestamp, metadata=metadata)


def _metadata(message: Msg) -> dict[str, Any]:
    headers = {str(key): str(value) for key, value in (message.headers or {}).items()}
    return {"subject": message.subject, "sequence": message.metadata.sequence.stream, "headers": headers}


def _consumer_name(feed: str) -> str:
    """A name that NATS takes, and no other feed has."""
    digest = hashlib.sha256(feed.encode()).hexdigest()[:8]
    return f"harken-{re.sub(r'[^A-Za-z0-9_-]', '_', feed)[:60]}-{digest}"


def _created(info: StreamInfo) -> str:
    return info.created.isoformat() if info.created else ""


def _before_first(info: StreamInfo) -> int:
    return max(info.state.first_seq, 1) - 1


def _floor(consumer: ConsumerInfo) -> int:
    """Everything up to here was acknowledged."""
    return consumer.ack_floor.stream_seq if consumer.ack_floor else 0
