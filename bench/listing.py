"""A JSON service on loopback, in a process of its own: `/etag/N` knows conditional requests, `/plain/N` does not."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from harken.app.serve import Listener, bind

__all__ = ["ETAG", "WORKFLOW", "main"]

ETAG = '"unchanged"'
ITEMS = msgspec.json.encode([{"id": f"item-{number}", "title": "something", "text": "x" * 60} for number in range(20)])
LENGTH = (b"content-length", str(len(ITEMS)).encode())
JSON = (b"content-type", b"application/json")
WORKFLOW = """name: {name}
trigger:
  poll:
    integration: json
    interval: {interval}
    query:
      url: {url}
      id_field: id
      allow_private_networks: true
  condition: event.title == "something"
steps: []
"""


async def listing(scope: Any, receive: Any, send: Any) -> None:
    conditional = scope["path"].startswith("/etag/")
    if conditional and (b"if-none-match", ETAG.encode()) in scope["headers"]:
        await send({"type": "http.response.start", "status": 304, "headers": [(b"etag", ETAG.encode())]})
        await send({"type": "http.response.body", "body": b""})
        return
    headers = [JSON, LENGTH, (b"etag", ETAG.encode())] if conditional else [JSON, LENGTH]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": ITEMS})


async def _serve() -> None:
    listener = Listener(listing, bind("127.0.0.1", 0))
    await listener.start()
    print(listener.port, flush=True)
    await asyncio.Event().wait()


def main() -> None:
    """Serve on any free port, and say which."""
    import uvloop

    uvloop.run(_serve())


if __name__ == "__main__":
    main()
