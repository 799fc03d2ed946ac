"""Serves HTTP: requests to /webhooks go to the intake, all others to the API."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from harken.errors import Misconfigured
from harken.ingest.webhook import PREFIX

if TYPE_CHECKING:
    from harken.config.settings import Server

__all__ = ["App", "Corked", "Listener", "Scope", "bind", "bind_all", "is_loopback", "listeners", "not_found"]

Scope = MutableMapping[str, Any]
App = Callable[[Scope, Any, Any], Awaitable[None]]

LOOPBACK = ("127.0.0.1", "localhost", "::1")
MAX_BUFFERED = 65_536
"""Bytes that are buffered at most, so that a stream does not outrun its reader."""


def is_loopback(host: str) -> bool:
    return host in LOOPBACK or host.startswith("127.")


def route_webhooks(api: App, webhooks: App) -> App:
    async def route(scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"].startswith(PREFIX):
            await webhooks(scope, receive, send)
        else:
            await api(scope, receive, send)

    return route


async def not_found(scope: Scope, receive: Any, send: Any) -> None:
    """Answers 404: on the webhooks' own port there is nothing else."""
    await send({"type": "http.response.start", "status": 404, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


def bind_all(server: Server, host: str, port: int) -> list[socket.socket]:
    """Bind the socket of the API, and a second one if the webhooks have a port of their own."""
    if not is_loopback(host):
        fix = "Leave server.host at 127.0.0.1; server.webhook_host may be any address"
        raise Misconfigured(f"the API has no tokens yet, so it does not listen on {host}", fix=fix)
    sockets = [bind(host, port)]
    if server.webhook_port is not None:
        sockets.append(bind(server.webhook_host or host, server.webhook_port))
    return sockets


def bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        fix = "Stop what listens there, or choose another with --port (0 takes any)"
        raise Misconfigured(f"cannot listen on {host}:{port} ({error.strerror})", fix=fix) from None
    listener.listen(1024)
    return listener


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.stopping = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do not handle signals: the application does, and stops its parts in order."""
        yield

    async def main_loop(self) -> None:
        """Renew the date header once a second; uvicorn's own loop would wake up ten times a second."""
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                await asyncio.wait_for(self.stopping.wait(), 1.0)


class Listener:
    """Serves one application on one socket."""

    def __init__(self, app: App, sock: socket.socket) -> None:
        config = uvicorn.Config(
            app,
            http=CorkedProtocol,
            ws="none",
            loop="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=5,
            backlog=1024,
        )
        self._server = _Server(config)
        self._socket = sock
        self._serving: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        return int(self._socket.getsockname()[1])

    async def start(self) -> None:
        self._serving = asyncio.create_task(self._server.serve(sockets=[self._socket]), name="listener")
        while not self._server.started:
            if self._serving.done():
                self._serving.result()
            await asyncio.sleep(0.005)

    async def stop(self) -> None:
        self._server.should_exit = True
        self._server.stopping.set()
        if self._serving is not None:
            await self._serving
        self._socket.close()


def listeners(api: App, webhooks: App, sockets: Sequence[socket.socket]) -> list[Listener]:
    """A listener for each of the sockets from `bind_all`."""
    first, *others = sockets
    return [
        Listener(route_webhooks(api, webhooks), first),
        *(Listener(route_webhooks(not_found, webhooks), sock) for sock in others),
    ]


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

    def close(self) -> None:
        self._flush()
        self._transport.close()

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


class CorkedProtocol(HttpToolsProtocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        corked: Any = Corked(transport, self.loop)  # type: ignore[arg-type]
        super().connection_made(corked)
