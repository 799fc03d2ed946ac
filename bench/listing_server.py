"""A JSON service on loopback, in a process of its own: `/etag/N` knows conditional requests, `/plain/N` does not."""

from __future__ import annotations

from typing import Any

import msgspec

from bench.loopback import serve

__all__ = ["ETAG", "WORKFLOW", "listing"]

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


if __name__ == "__main__":
    serve(listing)
