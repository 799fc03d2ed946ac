"""The API on a real socket, in front of a real store."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Any

from harken.api.app import build
from harken.api.origin_guard import hosts_of
from harken.app.server import Listener
from harken.cli.client import ControllerClient
from harken.operate.oidc import Provider
from tests.operate.operator_world import Office

UP = {"status": "up", "subsystems": [{"name": "store", "state": "up", "reason": "", "since": None}]}
JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True, kw_only=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Served:
    """`health` may be changed while it runs."""

    def __init__(self, office: Office, port: int) -> None:
        self.office = office
        self.port = port
        self.health: dict[str, Any] = UP
        self.controller = ControllerClient(pid=os.getpid(), url=f"http://127.0.0.1:{port}")

    async def call(self, operation: str, **params: Any) -> Any:
        return await asyncio.to_thread(self.controller.call, operation, params)

    async def send(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Reply:
        return await asyncio.to_thread(self._send, method, path, body, dict(headers or {}))

    def _send(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> Reply:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        found = {name.lower(): value for name, value in response.getheaders()}
        reply = Reply(status=response.status, headers=found, body=response.read())
        connection.close()
        return reply


async def metrics() -> bytes:
    return b"harken_up 1\n"


@asynccontextmanager
async def serving(
    office: Office, *, requests_per_minute: int = 0, local_token: str = "", provider: Provider | None = None
) -> AsyncIterator[Served]:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    served = Served(office, listener.getsockname()[1])
    hosts = hosts_of("127.0.0.1", served.port, ["harken.internal"])
    app = build(
        office.operator,
        hosts=hosts,
        metrics=metrics,
        health=lambda: served.health,
        requests_per_minute=requests_per_minute,
        local_token=local_token,
        provider=provider,
    )
    server = Listener(app, listener)
    await server.start()
    yield served
    await server.stop()
