"""The scenario of `harken demo` without a name: a company with an incident API, a news feed and signed webhooks."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from importlib.resources import as_file, files
from pathlib import Path
from random import Random

import aiohttp

from harken.clock import Clock
from harken.demo.incident_api import IncidentService, announce
from harken.demo.scenario import Scenario
from harken.demo.simulated_company import World
from harken.event import Recorded

__all__ = ["Company", "make", "occurrence"]


class Company:
    place = "incident service"
    looked_at = "runs list"
    noted = ""
    settled = True
    refused = 0

    def __init__(self, clock: Clock, random: Random) -> None:
        self._world = World(clock, random)
        self._service = IncidentService(self._world)
        self._secret = secrets.token_hex(16)
        self._webhook = ""
        self._session: aiohttp.ClientSession | None = None

    @property
    def expected(self) -> Mapping[str, Collection[str]]:
        return self._world.expected

    @property
    def late(self) -> int:
        return self._world.late

    @property
    def rate_limited(self) -> int:
        return self._service.rate_limited

    def prepare(self, directory: Path) -> None:
        with as_file(files("harken.demo") / "config") as config:
            shutil.copytree(config, directory, dirs_exist_ok=True)

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[Mapping[str, str]]:
        async with self._service.serve() as url, aiohttp.ClientSession() as self._session:
            yield {"DEMO_URL": url, "DEMO_SECRET": self._secret}

    def open(self, url: str) -> None:
        self._webhook = f"{url}/webhooks/generic/deploys"
        self._world.open()

    async def advance(self) -> None:
        assert self._session is not None
        for deploy in self._world.advance():
            # sent twice, as providers do when a reply gets lost
            answers = [await announce(self._session, self._webhook, self._secret, deploy) for _ in range(2)]
            if any(answers):
                self._world.deployed(deploy)

    def occurrence(self, event: Recorded) -> str:
        return occurrence(event)

    def notes(self) -> Collection[str]:
        return ()

    def deliveries(self) -> Mapping[str, Collection[str]]:
        return self._service.pages


def occurrence(event: Recorded) -> str:
    """The company's name for this event; empty for an event that is not its own."""
    data = event.data if isinstance(event.data, Mapping) else {}
    name = str(data.get("revision") or data.get("id") or "")
    return name if name.startswith(("INC-", "news-", "deploy-")) else ""


def make(clock: Clock, random: Random) -> Scenario:
    return Company(clock, random)
