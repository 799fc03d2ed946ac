"""One HTTP connection: requests are parsed within the limits of the listener, and answered in their order."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from email.utils import formatdate
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote

import httptools
import msgspec

from harken.app.asgi_exchange import App, Exchange, Scope, status_line
from harken.app.inbound_connection_limits import ConnectionTable, Limits, Phase, Place
from harken.app.refused_inbound_connections import RefusedConnections, RefusedFor
from harken.ingest.webhook import CLOSED, PREFIX

__all__ = ["MAX_BUFFERED", "MAX_HEAD", "Connections", "Corked", "HttpConnection"]

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
MAX_UNWANTED = 100_000_000
"""Bytes of a body that are read on after its answer, within the time for bodies. Most senders write all of theirs
before they read, so one that is closed in between sees a broken pipe in place of the answer."""
MAX_UNWANTED_CHUNKS = 10_000
"""Chunks of such a body: small ones may cost more to parse than to send."""

ASGI = {"version": "3.0", "spec_version": "2.3"}
TEXTS = {
    400: "this is not HTTP",
    408: "the request did not come in time",
    431: f"the head of a request has at most {MAX_HEAD} bytes",
    503: "there are too many connections; try again",
}


class Connections:
    """The connections of all listeners of the process, what was refused, and the date that answers carry."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.table: ConnectionTable[HttpConnection] = ConnectionTable(limits or Limits())
        self.refused = RefusedConnections()
        self.date = b""
        self.renew_date()

    def renew_date(self) -> None:
        self.date = f"date: {formatdate(time.time(), usegmt=True)}\r\n".encode()

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

    def write_at_once(self, data: bytes) -> None:
        """For what is whole already: waiting for the end of the turn would only cost time."""
        if self._waiting:
            self.write(data)
        elif not self._transport.is_closing():
            self._transport.write(data)

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


class HttpConnection(asyncio.Protocol):
    """Tells the table what its connection waits for, and ends it when a limit or a deadline is passed.

    A listener of the API may use the reserve: a connection there gets everything but webhooks. It is one of `siblings`,
    the connections of its listener, while it is open; `tasks` are the answers that are being made on them.
    """

    def __init__(
        self,
        app: App,
        connections: Connections,
        siblings: set[HttpConnection],
        tasks: set[asyncio.Task[None]],
        *,
        of_api: bool,
    ) -> None:
        self._app = app
        self._connections = connections
        self._refused = connections.refused
        self._table = connections.table
        self._siblings = siblings
        self._tasks = tasks
        self._of_api = of_api
        self._loop = asyncio.get_running_loop()
        self._parser: Any = httptools.HttpRequestParser(self)
        # what follows a request with `Connection: close` must not take its answer away
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self.transport: Any = None
        self._client: tuple[str, int] | None = None
        self._server: tuple[str, int] | None = None
        self._place: Place[HttpConnection] | None = None
        # bytes that the parser took since it last got anywhere
        self._unparsed = 0
        self._progress = False
        # the head that is being read
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._expects_continue = False
        # whether there was a request yet, whether one is being read, and whether its head is complete
        self._used = False
        self._begun = False
        self._headed = False
        # the newest request, and all those in order whose head is complete and whose answer is not
        self._newest: Exchange | None = None
        self._unanswered: deque[Exchange] = deque()
        self._read_paused = False
        self.write_paused = False
        self._writable: asyncio.Future[None] | None = None
        self._deaf = False
        self._discarded = 0
        # of the body that is being read: what came after the answer, and in how many chunks
        self._unwanted = 0
        self._unwanted_chunks = 0

    @property
    def date(self) -> bytes:
        return self._connections.date

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = Corked(transport, self._loop)  # type: ignore[arg-type]
        self._siblings.add(self)
        self._client = _address(transport.get_extra_info("peername"))
        self._server = _address(transport.get_extra_info("sockname"))
        admission = self._table.admit(self, self._peer, self._loop.time(), may_use_reserve=self._of_api)
        self._place = admission.place
        if admission.closed is not None:
            admission.closed.connection.make_room("address" if admission.limit == "address" else "connections")
        if admission.place is None:
            self._note("address" if admission.limit == "address" else "connections")
            self._deaf = True
            self._write_answer(503)
            self.transport.close()
        elif admission.place.in_reserve:
            self._app = self._without_webhooks(self._app)

    def connection_lost(self, exc: Exception | None) -> None:
        self._siblings.discard(self)
        if self._place is not None:
            self._table.remove(self._place)
            self._place = None
        for exchange in self._unanswered:
            exchange.disconnect()
        self._wake_writers()
        # it refers to us
        self._parser = None

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
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # no other protocol is spoken here, so it is answered like any other request
            pass
        except httptools.HttpParserError:
            self._refuse(400, "malformed")
        self._unparsed = 0 if self._progress else self._unparsed + len(data)
        return not self._deaf

    def on_message_begin(self) -> None:
        self._begun = True
        self._url = b""
        self._headers = []
        self._expects_continue = False

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self._expects_continue = True
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self._deaf:
            return
        if len(self._unanswered) >= MAX_PIPELINED:
            # those before it are answered, and then the connection is closed
            self._note("pipelined")
            self._deaf = True
            self._end_after_answers()
            return
        version = self._parser.get_http_version()
        exchange = self._newest = Exchange(
            self,
            self._app,
            self._scope(version),
            keep_alive=version != "1.0" and self._parser.should_keep_alive(),
            expects_continue=self._expects_continue,
        )
        self._progress = self._headed = self._used = True
        self._unwanted = self._unwanted_chunks = 0
        self._unanswered.append(exchange)
        if len(self._unanswered) == 1:
            self._start(exchange)
        else:
            self._pause_reading()

    def _scope(self, version: str) -> Scope:
        path, query, host = _split(self._url)
        if host is not None:
            others = [one for one in self._headers if one[0] != b"host"]
            if len(self._headers) - len(others) < 2:
                # RFC 9112: it counts in place of the header; a request with two headers is refused for that
                self._headers = [(b"host", host), *others]
        text = path.decode("ascii")
        return {
            "type": "http",
            "asgi": ASGI,
            "http_version": version,
            "server": self._server,
            "client": self._client,
            "scheme": "http",
            "root_path": "",
            "headers": self._headers,
            "method": self._parser.get_method().decode("ascii"),
            "path": unquote(text) if "%" in text else text,
            "raw_path": path,
            "query_string": query,
        }

    def _start(self, exchange: Exchange) -> None:
        task = self._loop.create_task(exchange.run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def on_chunk_header(self) -> None:
        if not self._unanswered and not self._deaf:
            self._unwanted_chunks += 1
            if self._unwanted_chunks > MAX_UNWANTED_CHUNKS:
                self._linger()

    def on_body(self, body: bytes) -> None:
        if not self._deaf and self._newest is not None:
            self._progress = True
            if not self._newest.add_body(body):
                self._pause_reading()
            elif not self._unanswered:
                self._unwanted += len(body)
                if self._unwanted > MAX_UNWANTED:
                    self._linger()

    def on_message_complete(self) -> None:
        if not self._deaf and self._newest is not None:
            self._progress = True
            self._begun = self._headed = False
            self._newest.end_body()
            if not (self._unanswered or self._newest.keep_alive):
                # it was answered before, and the connection kept for the rest
                self._deaf = True
                self.transport.close()

    def end_exchange(self, exchange: Exchange) -> None:
        """The answer is written: go on with the next request, or end the connection."""
        if self._unanswered and self._unanswered[0] is exchange:
            self._unanswered.popleft()
        unread = self._headed and exchange is self._newest
        if unread and not exchange.keep_alive:
            # closing now would reset the connection while the peer still writes
            self.transport.write_eof()
        elif not exchange.keep_alive:
            self.transport.close()
        if self.transport.is_closing():
            # it ends when the peer has read everything
            self._move("stalled")
            return
        if self._unanswered:
            self._start(self._unanswered[0])
        if len(self._unanswered) <= 1:
            self.read_on()
        self._settle()

    def read_on(self) -> None:
        """Read the connection again, if it was paused, and no other request waits on it."""
        if self._read_paused and len(self._unanswered) <= 1:
            self._read_paused = False
            self.transport.resume_reading()

    def _pause_reading(self) -> None:
        if not self._read_paused:
            self._read_paused = True
            self.transport.pause_reading()

    def pause_writing(self) -> None:
        self.write_paused = True
        self._settle()

    def resume_writing(self) -> None:
        self._wake_writers()
        self._settle()

    def _wake_writers(self) -> None:
        self.write_paused = False
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)

    async def drain(self) -> None:
        """Wait until the peer has read enough of what was written."""
        while self.write_paused:
            if self._writable is None or self._writable.done():
                self._writable = self._loop.create_future()
            await asyncio.shield(self._writable)

    def shutdown(self) -> None:
        """The server stops: a peer that was refused has had its answer."""
        if self._place is not None and self._place.phase == "lingering":
            self.transport.abort()
        else:
            self._end_after_answers()

    def _end_after_answers(self) -> None:
        if self._unanswered:
            self._unanswered[-1].keep_alive = False
        else:
            self.transport.close()

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
        if len(self._unanswered) > self._headed:
            # the answers to earlier requests come first, so this one gets none
            self._end_after_answers()
            return
        if self._headed and self._newest is not None:
            if self._newest.started:
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
        if self._newest is not None:
            self._newest.scope[CLOSED] = reason
            self._newest.disconnect()

    def _write_answer(self, status: int) -> None:
        headers, body = _answer(status)
        lines = b"".join(b"%b: %b\r\n" % header for header in headers)
        self.transport.write(b"".join((status_line(status), self.date, lines, b"\r\n", body)))

    def _discard(self, data: bytes) -> None:
        self._discarded += len(data)
        if self._discarded > MAX_DISCARDED:
            self.transport.abort()

    def _without_webhooks(self, app: App) -> App:
        async def reserved(scope: Scope, receive: Any, send: Any) -> None:
            if scope["type"] == "http" and scope["path"].startswith(PREFIX):
                self._note("connections")
                headers, body = _answer(503)
                await send({"type": "http.response.start", "status": 503, "headers": headers})
                await send({"type": "http.response.body", "body": body})
            else:
                await app(scope, receive, send)

        return reserved

    def _settle(self) -> None:
        if self.write_paused:
            self._move("stalled")
        elif len(self._unanswered) > self._headed:
            self._move("busy")
        elif self._headed:
            self._move("body")
        else:
            self._move("head" if self._begun or not self._used else "idle")

    def _move(self, phase: Phase) -> None:
        place = self._place
        if place is not None and place.phase != phase and place.phase != "lingering":
            self._table.move(place, phase, self._loop.time())

    def _note(self, reason: RefusedFor) -> None:
        self._refused.note(reason, self._peer, self._loop.time())

    @property
    def _peer(self) -> str:
        return self._client[0] if self._client else ""


def _split(url: bytes) -> tuple[bytes, bytes, bytes | None]:
    """The path and the query of a request's target, and its host if it is a whole URL."""
    if url.startswith(b"/"):
        path, _, query = url.partition(b"#")[0].partition(b"?")
        return path, query, None
    parsed = httptools.parse_url(url)
    host = parsed.host
    if host is not None:
        host = b"[%b]" % host if b":" in host else host
        host = host if parsed.port is None else b"%b:%d" % (host, parsed.port)
    return parsed.path or b"/", parsed.query or b"", host


def _address(found: Any) -> tuple[str, int] | None:
    return (str(found[0]), int(found[1])) if isinstance(found, tuple) and len(found) >= 2 else None


def _answer(status: int) -> tuple[list[tuple[bytes, bytes]], bytes]:
    problem = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": TEXTS[status],
        # where senders of webhooks look
        "error": TEXTS[status],
    }
    body = msgspec.json.encode(problem)
    headers = [
        (b"content-type", b"application/problem+json"),
        (b"content-length", b"%d" % len(body)),
        (b"connection", b"close"),
    ]
    return [*headers, (b"retry-after", b"1")] if status == 503 else headers, body
