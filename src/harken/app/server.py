"""Serves HTTP: requests to /webhooks go to the intake, all others to the API."""

from __future__ import annotations

import asyncio
import math
import socket
from collections.abc import Awaitable, Callable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog
import uvicorn

from harken.app.connection_limits import LOOPBACK as LOOPBACK_NETWORKS
from harken.app.connection_limits import Limits
from harken.app.descriptors import KEPT, WANTED, raise_descriptors
from harken.app.http_protocol import Connections, LimitedProtocol
from harken.errors import Misconfigured
from harken.ingest.webhook import PREFIX

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

Scope = MutableMapping[str, Any]
App = Callable[[Scope, Any, Any], Awaitable[None]]

log = structlog.get_logger("harken.app")

LOOPBACK = ("127.0.0.1", "localhost", "::1")


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


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, connections: Connections) -> None:
        super().__init__(config)
        self._connections = connections
        self.stopping = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do not handle signals: the application does, and stops its parts in order."""
        yield

    async def main_loop(self) -> None:
        """Renew the date header once a second, and end what takes too long; uvicorn's loop wakes up ten times."""
        while not await self.on_tick(0):
            self._connections.close_overdue(asyncio.get_running_loop().time())
            with suppress(TimeoutError):
                await asyncio.wait_for(self.stopping.wait(), self._connections.table.limits.round_seconds)


class Listener:
    """Serves one application on one socket. `connections` may be shared by several; `of_api` may use its reserve."""

    def __init__(
        self, app: App, sock: socket.socket, connections: Connections | None = None, *, of_api: bool = False
    ) -> None:
        connections = connections or Connections()
        protocol: Any = partial(LimitedProtocol, connections, of_api=of_api)
        config = uvicorn.Config(
            app,
            http=protocol,
            ws="none",
            loop="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            # strangers can cause any number of its warnings; what is refused is counted and logged by us
            log_level="error",
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=math.ceil(connections.table.limits.idle_seconds),
            timeout_graceful_shutdown=5,
            backlog=1024,
        )
        self._server = _Server(config, connections)
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
