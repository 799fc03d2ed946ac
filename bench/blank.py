"""The limit of the webhook flow: the same server around an application that reads the body and does nothing."""

from __future__ import annotations

import asyncio
from typing import Any

from harken.app.serve import Listener, bind

__all__ = ["main"]

HEADERS = [(b"content-type", b"application/json"), (b"content-length", b"28")]
ANSWER = b'{"accepted":1,"duplicate":0}'


async def blank(scope: Any, receive: Any, send: Any) -> None:
    message = await receive()
    while message.get("more_body"):
        message = await receive()
    await send({"type": "http.response.start", "status": 202, "headers": HEADERS})
    await send({"type": "http.response.body", "body": ANSWER})


async def _serve() -> None:
    listener = Listener(blank, bind("127.0.0.1", 0))
    await listener.start()
    print(listener.port, flush=True)
    await asyncio.Event().wait()


def main() -> None:
    """Serve on any free port, and say which."""
    import uvloop

    uvloop.run(_serve())


if __name__ == "__main__":
    main()
