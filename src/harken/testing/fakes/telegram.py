"""Telegram's Bot API on loopback: known chats accept messages, and errors are described in the body."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from aiohttp import web

from harken.clock import Clock
from harken.testing.fakes.server import FakeServer, Handler, json_reply

__all__ = ["TOKEN", "FakeTelegram"]

TOKEN = "123456:AAFakeFakeFakeFakeFakeFakeFakeFake"
LIMIT = 4096


class FakeTelegram(FakeServer):
    """`chats` maps ids and @names to ids; `sent` has the messages as (chat, text).

    `trouble` is what the next calls are answered with: status, description and parameters.
    """

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.token = TOKEN
        self.chats = {"42": 42, "-1001": -1001, "@news": -1002}
        self.blocked: set[str] = set()
        self.sent: list[tuple[int, str]] = []
        self.trouble: list[tuple[int, str, Mapping[str, Any]]] = []

    def routes(self) -> Mapping[str, Handler]:
        return {"/bot{token}/getMe": self._me, "/bot{token}/sendMessage": self._send}

    async def handle(self, request: web.Request, view: Handler) -> web.Response:
        if self.trouble:
            return _error(*self.trouble.pop(0))
        if request.match_info.get("token") != self.token:
            return _error(401, "Unauthorized", {})
        return await view(request)

    async def _me(self, request: web.Request) -> web.Response:
        me = {"id": 123456, "is_bot": True, "first_name": "Harken", "username": "harken_bot", "can_join_groups": True}
        return json_reply({"ok": True, "result": me})

    async def _send(self, request: web.Request) -> web.Response:
        body = msgspec.json.decode(await request.read())
        chat, text = str(body.get("chat_id", "")), body.get("text", "")
        if chat not in self.chats:
            return _error(400, "Bad Request: chat not found", {})
        if chat in self.blocked:
            return _error(403, "Forbidden: bot was blocked by the user", {})
        if not text.strip():
            return _error(400, "Bad Request: message text is empty", {})
        if len(text.encode("utf-16-le")) // 2 > LIMIT:
            return _error(400, "Bad Request: message is too long", {})
        self.sent.append((self.chats[chat], text))
        result = {"message_id": len(self.sent), "chat": {"id": self.chats[chat]}, "text": text}
        return json_reply({"ok": True, "result": result})


def _error(status: int, description: str, parameters: Mapping[str, Any]) -> web.Response:
    sent = {"ok": False, "error_code": status, "description": description}
    return json_reply({**sent, **({"parameters": parameters} if parameters else {})}, status)
