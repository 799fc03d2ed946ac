"""WebSockets: what a server sends on a connection that we open (RFC 6455).

The protocol keeps nothing for who is not connected. So each new connection is a gap, unless the server can be asked to
go on after a position that its messages carry (`resume`).
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from pydantic import AfterValidator, Field, SecretStr, model_validator
from yarl import URL

from harken.errors import HarkenError, NeedsAttention, RetryLater
from harken.event import Event
from harken.http.guard import server_name
from harken.http.replies import shown_path
from harken.kit import QueryModel, dump_cursor, load_cursor
from harken.kit.stream_messages import LONGEST_NAME, MessageQuery, MessageReader
from harken.language.dotted_paths import lookup
from harken.source import Batch, Cursor, Gap, Host, Plugin, Rejected
from harken.task_cancellation import cancel_and_wait

if TYPE_CHECKING:
    from aiohttp import ClientWebSocketResponse

__all__ = ["Resume", "WebSocketQuery", "WebSocketStream", "plugin"]

POSITION = "{position}"
"""Stands for the position in the messages that ask the server to go on."""
SMALLEST_LIMIT = 4_194_304
_SCHEMES = {"ws": "http", "wss": "https", "http": "http", "https": "https"}
# close codes of RFC 6455 after which the same would come again
_POLICY, _NOT_UTF8, _TOO_LARGE = 1008, 1007, 1009


def _socket_address(value: str) -> str:
    url = URL(value)
    if url.scheme not in _SCHEMES or not url.host:
        raise ValueError("this is not the address of a WebSocket; write wss://host/path")
    return value


class Resume(QueryModel):
    """How the server is asked to go on where we were."""

    field: str = Field(min_length=1, description="dotted path of the position in a message")
    param: str = Field("", description="parameter of the address that takes the last position")
    subscribe: list[Any] = Field(
        default_factory=list, description=f"messages to send instead of subscribe:, with {POSITION} for the position"
    )

    @model_validator(mode="after")
    def _has_a_way(self) -> Resume:
        if not self.param and not self.subscribe:
            raise ValueError("name the param that takes the position, or the messages of subscribe that do")
        return self


class WebSocketQuery(MessageQuery):
    """Which address is opened, and what is said there."""

    url: Annotated[str, AfterValidator(_socket_address)] = Field(description="ws:// or wss:// address")
    headers: dict[str, SecretStr] = Field(default_factory=dict, description="headers to send; never shown again")
    protocols: list[str] = Field(default_factory=list, description="subprotocols that we speak")
    subscribe: list[Any] = Field(
        default_factory=list, description="messages to send after connecting: text as it is, anything else as JSON"
    )
    heartbeat: float = Field(5.0, ge=0.1, le=3_600, description="seconds between our pings")
    resume: Resume | None = Field(
        None, description="how the server is asked to go on; without it each new connection is a gap"
    )
    allow_private_networks: bool = Field(False, description="allow addresses in private networks")


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """What the last message said its position is; None if there was none."""

    last: str | int | float | None = None


class WebSocketStream:
    def __init__(self, query: WebSocketQuery, host: Host) -> None:
        self.silence_seconds = max(10.0, 3 * query.heartbeat)
        self._query = query
        self._host = host
        self._headers = {name: value.get_secret_value() for name, value in query.headers.items()}
        self._private = query.allow_private_networks or host.allow_private
        self._reader = MessageReader(query, "websocket.message")
        url = URL(query.url)
        # a port that is written stays; that of the scheme is the same for both
        self._url = url.with_scheme(_SCHEMES[url.scheme])
        self._server = server_name(self._url)
        self._name = f"{self._server}{shown_path(self._url)}"

    async def stream(self, cursor: Cursor) -> AsyncIterator[Batch]:
        before = load_cursor(cursor, Position) if cursor else None
        position = before or Position()
        socket = await self._open(position)
        received: asyncio.Queue[_Received] = asyncio.Queue(self._query.max_in_flight)
        tasks = [asyncio.create_task(_receive(socket, received)), asyncio.create_task(self._ping(socket))]
        own, count = secrets.token_hex(6), 0
        try:
            for message in self._greeting(position):
                await socket.send_str(message if isinstance(message, str) else msgspec.json.encode(message).decode())
            yield Batch(cursor=dump_cursor(position), gap=self._gap(before))
            while True:
                some = await _take(received, self._query.batch)
                bodies = [one for one in some if isinstance(one, bytes)]
                read = [self._event(body, f"{own}+{count + at}") for at, body in enumerate(bodies)]
                count += len(bodies)
                position = self._after(position, read)
                closed = [one for one in some if isinstance(one, _Closed)]
                if bodies or not closed:
                    yield Batch(
                        events=[one for one in read if isinstance(one, Event)],
                        rejected=[one for one in read if isinstance(one, Rejected)],
                        cursor=dump_cursor(position),
                    )
                if closed:
                    raise self._in_words(closed[0])
        except ConnectionError:
            raise RetryLater(f"the WebSocket of {self._server} broke") from None
        finally:
            await cancel_and_wait(tasks)
            await socket.close()

    async def _open(self, position: Position) -> ClientWebSocketResponse:
        resume, url = self._query.resume, self._url
        if resume and resume.param and position.last is not None:
            url = url.update_query({resume.param: str(position.last)})
        return await self._host.http.open_websocket(
            url,
            headers=self._headers,
            allow_private=self._private,
            protocols=self._query.protocols,
            # what is larger than max_bytes becomes a dead letter, so it must be received
            max_bytes=max(4 * self._query.max_bytes, SMALLEST_LIMIT),
        )

    def _greeting(self, position: Position) -> list[Any]:
        resume = self._query.resume
        if resume and resume.subscribe and position.last is not None:
            return [_filled(message, position.last) for message in resume.subscribe]
        return self._query.subscribe

    def _gap(self, before: Position | None) -> Gap | None:
        """What was lost since the connection before this one."""
        if before is None or (self._query.resume and before.last is not None):
            return None
        reason = f"a WebSocket keeps nothing, so what {self._server} sent since the last connection is lost"
        return Gap(key=f"connected {self._host.clock.now().isoformat()}", reason=reason)

    async def _ping(self, socket: ClientWebSocketResponse) -> None:
        """Ask again and again whether the server is there; its answers are received like messages."""
        while not socket.closed:
            try:
                await socket.ping()
            except ConnectionError:
                return  # whoever receives is told that the connection is closed
            await asyncio.sleep(self._query.heartbeat)

    def _event(self, body: bytes, own_name: str) -> Event | Rejected:
        event = self._reader.read(f"{self._name}@{own_name}", body)
        last = self._position_of(event)
        if last is None:
            return event
        # by its position it is known as a repeat, should the server send it again
        return self._reader.read(f"{self._name}@{last}", body, metadata={"position": last})

    def _position_of(self, event: Event | Rejected) -> str | int | float | None:
        if self._query.resume is None or isinstance(event, Rejected):
            return None
        found = lookup(event.data, self._query.resume.field)
        if isinstance(found, bool) or not isinstance(found, str | int | float) or len(str(found)) > LONGEST_NAME:
            return None
        return found

    def _after(self, position: Position, read: list[Event | Rejected]) -> Position:
        for one in reversed(read):
            last = self._position_of(one)
            if last is not None:
                return Position(last=last)
        return position

    def _in_words(self, closed: _Closed) -> HarkenError:
        message = f"{self._server} closed the WebSocket with code {closed.code}"
        if closed.code == _POLICY:
            return NeedsAttention(f"{message}: it refuses us", fix="Check the credential and what subscribe: asks for")
        if closed.code == _TOO_LARGE and self._query.resume:
            return NeedsAttention(f"{self._server} sends a message that is too large", fix="Raise max_bytes")
        if closed.code == _NOT_UTF8 and self._query.resume:
            fix = "Ask its operator to send it as a binary message"
            return NeedsAttention(f"{self._server} sends a text that is not UTF-8", fix=fix)
        return RetryLater(message)


class _Closed(msgspec.Struct, frozen=True):
    """The connection is closed, with the code that one side gave."""

    code: int


_Received = bytes | _Closed | None
"""A message; the end; or a sign of life."""


async def _receive(socket: ClientWebSocketResponse, received: asyncio.Queue[_Received]) -> None:
    from aiohttp import WSMsgType

    while True:
        message = await socket.receive()
        if message.type is WSMsgType.TEXT:
            await received.put(str(message.data).encode())
        elif message.type is WSMsgType.BINARY:
            await received.put(bytes(message.data))
        elif message.type is WSMsgType.PONG:
            await received.put(None)
        elif message.type is WSMsgType.PING:
            await _pong(socket, message.data)
        else:
            await received.put(_Closed(socket.close_code or 1006))
            return


async def _pong(socket: ClientWebSocketResponse, data: bytes) -> None:
    try:
        await socket.pong(data)
    except ConnectionError:
        return  # the next message that is received tells that the connection is closed


async def _take(received: asyncio.Queue[_Received], most: int) -> list[_Received]:
    """What has come, at least one thing."""
    found = [await received.get()]
    while len(found) < most and not received.empty():
        found.append(received.get_nowait())
    return found


def _filled(message: Any, position: str | int | float) -> Any:
    """The message with the position in its places; alone it keeps its type."""
    if isinstance(message, str):
        return position if message == POSITION else message.replace(POSITION, str(position))
    if isinstance(message, dict):
        return {key: _filled(value, position) for key, value in message.items()}
    return [_filled(value, position) for value in message] if isinstance(message, list) else message


def _stream(query: WebSocketQuery, account: object, host: Host) -> WebSocketStream:
    return WebSocketStream(query, host)


plugin = Plugin(
    kind="websocket",
    summary="What a WebSocket server sends, followed",
    docs="reference/services/websocket.md",
    stream_query=WebSocketQuery,
    stream=_stream,
    identity="change",
    first="all",
)
