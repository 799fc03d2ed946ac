"""Discord's API on loopback: a bot and a webhook, nonces, and waits in the body."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from aiohttp import web

from harken.clock import Clock
from harken.testing.fakes.server import FakeServer, Handler, json_reply

__all__ = ["HOOK_TOKEN", "TOKEN", "FakeDiscord"]

TOKEN = "MTIzFake.bot.token-0123456789"
HOOK_TOKEN = "fake-webhook-token_0123456789"
LIMIT = 2000


class FakeDiscord(FakeServer):
    """`sent` has every message as it was posted, with the channel in `to`; `trouble` are the next answers.

    A trouble is a status, Discord's code and further fields of the body.
    """

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.channels = {"77", "78"}
        self.sent: list[dict[str, Any]] = []
        self.trouble: list[tuple[int, int, Mapping[str, Any]]] = []
        self._nonces: dict[str, dict[str, Any]] = {}

    @property
    def webhook_url(self) -> str:
        return f"https://discord.com/api/webhooks/9/{HOOK_TOKEN}"

    def routes(self) -> Mapping[str, Handler]:
        return {
            "/users/@me": self._me,
            "/channels/{id}/messages": self._post,
            "/webhooks/{id}/{token}": self._hook,
        }

    async def handle(self, request: web.Request, view: Handler) -> web.Response:
        if self.trouble:
            status, code, more = self.trouble.pop(0)
            return json_reply({"message": "trouble", "code": code, **more}, status)
        if not request.headers.get("User-Agent", "").startswith("DiscordBot ("):
            return web.Response(status=403, text="<html>error code: 1010</html>")
        bearer = request.headers.get("Authorization")
        if not request.path.startswith("/webhooks/") and bearer != f"Bot {TOKEN}":
            return _error(401, 0)
        return await view(request)

    async def _me(self, request: web.Request) -> web.Response:
        return json_reply({"id": "5", "username": "harken", "bot": True})

    async def _post(self, request: web.Request) -> web.Response:
        channel, body = request.match_info["id"], msgspec.json.decode(await request.read())
        if channel not in self.channels:
            return _error(404, 10003)
        known = self._nonces.get(str(body.get("nonce"))) if body.get("enforce_nonce") else None
        return json_reply(known) if known else self._store_message(channel, body)

    async def _hook(self, request: web.Request) -> web.Response:
        if request.match_info["id"] != "9":
            return _error(404, 10015)
        if request.match_info["token"] != HOOK_TOKEN:
            return _error(401, 50027)
        if request.method == "GET":
            return json_reply({"id": "9", "name": "Alerts", "channel_id": "77", "guild_id": "1", "token": HOOK_TOKEN})
        thread = request.query.get("thread_id", "77")
        if thread not in self.channels:
            return _error(404, 10003)
        reply = self._store_message(thread, msgspec.json.decode(await request.read()))
        return reply if request.query.get("wait") == "true" or reply.status >= 400 else web.Response(status=204)

    def _store_message(self, channel: str, body: Mapping[str, Any]) -> web.Response:
        text = body.get("content", "")
        if not text.strip() or len(text.encode("utf-16-le")) // 2 > LIMIT or len(str(body.get("nonce", ""))) > 25:
            return _error(400, 50035)
        self.sent.append({**body, "to": channel})
        message = {"id": str(1000 + len(self.sent)), "channel_id": channel, "content": text}
        if body.get("nonce"):
            self._nonces[str(body["nonce"])] = message
        return json_reply(message)


def _error(status: int, code: int) -> web.Response:
    return json_reply({"message": "no", "code": code}, status)
