"""The other side of the parcel service, and its plugin as an installed package."""

from __future__ import annotations

import base64
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aiohttp import web

from harken.clock import SystemClock
from harken.testing.fakes.server import FakeServer, Handler, json_reply

TOKEN = "dep0t-5ecret-abcdef-987654321"


class Depot(FakeServer):
    """Knows one token and one user. `rude`: it answers with this status, and says everything back that it was sent."""

    def __init__(self) -> None:
        super().__init__(SystemClock())
        self.token = TOKEN
        self.rude = 0
        self.parcels: list[dict[str, Any]] = []
        self.notes: list[str] = []
        self.depots = {"north": "North depot (n1)"}

    def routes(self) -> Mapping[str, Handler]:
        return {
            "/me": self._me,
            "/depots": self._depots,
            "/parcels": self._parcels,
            "/notes/{text}": self._note,
            "/echo": self._echo,
        }

    async def handle(self, request: web.Request, view: Handler) -> web.Response:
        given = base64.b64decode(request.headers["Authorization"].partition(" ")[2]).decode().partition(":")[2]
        if self.rude or given != self.token:
            said = f"bad token {given} in {request.headers['Authorization']}"
            return web.Response(status=self.rude or 401, text=said, headers={"X-Said": said})
        return await view(request)

    async def _me(self, request: web.Request) -> web.Response:
        return json_reply({"id": "u7", "name": "Ada", "echo": request.headers["X-Token"]})

    async def _depots(self, request: web.Request) -> web.Response:
        return json_reply(self.depots)

    async def _parcels(self, request: web.Request) -> web.Response:
        return json_reply(self.parcels)

    async def _note(self, request: web.Request) -> web.Response:
        self.notes.append(request.match_info["text"])
        return json_reply({"noted": request.match_info["text"], "by": request.headers["X-Token"]})

    async def _echo(self, request: web.Request) -> web.Response:
        return json_reply(dict(request.headers), headers={"X-Request-Id": request.headers["X-Token"]})


def install(directory: Path) -> Path:
    """A folder for PYTHONPATH in which the parcel service is installed."""
    folder = directory / "installed"
    info = folder / "parcel-1.0.dist-info"
    info.mkdir(parents=True)
    shutil.copy(Path(__file__).with_name("parcel_service.py"), folder / "parcel_service.py")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: parcel\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[harken.services]\nparcel = parcel_service:plugin\n")
    return folder
