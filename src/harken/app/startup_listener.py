"""Answers requests while a start waits for its store: /health says why, and webhooks get 503 with Retry-After."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from harken.api.app import build_waiting
from harken.api.origin_guard import hosts_of
from harken.app.http_protocol import Connections
from harken.app.metrics_and_health import Health
from harken.app.server import App, Listener, Scope, listeners
from harken.clock import Clock

__all__ = ["StoreWait"]

SILENT_SECONDS = 2.0
_NEAR = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}
"""Where commands on this machine reach a listener that has no address of its own."""


class StoreWait:
    """Has the bound sockets until `hand_over`. It listens from the first `note` on; a start without one never waits.

    `names` are further Host headers that it answers to.
    """

    def __init__(
        self,
        host: str,
        sockets: Sequence[socket.socket],
        clock: Clock,
        say: Callable[[str], None],
        connections: Connections | None = None,
        names: Sequence[str] = (),
    ) -> None:
        port = int(sockets[0].getsockname()[1])
        near = _NEAR.get(host, host)
        self.url = f"http://[{near}]:{port}" if ":" in near else f"http://{near}:{port}"
        self.host = host
        self.hosts = hosts_of(host, port, names)
        self.connections = connections or Connections()
        self._sockets = sockets
        self._clock = clock
        self._health = Health(clock)
        self._say = say
        self._reason = ""
        self._began = clock.time()
        self._api, self._webhooks = (_Replaceable(app) for app in build_waiting(self.health, self.hosts))
        self._listeners: list[Listener] = []
        self._starting: asyncio.Task[None] | None = None
        self._over = False

    def note(self, reason: str) -> None:
        """The store does not answer: print the reason, and answer with it."""
        self._say(reason)
        if not self._reason:
            self._began = self._clock.time()
        self._reason = reason
        if self._starting is None and not self._over:
            self._listeners = listeners(self._api, self._webhooks, self._sockets, self.connections)
            self._starting = asyncio.create_task(self._listen(), name="store wait")

    @contextmanager
    def expecting(self, store: str) -> Iterator[None]:
        """Around the first call of the store: one that neither answers nor fails is noted after a while."""
        silence = f"{store} has not answered yet; waiting until it does"
        timer = asyncio.get_running_loop().call_later(SILENT_SECONDS, self._note_silence, silence)
        try:
            yield
        finally:
            timer.cancel()

    def _note_silence(self, reason: str) -> None:
        if not self._reason:
            self.note(reason)

    def health(self) -> Mapping[str, Any]:
        return self._health.report([("store", "down", self._reason)], {"store": self._began})

    async def hand_over(self, api: App, webhooks: App) -> list[Listener]:
        """Serve the application from now on. The caller stops the listeners."""
        if self._starting is None:
            self._listeners = listeners(api, webhooks, self._sockets, self.connections)
            await self._listen()
        else:
            await self._starting
            self._api.app, self._webhooks.app = api, webhooks
        self._over = True
        return self._listeners

    async def close(self) -> None:
        """End it, if it was not handed over."""
        if self._over:
            return
        self._over = True
        if self._starting is not None:
            await self._starting
        for listener in self._listeners:
            await listener.stop()
        for sock in self._sockets:
            sock.close()

    async def _listen(self) -> None:
        for listener in self._listeners:
            await listener.start()


class _Replaceable:
    """Passes requests on to `app`, which may be replaced; connections stay open."""

    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        await self.app(scope, receive, send)
