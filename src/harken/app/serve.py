"""The listener: /webhooks goes straight to the hot path, everything else to the API."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager, suppress
from typing import Any

import uvicorn

from harken.app.corked import CorkedProtocol
from harken.errors import Misconfigured
from harken.ingest.webhook import PREFIX

__all__ = ["Listener", "bind", "is_loopback", "root"]

Scope = MutableMapping[str, Any]
App = Callable[[Scope, Any, Any], Awaitable[None]]

LOOPBACK = ("127.0.0.1", "localhost", "::1")


def is_loopback(host: str) -> bool:
    return host in LOOPBACK or host.startswith("127.")


def root(api: App, webhooks: App) -> App:
    async def route(scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"].startswith(PREFIX):
            await webhooks(scope, receive, send)
        else:
            await api(scope, receive, send)

    return route


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
        self.leaving = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals belong to the application, which stops its parts in order."""
        yield

    async def main_loop(self) -> None:
        """Renew the date header once a second; uvicorn itself would wake ten times a second to see whether to stop."""
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                await asyncio.wait_for(self.leaving.wait(), 1.0)


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
        self._server.leaving.set()
        if self._serving is not None:
            await self._serving
        self._socket.close()
