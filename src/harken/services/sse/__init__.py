"""Server-sent events: one long answer of an HTTP server, followed with `Last-Event-ID` as the position.

https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

import msgspec
from pydantic import Field, SecretStr
from yarl import URL

from harken.errors import Garbled, NeedsAttention
from harken.event import Event
from harken.http import Reply, raise_for
from harken.http.error_translation import FAILURES, translate_error
from harken.http.guard import server_name
from harken.http.replies import shown_path
from harken.kit import dump_cursor, load_cursor
from harken.kit.conditional import WebAddress
from harken.kit.stream_messages import LONGEST_NAME, MessageQuery, MessageReader
from harken.services.sse.parser import Parser, ServerEvent
from harken.source import Batch, Cursor, Gap, Host, Plugin, Rejected

if TYPE_CHECKING:
    from aiohttp import ClientResponse

__all__ = ["EventStream", "SseQuery", "plugin"]

HEARTBEAT_SECONDS = 1.0
"""A server that comments all the time is not a success more often than this."""
RETRY_SECONDS, SHORTEST_RETRY, LONGEST_RETRY = 3.0, 0.2, 30.0
"""How long we wait before we connect again, unless the server says; and what it can say."""


class SseQuery(MessageQuery):
    """Which address is followed."""

    url: WebAddress = Field(description="address of the event stream (http or https)")
    headers: dict[str, SecretStr] = Field(default_factory=dict, description="headers to send; never shown again")
    silence: float = Field(
        90.0, ge=1, le=86_400, description="seconds without an event or comment after which we connect again"
    )
    allow_private_networks: bool = Field(False, description="allow addresses in private networks")


class Position(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The last id; empty if the server gave none. `incarnation` counts how often the server knew ours no more."""

    id: str = ""
    incarnation: int = 0


class EventStream:
    def __init__(self, query: SseQuery, host: Host) -> None:
        self.silence_seconds = query.silence
        self._query = query
        self._host = host
        self._headers = {name: value.get_secret_value() for name, value in query.headers.items()}
        self._private = query.allow_private_networks or host.allow_private
        self._reader = MessageReader(query, "sse.message")
        url = URL(query.url)
        self._server = server_name(url)
        self._name = f"{self._server}{shown_path(url)}"

    async def stream(self, cursor: Cursor) -> AsyncIterator[Batch]:
        position = load_cursor(cursor, Position) if cursor else None
        while True:
            response, position, gap = await self._connect(position)
            connection = _Connection(self._query, self._reader, self._name, position)
            try:
                yield Batch(cursor=dump_cursor(position), gap=gap)
                heard = self._host.clock.time()
                while chunk := await self._read(response):
                    for batch in connection.batches(chunk):
                        heard = self._host.clock.time()
                        yield batch
                    if self._host.clock.time() - heard >= HEARTBEAT_SECONDS:
                        heard = self._host.clock.time()
                        yield Batch(cursor=dump_cursor(connection.position))
            finally:
                response.close()
            position = connection.position
            # the server has ended its answer, as many do now and then: that is no failure
            yield Batch(cursor=dump_cursor(position))
            await self._host.clock.sleep(min(connection.retry_seconds, self.silence_seconds / 2))

    async def _connect(self, position: Position | None) -> tuple[ClientResponse, Position, Gap | None]:
        """The connection, where it goes on, and what was lost since."""
        response = await self._open(position.id if position else "")
        gap: Gap | None = None
        if response.status == 410 and position and position.id:
            response.close()
            reason = f"{self._server} does not know our position any more, so what it sent after it is lost"
            gap = Gap(key=f"{position.incarnation}:{position.id}", reason=reason)
            position = Position(incarnation=position.incarnation + 1)
            response = await self._open("")
        elif position and not position.id:
            reason = f"{self._server} gave no id to go on from, so what it sent since the last connection is lost"
            gap = Gap(key=f"connected {self._host.clock.now().isoformat()}", reason=reason)
        try:
            self._check(response)
        except BaseException:
            response.close()
            raise
        return response, position or Position(), gap

    async def _open(self, id: str) -> ClientResponse:
        headers = {"Accept": "text/event-stream", "Cache-Control": "no-store", **self._headers}
        if id:
            headers["Last-Event-ID"] = id
        return await self._host.http.open_stream(self._query.url, headers=headers, allow_private=self._private)

    def _check(self, response: ClientResponse) -> None:
        if response.status == 204:
            message = f"{self._server} says that nothing more will come (204)"
            raise NeedsAttention(message, fix="Remove the trigger, or correct url: and resume it")
        answered = Reply("GET", response.url, response.status, response.headers, b"", self._host.clock.time())
        raise_for(answered)
        if response.status != 200 or response.content_type != "text/event-stream":
            message = f"{self._server} does not answer with an event stream"
            raise Garbled(message, fix="Check url: its answer must be of type text/event-stream")

    async def _read(self, response: ClientResponse) -> bytes:
        """What has come; nothing at the end."""
        try:
            return await response.content.readany()
        except FAILURES as error:
            raise translate_error(error, response.url, self.silence_seconds, private=self._private) from None


class _Connection:
    """Makes batches of what came on one connection. `position` is that of the last batch."""

    def __init__(self, query: SseQuery, reader: MessageReader, name: str, position: Position) -> None:
        self.position = position
        self._reader = reader
        self._name = name
        self._most = query.batch
        self._wants_metadata = query.metadata
        self._parser = Parser(query.max_bytes, position.id)
        # events without an id have no name that a later connection could know
        self._own, self._unnamed = secrets.token_hex(6), 0

    @property
    def retry_seconds(self) -> float:
        wanted = self._parser.retry_ms
        return RETRY_SECONDS if wanted is None else min(max(wanted / 1_000, SHORTEST_RETRY), LONGEST_RETRY)

    def batches(self, chunk: bytes) -> Iterator[Batch]:
        found = self._parser.feed(chunk)
        for first in range(0, len(found), self._most):
            some = found[first : first + self._most]
            read = [self._event(event) for event in some if event.data is not None]
            self.position = msgspec.structs.replace(self.position, id=_position(some[-1].id, self._name))
            yield Batch(
                events=[one for one in read if isinstance(one, Event)],
                rejected=[one for one in read if isinstance(one, Rejected)],
                cursor=dump_cursor(self.position),
            )

    def _event(self, event: ServerEvent) -> Event | Rejected:
        if event.has_id and event.id:
            before = f"{self.position.incarnation}:" if self.position.incarnation else ""
            name = f"{self._name}@{before}{event.id[:LONGEST_NAME]}"
        else:
            self._unnamed += 1
            name = f"{self._name}@{self._own}+{self._unnamed}"
        metadata = {"event": event.name or "message", "id": event.id} if self._wants_metadata else None
        return self._reader.read(name, event.data or b"", type=event.name, metadata=metadata)


def _position(id: str, name: str) -> str:
    if len(id) > LONGEST_NAME:
        message = f"{name} sends ids of more than {LONGEST_NAME:,} characters"
        raise NeedsAttention(message, fix="Ask its operator for shorter ones")
    return id


def _stream(query: SseQuery, account: object, host: Host) -> EventStream:
    return EventStream(query, host)


plugin = Plugin(
    kind="sse",
    summary="Server-sent events of an HTTP server, followed",
    docs="reference/services/sse.md",
    stream_query=SseQuery,
    stream=_stream,
    identity="change",
    first="all",
)
