"""WhatsApp's Cloud API on loopback: windows of 24 hours, templates, and errors by code."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec
from aiohttp import web

from harken.clock import Clock
from harken.testing.fakes.server import FakeServer, Handler, json_reply

__all__ = ["NUMBER", "TOKEN", "FakeWhatsApp"]

TOKEN = "EAAFakeFakeFakeFakeFakeFake0123"
NUMBER = "106540352242922"
LIMIT, PARAMETER = 4096, 1024
DAY = 86_400
_UNFIT = re.compile(r"[\n\t]| {5,}")


class FakeWhatsApp(FakeServer):
    """`wrote`: when each person last wrote to us; `sent`: our messages; `trouble`: status, code, headers to answer."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.wrote = {"4915123456789": clock.time()}
        self.templates = {("alert", "en"), ("alert", "pt_BR")}
        self.sent: list[dict[str, Any]] = []
        self.trouble: list[tuple[int, int, Mapping[str, str]]] = []

    def routes(self) -> Mapping[str, Handler]:
        return {f"/v23.0/{NUMBER}": self._number, f"/v23.0/{NUMBER}/messages": self._send}

    async def handle(self, request: web.Request, view: Handler) -> web.Response:
        if self.trouble:
            status, code, headers = self.trouble.pop(0)
            return _error(status, code, headers)
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return _error(401, 190)
        return await view(request)

    async def _number(self, request: web.Request) -> web.Response:
        about = {"display_phone_number": "+49 30 1234", "verified_name": "Acme", "quality_rating": "GREEN"}
        body = request.query.get("fields", "").split(",")
        return json_reply({"id": NUMBER, **{name: value for name, value in about.items() if name in body}})

    async def _send(self, request: web.Request) -> web.Response:
        body = msgspec.json.decode(await request.read())
        refusal = self._template(body) if body.get("type") == "template" else self._text(body)
        if body.get("messaging_product") != "whatsapp" or refusal:
            return _error(400, refusal or 100)
        self.sent.append(body)
        id = f"wamid.{len(self.sent)}"
        return json_reply({"messaging_product": "whatsapp", "messages": [{"id": id, "message_status": "accepted"}]})

    def _text(self, body: Mapping[str, Any]) -> int:
        if body["to"] not in self.wrote:
            return 131026
        if self.clock.time() - self.wrote[body["to"]] > DAY:
            return 131047
        return 0 if 0 < len(body["text"]["body"]) <= LIMIT else 100

    def _template(self, body: Mapping[str, Any]) -> int:
        template = body["template"]
        if (template["name"], template["language"]["code"]) not in self.templates:
            return 132001
        (value,) = template["components"][0]["parameters"]
        return 132018 if _UNFIT.search(value["text"]) or len(value["text"]) > PARAMETER else 0


def _error(status: int, code: int, headers: Mapping[str, str] | None = None) -> web.Response:
    sent = {"message": f"(#{code}) no", "type": "OAuthException", "code": code, "fbtrace_id": "x"}
    return json_reply({"error": sent}, status, headers)
