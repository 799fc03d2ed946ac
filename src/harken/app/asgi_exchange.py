"""One request and its answer on an HTTP connection, as ASGI wants to read and write them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import structlog

if TYPE_CHECKING:
    from harken.app.http_protocol import HttpConnection

__all__ = ["App", "Exchange", "Scope", "status_line"]

Scope = MutableMapping[str, Any]
App = Callable[[Scope, Any, Any], Awaitable[None]]

log = structlog.get_logger("harken.app")

MAX_UNREAD = 65_536
"""Bytes of a body that wait for the application before the connection is read no further."""
MOST_NAMES = 1_000
MOST_HEADS = 100

_STATUS_LINES: dict[int, bytes] = {}
# header names that were found to be valid, in lower case and with the colon
_NAMES: dict[bytes, bytes] = {}
# what follows the date in answers whose headers are a tuple, because they are the same each time; and their length
_HEADS: dict[tuple[int, Any], tuple[bytes, int]] = {}
# bytes as numbers: to look for b"\n" costs an exception inside of Python, which takes it for a number at first
LF, CR, NUL = 10, 13, 0
_TOKEN = frozenset(b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz")
FAILED = b'{"error":"it failed here; the log has the reason"}'


def status_line(status: int) -> bytes:
    line = _STATUS_LINES.get(status)
    if line is None:
        try:
            phrase = HTTPStatus(status).phrase
        except ValueError:
            phrase = ""
        line = _STATUS_LINES[status] = f"HTTP/1.1 {status} {phrase}\r\n".encode()
    return line


class Exchange:
    """A request whose head is complete. The connection adds the body, and starts it when those before are answered.

    `keep_alive`: the connection stays open for the next request. `answered`: the whole answer is written.
    """

    __slots__ = (
        "_app",
        "_body",
        "_body_taken",
        "_chunked",
        "_connection",
        "_gone",
        "_head",
        "_left",
        "_more",
        "_waiter",
        "answered",
        "expects_continue",
        "keep_alive",
        "scope",
        "started",
    )

    def __init__(
        self, connection: HttpConnection, app: App, scope: Scope, *, keep_alive: bool, expects_continue: bool
    ) -> None:
        self._connection = connection
        self._app = app
        self.scope = scope
        self.keep_alive = keep_alive
        self.expects_continue = expects_continue
        self._body = b""
        self._more = True
        self._body_taken = False
        self._waiter: asyncio.Future[None] | None = None
        self._gone = False
        self.started = False
        self.answered = False
        self._chunked = False
        # bytes that the answer announced and did not send yet; None if it announced no length
        self._left: int | None = None
        # of an answer whose length is known, which is written with the first part of its body
        self._head = b""

    def add_body(self, part: bytes) -> bool:
        """Whether the connection should be read on."""
        if self.answered:
            return True
        self._body = self._body + part if self._body else part
        if self._waiter is not None:
            self._wake()
        return len(self._body) <= MAX_UNREAD

    def end_body(self) -> None:
        self._more = False
        if self._waiter is not None:
            self._wake()

    def disconnect(self) -> None:
        """The peer has gone, or gets no answer any more."""
        self._gone = True
        self._wake()

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def run(self) -> None:
        """Let the application answer. Whatever it does, the connection goes on with the next request, or ends."""
        try:
            await self._app(self.scope, self.receive, self.send)
        except asyncio.CancelledError:
            self._connection.transport.abort()
            raise
        except Exception as error:
            log.error("http.failed", path=self.scope["path"], exc_info=error)
            await self._fail()
        else:
            if not self.answered and not self._gone:
                log.error("http.unanswered", path=self.scope["path"])
                await self._fail()

    async def _fail(self) -> None:
        if self.started:
            # what is on its way cannot be taken back: the peer sees that its end is missing
            self._connection.transport.abort()
            return
        self.keep_alive = False
        head = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(FAILED))]
        await self.send({"type": "http.response.start", "status": 500, "headers": head})
        await self.send({"type": "http.response.body", "body": FAILED})

    async def receive(self) -> MutableMapping[str, Any]:
        if self.expects_continue:
            self.expects_continue = False
            self._connection.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        while not (self._gone or self.answered or (not self._body_taken and (self._body or not self._more))):
            self._connection.read_on()
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        if self._gone or self.answered:
            return {"type": "http.disconnect"}
        body, self._body = self._body, b""
        self._body_taken = not self._more
        return {"type": "http.request", "body": body, "more_body": self._more}

    async def send(self, message: MutableMapping[str, Any]) -> None:
        if self._connection.write_paused and not self._gone:
            await self._connection.drain()
        if self._gone:
            return
        kind = message["type"]
        if not self.started:
            if kind != "http.response.start":
                raise RuntimeError(f"an answer starts with http.response.start, not with {kind}")
            head = self._make_head(message["status"], message.get("headers", ()))
            self.started = True
            self.expects_continue = False
            if self._left is None:
                self._connection.transport.write(head)
            else:
                self._head = head
        elif self.answered or kind != "http.response.body":
            raise RuntimeError(f"{kind} does not belong here: the answer has started, and may have ended")
        else:
            self._send_body(message.get("body", b""), message.get("more_body", False))

    def _make_head(self, status: int, headers: Any) -> bytes:
        constant = type(headers) is tuple and self.keep_alive and self.scope["method"] != "HEAD"
        if constant and (known := _HEADS.get((status, headers))) is not None:
            rest, self._left = known
            return b"".join((status_line(status), self._connection.date, rest))
        lines = [status_line(status), self._connection.date]
        bodiless = self.scope["method"] == "HEAD" or status in (204, 304) or status < 200
        announced = False
        for name, value in headers:
            line = _NAMES.get(name) or _checked_name(name)
            if LF in value or CR in value or NUL in value:
                raise RuntimeError(f"the header {name!r} has a value that would end it")
            if line == b"content-length: ":
                announced, self._left = True, None if bodiless else int(value)
            elif line == b"transfer-encoding: ":
                # ours to decide
                continue
            elif line == b"connection: " and b"close" in value.lower():
                self.keep_alive = False
                continue
            lines += (line, value, b"\r\n")
        if not announced and not bodiless:
            if self.scope["http_version"] == "1.0":
                self.keep_alive = False
            else:
                self._chunked = True
                lines.append(b"transfer-encoding: chunked\r\n")
        lines.append(b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n")
        if constant and self.keep_alive and self._left is not None and len(_HEADS) < MOST_HEADS:
            _HEADS[status, headers] = b"".join(lines[2:]), self._left
        return b"".join(lines)

    def _send_body(self, body: bytes, more: bool) -> None:
        write = self._connection.transport.write
        if self._left is not None:
            self._left -= len(body)
            if self._left < 0 or (self._left and not more):
                raise RuntimeError("the body has not the length that its head announced")
        if self.scope["method"] == "HEAD":
            body = b""
        if self._chunked:
            if body:
                write(b"%x\r\n%b\r\n" % (len(body), body))
            if not more:
                write(b"0\r\n\r\n")
        elif self._head:
            head, self._head = self._head, b""
            self._connection.transport.write_at_once(head + body)
        elif body:
            write(body)
        if not more:
            self.answered = True
            if self._waiter is not None:
                self._wake()
            self._connection.end_exchange(self)


def _checked_name(name: bytes) -> bytes:
    lower = name.lower()
    if not lower or not _TOKEN.issuperset(lower):
        raise RuntimeError(f"{name!r} is not the name of a header")
    line = lower + b": "
    if len(_NAMES) < MOST_NAMES:
        _NAMES[name] = line
    return line
