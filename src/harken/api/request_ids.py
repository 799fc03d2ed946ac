"""Every request has an id: in the answer's X-Request-Id, in the problem if it fails, and in the log if we fail."""

from __future__ import annotations

import re
from secrets import token_hex

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from harken.api.errors import current_path, current_request

__all__ = ["RequestIds"]

_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}")
LONGEST = 200


class RequestIds:
    """Takes the id that the caller sent, if it is one, and makes one otherwise."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"")
        found = given if _ID.fullmatch(given) else token_hex(8).encode()
        current_request.set(found.decode())
        # what cannot be encoded cannot be answered
        path = scope["path"].encode("utf-8", "replace").decode()
        current_path.set(path[:LONGEST])

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), (b"x-request-id", found)]}
            await send(message)

        await self._app(scope, receive, send_with_id)
