"""The limit of the webhook flow: the same server around an application that reads the body and does nothing."""

from __future__ import annotations

from typing import Any

from bench.loopback import serve

__all__ = ["blank"]

HEADERS = [(b"content-type", b"application/json"), (b"content-length", b"28")]
ANSWER = b'{"accepted":1,"duplicate":0}'


async def blank(scope: Any, receive: Any, send: Any) -> None:
    message = await receive()
    while message.get("more_body"):
        message = await receive()
    await send({"type": "http.response.start", "status": 202, "headers": HEADERS})
    await send({"type": "http.response.body", "body": ANSWER})


if __name__ == "__main__":
    serve(blank)
