"""Redis Streams: followed by position (XREAD), so that several programs can read one stream, and published to.

Each entry's id is its position. What was deleted before we read it (XTRIM, MAXLEN) is found by comparing our position
with what the stream still has, and by counting how many entries it ever had: https://redis.io/docs/latest/commands/xinfo-stream/
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec
from pydantic import Field, SecretStr

from harken.clock import from_unix
from harken.errors import NeedsAttention, RetryLater
from harken.event import Event
from harken.extras import how_to_install
from harken.kit import AccountModel, ParamsModel
from harken.kit.stream_messages import MessageQuery, MessageReader
from harken.source import Act, Batch, Call, Cursor, Gap, Host, Lag, Located, Place, Plugin, Rejected

if TYPE_CHECKING:
    from redis.asyncio import Redis

__all__ = ["RedisAccount", "RedisStream", "RedisStreamQuery", "plugin"]

WAIT_MS = 2_000
"""How long one request waits for something new: so often we hear that the server is there."""
ANSWER_SECONDS = 10.0
BEGIN = "0-0"
LAST_SEQUENCE = 2**64 - 1
"""The highest that an id can have behind its milliseconds."""
ID = re.compile(r"[0-9]{1,20}-[0-9]{1,20}")


class RedisAccount(AccountModel):
    """The server, as redis:// or rediss:// with user, password and database."""

    url: SecretStr = Field(description="redis://user:password@host:6379/0; rediss:// for TLS")


class RedisStreamQuery(MessageQuery):
    """Which stream is followed, and from where."""

    stream: str = Field(min_length=1, description="the key of the stream")
    start: str = Field("new", pattern="^(new|all)$", description="a first read begins with what is new, or with all")
    field: str = Field("", description="the field of an entry that has the message; else the entry itself is one")


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """The last entry that was read, and how many entries the stream had ever had by then."""

    id: str
    added: int


class RedisStream:
    silence_seconds = 30.0

    def __init__(self, query: RedisStreamQuery, account: RedisAccount) -> None:
        self._query = query
        self._url = account.url.get_secret_value()
        self._reader = MessageReader(query, "redis.message")

    async def stream(self, cursor: Cursor) -> AsyncIterator[Batch]:
        from redis.exceptions import RedisError

        client = _client(self._url)
        try:
            position, gap = await self._begin(client, msgspec.convert(cursor, Position) if cursor else None)
            yield Batch(cursor=msgspec.to_builtins(position), gap=gap)
            while True:
                position, batch = await self._read(client, position)
                yield batch
        except (RedisError, OSError, ValueError) as error:
            raise _in_words(error, self._url, self._query.stream) from error
        finally:
            await client.aclose()

    def place_of(self, key: str, cursor: Cursor) -> Place:
        stream, _, id = key.rpartition("@")
        if cursor is None or stream != self._query.stream or not ID.fullmatch(id):
            return "unknown"
        if _number(id) > _number(msgspec.convert(cursor, Position).id):
            return "ahead"
        # with id_field its event has another name
        return "unknown" if self._query.id_field else "behind"

    @property
    def begins_with_new(self) -> bool:
        return self._query.start == "new"

    async def locate(self, at: datetime, cursor: Cursor) -> Located:
        from redis.exceptions import RedisError

        client = _client(self._url)
        try:
            return await self._locate(client, at, msgspec.convert(cursor, Position) if cursor else None)
        except (RedisError, OSError, ValueError) as error:
            raise _in_words(error, self._url, self._query.stream) from error
        finally:
            await client.aclose()

    async def _locate(self, client: Redis, at: datetime, ours: Position | None) -> Located:
        info = await self._info(client)
        if info is None:
            return Located(cursor=msgspec.to_builtins(Position(id=BEGIN, added=0)), messages=0, oldest=True)
        added, last = int(info["entries-added"]), _text(info["last-generated-id"])
        milliseconds = int(at.timestamp() * 1_000)
        before = f"{milliseconds - 1}-{LAST_SEQUENCE}" if milliseconds > 0 else BEGIN
        # an id behind the last one would look as if the stream had been created anew
        before = min(before, last, key=_number)
        count = await self._count(client, before, last)
        waiting = max(0, added - ours.added) if ours is not None else 0
        return Located(
            cursor=msgspec.to_builtins(Position(id=before, added=added - count)),
            messages=count,
            again=max(0, count - waiting),
            skipped=max(0, waiting - count),
            oldest=count == int(info["length"]),
        )

    async def _begin(self, client: Redis, position: Position | None) -> tuple[Position, Gap | None]:
        """Where to read on, and what was deleted since then."""
        info = await self._info(client)
        if info is None:
            if position is None or not position.added:
                return Position(id=BEGIN, added=0), None
            return Position(id=BEGIN, added=0), self._recreated(position)
        added, last = int(info["entries-added"]), _text(info["last-generated-id"])
        if position is None:
            skipped = self._query.start == "new"
            return Position(
                id=last if skipped else BEGIN, added=added if skipped else added - int(info["length"])
            ), None
        if added < position.added or _number(last) < _number(position.id):
            return Position(id=BEGIN, added=added - int(info["length"])), self._recreated(position)
        lost = added - position.added - await self._count(client, position.id, last)
        if lost < 0:
            # more entries than were ever added since: they are those of another stream
            return Position(id=BEGIN, added=added - int(info["length"])), self._recreated(position)
        if not lost:
            return position, None
        reason = f"{lost:,} entries of {self._query.stream} after {position.id} were deleted before they were read"
        gap = Gap(key=f"{position.id}+{lost}", reason=reason, messages=lost)
        return Position(id=position.id, added=position.added + lost), gap

    def _recreated(self, position: Position) -> Gap:
        reason = f"{self._query.stream} was deleted or created anew; what it had after {position.id} is not known"
        return Gap(key=f"anew after {position.id}", reason=reason)

    async def _count(self, client: Redis, after: str, last: str) -> int:
        """How many entries after this position the stream has, up to the last one that it had a moment ago."""
        count, begin = 0, after
        while True:
            entries: Any = await client.xrange(self._query.stream, min=f"({begin}", max=last, count=10_000)
            if not entries:
                return count
            count, begin = count + len(entries), _text(entries[-1][0])

    async def _info(self, client: Redis) -> Mapping[str, Any] | None:
        from redis.exceptions import ResponseError

        try:
            found: Mapping[str, Any] = await client.xinfo_stream(self._query.stream)
        except ResponseError as error:
            if "no such key" in str(error):
                return None
            raise
        return found

    async def _read(self, client: Redis, position: Position) -> tuple[Position, Batch]:
        entries = await self._entries(client, position)
        info = await self._info(client)
        added = int(info["entries-added"]) if info else 0
        if not entries:
            if added < position.added:
                raise RetryLater(f"the stream {self._query.stream} is not the one that was followed")
            return position, Batch(cursor=msgspec.to_builtins(position), lag=Lag(messages=0, seconds=0.0))
        read = [self._event(id, fields) for id, fields in entries]
        last = Position(id=_text(entries[-1][0]), added=position.added + len(entries))
        batch = Batch(
            events=[one for one in read if isinstance(one, Event)],
            rejected=[one for one in read if isinstance(one, Rejected)],
            cursor=msgspec.to_builtins(last),
            lag=Lag(messages=max(0, added - last.added), read_to=_time(last.id)),
        )
        return last, batch

    async def _entries(self, client: Redis, position: Position) -> list[Any]:
        """Entries after the position; none when nothing came within the wait."""
        found: Any = await client.xread({self._query.stream: position.id}, count=self._query.batch, block=WAIT_MS)
        if not found:
            return []
        # a list of streams, or a mapping from stream to entries in the newer protocol
        return list(found[0][1] if isinstance(found, list) else next(iter(found.values()))[0])

    def _event(self, id: bytes, fields: Mapping[bytes, bytes]) -> Event | Rejected:
        name = f"{self._query.stream}@{_text(id)}"
        at = _time(_text(id))
        if not self._query.field:
            if b"data" in fields and len(fields) == 1:
                return self._reader.read(name, fields[b"data"], at=at)
            entry = {key.decode(errors="replace"): value.decode(errors="replace") for key, value in fields.items()}
            return self._reader.read(name, msgspec.json.encode(entry), at=at)
        body = fields.get(self._query.field.encode())
        if body is None:
            return self._reader.reject(name, b"", f"it has no field {self._query.field!r} (field)", at=at)
        return self._reader.read(name, body, at=at)


class Entry(ParamsModel):
    """An entry to add to a stream."""

    stream: str = Field(min_length=1, description="the key of the stream")
    data: Any = Field(description="what to send; JSON in the field `data`")
    max_length: int = Field(0, ge=0, description="about how many entries the stream may keep; 0 for all")


async def _publish(call: Call) -> Any:
    """Add an entry. A repeat of the same step adds it again under the same `key`, as Redis has no way to refuse it."""
    from redis.exceptions import RedisError

    params: Entry = call.params
    url = call.account.url.get_secret_value()
    client = _client(url)
    fields: dict[Any, Any] = {"data": msgspec.json.encode(params.data), "key": call.idempotency_key}
    try:
        id = await client.xadd(params.stream, fields, maxlen=params.max_length or None)
    except (RedisError, OSError, ValueError) as error:
        raise _in_words(error, url, params.stream) from error
    finally:
        await client.aclose()
    return {"id": _text(id), "stream": params.stream}


def _client(url: str) -> Redis:
    try:
        from redis.asyncio import Redis
    except ImportError:
        raise NeedsAttention("the driver for Redis is missing", fix=how_to_install("redis")) from None
    return Redis.from_url(url, socket_connect_timeout=5.0, socket_timeout=ANSWER_SECONDS)


def _in_words(error: Exception, url: str, stream: str) -> Exception:
    from redis.exceptions import AuthenticationError, AuthorizationError, NoPermissionError, ResponseError, TimeoutError

    where = _address(url)
    if isinstance(error, (AuthenticationError, AuthorizationError)):
        return NeedsAttention(f"Redis at {where} refused the user or password", fix="Correct url: of the integration")
    if isinstance(error, NoPermissionError):
        return NeedsAttention(f"this user of Redis at {where} may not read {stream}", fix="Grant XREAD and XINFO")
    if isinstance(error, ResponseError) and "WRONGTYPE" in str(error):
        return NeedsAttention(f"{stream} is not a stream in Redis at {where}", fix="Name another key in stream:")
    if isinstance(error, TimeoutError):
        return RetryLater(f"Redis at {where} did not answer", reason="timeout")
    if isinstance(error, ValueError):
        return NeedsAttention("the address of Redis is not one", fix="Write url: redis://host:6379/0")
    return RetryLater(f"Redis at {where} cannot be reached")


def _address(url: str) -> str:
    """Host and port, without the password."""
    parts = urlsplit(url)
    return f"{parts.hostname}:{parts.port or 6379}"


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _number(id: str) -> tuple[int, int]:
    milliseconds, _, sequence = id.partition("-")
    return int(milliseconds), int(sequence or 0)


def _time(id: str) -> datetime:
    """When the server added the entry, or when its sender says so."""
    return from_unix(_number(id)[0] / 1_000)


def _stream(query: RedisStreamQuery, account: RedisAccount, host: Host) -> RedisStream:
    return RedisStream(query, account)


plugin = Plugin(
    kind="redis",
    summary="Redis Streams, followed and published to",
    docs="reference/services/redis.md",
    account=RedisAccount,
    stream_query=RedisStreamQuery,
    stream=_stream,
    actions={"publish": Act(params=Entry, run=_publish)},
    identity="change",
    first="all",
    environment={"REDIS_URL": "url"},
    extra=lambda query, account: "redis",
)
