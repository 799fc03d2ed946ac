"""One HTTP connection: uvicorn's protocol, within the limits of the listener, and with its writes joined."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from harken.app.connection_limits import ConnectionTable, Limits, Phase, Place
from harken.app.refused_connections import RefusedConnections, RefusedFor
from harken.ingest.webhook import CLOSED, PREFIX

__all__ = ["MAX_BUFFERED", "MAX_HEAD", "Connections", "Corked", "LimitedProtocol"]

MAX_BUFFERED = 65_536
"""Bytes that are buffered at most, so that a stream does not outrun its reader."""
MAX_HEAD = 65_536
"""Bytes of a request line with its headers, and of anything else that the parser has to keep before it can go on.

The parser appends what it is given to the header that it has, so an endless one would cost the square of its length.
After another request in the same packet, a head may have up to twice as many.
"""
MAX_PIPELINED = 16
"""Requests that may wait on one connection for the answers to those before them."""
MAX_DISCARDED = 1_000_000
"""Bytes that a refused peer may go on to send while it is given the time to read why."""

TEXTS = {
    400: "this is not HTTP",
    408: "the request did not come in time",
    431: f"the head of a request has at most {MAX_HEAD} bytes",
    503: "there are too many connections; try again",
}


class Connections:
    """The connections of all listeners of the process, and what was refused."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.table: ConnectionTable[LimitedProtocol] = ConnectionTable(limits or Limits())
        self.refused = RefusedConnections()

    def close_overdue(self, now: float) -> None:
        """End the connections whose time is over; to be called every `Limits.round_seconds`."""
        for place in self.table.overdue(now):
            place.connection.expire(place.phase)


class Corked:
    """A transport that joins the writes of one turn of the event loop into one; all else is passed through."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._waiting: list[bytes] = []
        self._size = 0

    def write(self, data: bytes) -> None:
        if not self._waiting:
            self._loop.call_soon(self._flush)
        self._waiting.append(data)
        self._size += len(data)
        if self._size > MAX_BUFFERED:
            self._flush()

    def write_eof(self) -> None:
        self._flush()
        self._transport.write_eof()

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def _flush(self) -> None:
        if not self._waiting:
            return
        joined = b"".join(self._waiting)
        self._waiting.clear()
        self._size = 0
        if not self._transport.is_closing():
            self._transport.write(joined)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class LimitedProtocol(HttpToolsProtocol):
    """Tells the table what its connection waits for, and ends it when a limit or a deadline is passed.

    A listener of the API may use the reserve: a connection there gets everything but webhooks.
    """

    def __init__(self, connections: Connections, *, of_api: bool, **options: Any) -> None:
        super().__init__(**options)
        self._refused = connections.refused
        self._table = connections.table
        self._of_api = of_api
        self._place: Place[LimitedProtocol] | None = None
        # bytes that the parser took since it last got anywhere
        self._unparsed = 0
        self._progress = False
        # whether there was a request yet, whether one is being read, and whether its head is complete
        self._used = False
        self._begun = False
        self._headed = False
        # requests whose head is complete, and whose answer is not
        self._unanswered = 0
        self._write_paused = False
        self._deaf = False
        self._discarded = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        corked: Any = Corked(transport, self.loop)  # type: ignore[arg-type]
        super().connection_made(corked)
        admission = self._table.admit(self, self._address, self.loop.time(), may_use_reserve=self._of_api)
        self._place = admission.place
        if admission.closed is not None:
            admission.closed.connection.make_room("address" if admission.limit == "address" else "connections")
        if admission.place is None:
            self._note("address" if admission.limit == "address" else "connections")
            self._deaf = True
            self._write_answer(503)
            self.transport.close()
        elif admission.place.in_reserve:
            self.app = self._without_webhooks(self.app)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._place is not None:
            self._table.remove(self._place)
            self._place = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            self._discard(data)
            return
        while len(data) > MAX_HEAD - self._unparsed:
            # in parts, so that a long head is noticed before it is long
            room = MAX_HEAD - self._unparsed
            if room == 0:
                self._refuse(431, "head_too_large")
                return
            if not self._parse(data[:room]):
                return
            data = data[room:]
        self._parse(data)
        self._settle()

    def _parse(self, data: bytes) -> bool:
        """Whether the connection is read on."""
        self._progress = False
        super().data_received(data)
        self._unparsed = 0 if self._progress else self._unparsed + len(data)
        return not self._deaf

    def on_message_begin(self) -> None:
        self._begun = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        if self._deaf:
            return
        if self._unanswered >= MAX_PIPELINED:
            # those before it are answered, and then the connection is closed
            self._note("pipelined")
            self._deaf = True
            super().shutdown()
            return
        super().on_headers_complete()
        self._progress = self._headed = self._used = True
        self._unanswered += 1

    def on_chunk_header(self) -> None:
        if not self._unanswered and not self._deaf:
            # it was answered before its end, and chunks may cost more to parse than to send
            self._linger()

    def on_body(self, body: bytes) -> None:
        if not self._deaf:
            self._progress = True
            super().on_body(body)

    def on_message_complete(self) -> None:
        if not self._deaf:
            self._progress = True
            self._begun = self._headed = False
            super().on_message_complete()

    def on_response_complete(self) -> None:
        self._unanswered -= 1
        super().on_response_complete()
        if self.transport.is_closing():
            # it ends when the peer has read everything
            self._move("stalled")
        else:
            self._settle()

    def pause_writing(self) -> None:
        self._write_paused = True
        super().pause_writing()
        self._settle()

    def resume_writing(self) -> None:
        self._write_paused = False
        super().resume_writing()
        self._settle()

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, "malformed")

    def shutdown(self) -> None:
        """The server stops: a peer that was refused has had its answer."""
        if self._place is not None and self._place.phase == "lingering":
            self.transport.abort()
        else:
            super().shutdown()

    def expire(self, phase: Phase) -> None:
        """The connection took too long for this phase."""
        if phase == "idle":
            self.transport.close()
        elif phase == "head" and not (self._begun or self._unparsed):
            self._note("head_timeout")
            self.transport.close()
        elif phase == "head":
            self._refuse(408, "head_timeout")
        elif phase == "body" and self._unanswered:
            self._refuse(408, "body_timeout")
        else:
            if phase == "stalled":
                self._note("not_reading")
            self.transport.abort()

    def make_room(self, limit: RefusedFor) -> None:
        """End the connection, because a newer one needs its place."""
        place, self._place = self._place, None
        if place is not None and place.phase not in ("idle", "lingering"):
            self._note(limit)
        if self._headed:
            self._end_body("newer connections needed its place before its body was complete")
        self._deaf = True
        self.transport.abort()

    def _refuse(self, status: int, reason: RefusedFor) -> None:
        """Read no more, and answer the request that is being read."""
        self._note(reason)
        self._deaf = True
        if self._unanswered > self._headed:
            # the answers to earlier requests come first, so this one gets none
            super().shutdown()
            return
        if self._headed:
            if self.cycle.response_started:
                self.transport.abort()
                return
            self._end_body(TEXTS[status])
        self._write_answer(status)
        self._linger()

    def _linger(self) -> None:
        """Read no more, but let the peer have what was written: closing at once would reset the connection."""
        self._deaf = True
        self.transport.write_eof()
        self._move("lingering")

    def _end_body(self, reason: str) -> None:
        """Let the application, which waits for the body or is about to answer, know that the peer has gone, and why."""
        scope: Any = self.scope
        scope[CLOSED] = reason
        self.cycle.disconnected = True
        self.cycle.message_event.set()

    def _write_answer(self, status: int) -> None:
        headers, body = _answer(status)
        lines = b"".join(b"%b: %b\r\n" % header for header in (*self.server_state.default_headers, *headers))
        self.transport.write(b"HTTP/1.1 %d %b\r\n%b\r\n%b" % (status, HTTPStatus(status).phrase.encode(), lines, body))

    def _discard(self, data: bytes) -> None:
        self._discarded += len(data)
        if self._discarded > MAX_DISCARDED:
            self.transport.abort()

    def _without_webhooks(self, app: Any) -> Any:
        async def reserved(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "http" and scope["path"].startswith(PREFIX):
                self._note("connections")
                headers, body = _answer(503)
                await send({"type": "http.response.start", "status": 503, "headers": headers})
                await send({"type": "http.response.body", "body": body})
            else:
                await app(scope, receive, send)

        return reserved

    def _settle(self) -> None:
        if self._write_paused:
            self._move("stalled")
        elif self._unanswered > self._headed:
            self._move("busy")
        elif self._headed:
            self._move("body")
        else:
            self._move("head" if self._begun or not self._used else "idle")

    def _move(self, phase: Phase) -> None:
        place = self._place
        if place is not None and place.phase != phase and place.phase != "lingering":
            self._table.move(place, phase, self.loop.time())

    def _note(self, reason: RefusedFor) -> None:
        self._refused.note(reason, self._address, self.loop.time())

    @property
    def _address(self) -> str:
        return self.client[0] if self.client else ""


def _answer(status: int) -> tuple[list[tuple[bytes, bytes]], bytes]:
    body = msgspec.json.encode({"error": TEXTS[status]})
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"connection", b"close"),
    ]
    return [*headers, (b"retry-after", b"1")] if status == 503 else headers, body
