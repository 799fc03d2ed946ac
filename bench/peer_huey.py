"""huey as a webhook receiver: verified, put into its SQLite queue, answered; a thread of this process runs the task.

Runs in an environment of its own, with huey and aiohttp: `python peer_huey.py DIRECTORY PORT`.
"""

from __future__ import annotations

import hmac
import json
import logging
import sys
import threading
from importlib import import_module
from typing import Any

SECRET = b"bench-secret-of-some-length"


def main(directory: str, port: int) -> None:
    from aiohttp import web

    # by name: it is not among the packages that Harken is checked with
    module: Any = import_module("huey")
    huey = module.SqliteHuey(filename=f"{directory}/huey.db", fsync=True, results=False)

    def nothing(event: object) -> None:
        """Does nothing, as the measured workflow of Harken."""

    handle = huey.task()(nothing)

    async def receive(request: web.Request) -> web.Response:
        body = await request.read()
        given = request.headers.get("x-signature-256", "").removeprefix("sha256=")
        if not hmac.compare_digest(given, hmac.digest(SECRET, body, "sha256").hex()):
            return web.Response(status=401)
        event = json.loads(body)
        if event.get("severity") == "high":
            handle(event)
        return web.json_response({"accepted": 1}, status=202)

    logging.disable(logging.WARNING)
    consumer = huey.create_consumer(workers=1, periodic=False, initial_delay=0.01, max_delay=0.05, backoff=1.15)
    # its own run() sets signal handlers, which only the main thread may do
    consumer.start()
    threading.current_thread().name = "web"
    app = web.Application()
    app.router.add_post("/webhooks/generic/bench", receive)
    web.run_app(app, host="127.0.0.1", port=port, print=None, access_log=None)
    consumer.stop(graceful=False)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
