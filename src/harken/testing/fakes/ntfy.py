"""An ntfy server on loopback: JSON publishing, reserved topics, and notifications that replace one another."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Any

import msgspec
from aiohttp import web

from harken.clock import Clock
from harken.testing.fakes.server import FakeServer, Handler, json_reply

__all__ = ["PASSWORD", "TOKEN", "FakeNtfy"]

TOKEN = "tk_fakefakefakefakefakefakefake0"
PASSWORD = "pass-wörd-of-ana"
LIMIT = 4096
_TOPIC = re.compile(r"[-_A-Za-z0-9]{1,64}")


class FakeNtfy(FakeServer):
    """`cached` has all that was published; `shown` what a phone shows. `reserved` topics are only for `ana`."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.reserved = {"private"}
        self.cached: list[dict[str, Any]] = []

    def shown(self) -> list[dict[str, Any]]:
        """The newest message of each sequence, at the position of its first."""
        by_sequence: dict[str, dict[str, Any]] = {}
        for number, one in enumerate(self.cached):
            by_sequence[one.get("sequence_id") or str(number)] = one
        return list(by_sequence.values())

    def routes(self) -> Mapping[str, Handler]:
        return {"/": self._publish, "/v1/account": self._account}

    async def _publish(self, request: web.Request) -> web.Response:
        user = _user(request)
        body = msgspec.json.decode(await request.read())
        if user is None:
            return _error(401, 40101)
        if not _TOPIC.fullmatch(body.get("topic", "")):
            return _error(400, 40009)
        if body["topic"] in self.reserved and user != "ana":
            return _error(403, 40301)
        if len(body.get("message", "").encode()) > LIMIT or not 1 <= body.get("priority", 3) <= 5:
            return _error(400, 40007)
        self.cached.append(body)
        return json_reply({"id": f"id{len(self.cached)}", "event": "message", **body})

    async def _account(self, request: web.Request) -> web.Response:
        user = _user(request)
        return _error(401, 40101) if user is None else json_reply({"username": user, "role": "user"})


def _user(request: web.Request) -> str | None:
    given = request.headers.get("Authorization")
    if given is None:
        return "*"
    basic = base64.b64encode(f"ana:{PASSWORD}".encode()).decode()
    return "ana" if given in (f"Bearer {TOKEN}", f"Basic {basic}") else None


def _error(status: int, code: int) -> web.Response:
    return json_reply({"code": code, "http": status, "error": "no"}, status)
