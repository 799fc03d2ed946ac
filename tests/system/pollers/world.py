"""Jobs that run: a listing to watch and a chat to write to, on loopback and virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from harken.testing import VirtualClock
from harken.testing.fakes import Listing
from harken.testing.fakes.server import Handler, json_reply
from harken.testing.fakes.telegram import TOKEN, FakeTelegram

CHAT = 42


class Chat(FakeTelegram):
    """While it is `down` every call fails as a server does that is in trouble."""

    down = False

    async def handle(self, request: web.Request, view: Handler) -> web.Response:
        return json_reply({"ok": False}, 502) if self.down else await super().handle(request, view)

    @property
    def texts(self) -> list[str]:
        return [text for _, text in self.sent]


class World:
    """`write` makes a configuration whose jobs all watch the listing and deliver to the chat."""

    def __init__(self, clock: VirtualClock, directory: Path) -> None:
        self.clock = clock
        self.directory = directory
        self.listing = Listing(clock, cap=1_000)
        self.chat = Chat(clock)

    def write(self, *jobs: str, settings: str = "") -> None:
        main = f"""\
integrations:
  telegram: {{kind: telegram, token: "{TOKEN}", base_url: "{self.chat.url}", allow_private_networks: true}}
"""
        self.directory.joinpath("harken.yaml").write_text(main)
        rows = "".join(f"    - {job}\n" for job in jobs)
        self.directory.joinpath("pollers.yaml").write_text(
            f"pollers:\n  default_jitter_ms: 0\n{settings}  jobs:\n{rows}"
        )

    def job(self, id: str = "watch", *, config: str = "", **changes: str) -> str:
        where = f"url: '{self.listing.url}/all', items_path: items, allow_private_networks: true"
        message = f"deliver: {{channel: telegram, to: '{CHAT}'}}, message_template: 'new {{id}}'"
        factory = {
            "kind": "webhook_poll",
            "agent": "ana",
            "schedule": "{every_secs: 60}",
            "config": f"{{{where}, {message}{config}}}",
            **changes,
        }
        return f"{{id: {id}, {', '.join(f'{key}: {value}' for key, value in factory.items())}}}"


@asynccontextmanager
async def world(clock: VirtualClock, directory: Path) -> AsyncIterator[World]:
    made = World(clock, directory)
    async with made.listing.serve(), made.chat.serve():
        yield made
