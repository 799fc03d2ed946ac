"""Serves HTTP: requests to /webhooks go to the intake, all others to the API."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Any

import structlog

from harken.app.asgi_exchange import App, Scope
from harken.app.file_descriptors import KEPT, WANTED, raise_descriptors
from harken.app.http_protocol import Connections, HttpConnection
from harken.app.inbound_connection_limits import LOOPBACK as LOOPBACK_NETWORKS
from harken.app.inbound_connection_limits import Limits
from harken.errors import Misconfigured
from harken.ingest.webhook import PREFIX
from harken.task_cancellation import cancel_and_wait

if TYPE_CHECKING:
    from harken.config.settings import Server

__all__ = [
    "App",
    "Listener",
    "Scope",
    "bind",
    "bind_all",
    "is_loopback",
    "limits_of",
    "listeners",
    "not_found",
]

log = structlog.get_logger("harken.app")

BACKLOG = 1_024
STOP_SECONDS = 5.0
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def is_loopback(host: str) -> bool:
    return host in LOOPBACK or host.startswith("127.")


def route_webhooks(api: App, webhooks: App) -> App:
    def route(scope: Scope, receive: Any, send: Any) -> Awaitable[None]:
        of_webhook = scope["type"] == "http" and scope["path"].startswith(PREFIX)
        return (webhooks if of_webhook else api)(scope, receive, send)

    return route


async def not_found(scope: Scope, receive: Any, send: Any) -> None:
    """Answers 404: on the webhooks' own port there is nothing else."""
    await send({"type": "http.response.start", "status": 404, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


def bind_all(server: Server, host: str, port: int) -> list[socket.socket]:
    """Bind the socket of the API, and a second one if the webhooks have a port of their own."""
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
    listener.listen(BACKLOG)
    return listener


def limits_of(server: Server) -> Limits:
    """The configured limits, or fewer connections where the process may not have that many files open."""
    limits = Limits(
        connections=server.max_connections,
        per_address=server.max_connections_per_address,
        head_seconds=server.head_timeout,
        body_seconds=server.body_timeout,
        proxies=(*LOOPBACK_NETWORKS, *server.proxies),
    )
    found = raise_descriptors(limits.connections + limits.reserved + WANTED)
    fitting = limits.within(found, KEPT)
    if fitting != limits:
        log.warning(
            "listener.fewer_connections",
            wanted=limits.connections,
            connections=fitting.connections,
            descriptors=found,
            fix="Raise the limit of open files (ulimit -n, or LimitNOFILE= of the service)",
        )
    return fitting


class Listener:
    """Serves one application on one socket. `connections` may be shared by several; `of_api` may use its reserve."""

    def __init__(
        self, app: App, sock: socket.socket, connections: Connections | None = None, *, of_api: bool = False
    ) -> None:
        self._app = app
        self._socket = sock
        self._connections = connections or Connections()
        self._of_api = of_api
        self._open: set[HttpConnection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._rounds: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        return int(self._socket.getsockname()[1])

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._connection, sock=self._socket, backlog=BACKLOG)
        self._rounds = asyncio.create_task(self._keep_time(), name="listener")

    def _connection(self) -> HttpConnection:
        return HttpConnection(self._app, self._connections, self._open, self._tasks, of_api=self._of_api)

    async def _keep_time(self) -> None:
        """Renew the date of answers, and end what takes too long."""
        loop, seconds = asyncio.get_running_loop(), self._connections.table.limits.round_seconds
        while True:
            self._connections.renew_date()
            self._connections.close_overdue(loop.time())
            await asyncio.sleep(seconds)

    async def stop(self) -> None:
        """Take no more connections. Answers that are being made get a few seconds to come to their end."""
        if self._server is not None:
            self._server.close()
            for connection in list(self._open):
                connection.shutdown()
            await self._finish(STOP_SECONDS)
            for task in self._tasks:
                task.cancel()
            for connection in list(self._open):
                connection.transport.abort()
            await self._finish(STOP_SECONDS)
        if self._rounds is not None:
            await cancel_and_wait([self._rounds])
        self._socket.close()

    async def _finish(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        # a connection closes when its peer has read everything
        while (self._tasks or self._open) and loop.time() < end:  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0.005)


def listeners(
    api: App, webhooks: App, sockets: Sequence[socket.socket], connections: Connections | None = None
) -> list[Listener]:
    """A listener for each of the sockets from `bind_all`."""
    first, *others = sockets
    connections = connections or Connections()
    return [
        Listener(route_webhooks(api, webhooks), first, connections, of_api=True),
        *(Listener(route_webhooks(not_found, webhooks), sock, connections) for sock in others),
    ]
