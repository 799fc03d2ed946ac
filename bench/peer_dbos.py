"""DBOS as a webhook receiver: verified, and a durable workflow with one step started for it, on SQLite.

Runs in an environment of its own, with dbos and aiohttp: `python peer_dbos.py DIRECTORY PORT`.
"""

from __future__ import annotations

import hmac
import json
import sys
from importlib import import_module
from typing import Any

SECRET = b"bench-secret-of-some-length"


def main(directory: str, port: int) -> None:
    from aiohttp import web

    # by name: it is not among the packages that Harken is checked with
    module: Any = import_module("dbos")
    dbos = module.DBOS
    config = {
        "name": "bench",
        "system_database_url": f"sqlite:///{directory}/dbos.sqlite",
        "log_level": "ERROR",
        "run_admin_server": False,
    }
    dbos(config=config)

    async def nothing(event: dict[str, object]) -> None:
        """Does nothing, as the measured workflow of Harken."""

    handle = dbos.workflow()(nothing)
    dbos.launch()

    async def receive(request: web.Request) -> web.Response:
        body = await request.read()
        given = request.headers.get("x-signature-256", "").removeprefix("sha256=")
        if not hmac.compare_digest(given, hmac.digest(SECRET, body, "sha256").hex()):
            return web.Response(status=401)
        event = json.loads(body)
        if event.get("severity") == "high":
            # the id of the event, so that one that is sent twice runs once
            with module.SetWorkflowID(str(event["id"])):
                await dbos.start_workflow_async(handle, event)
        return web.json_response({"accepted": 1}, status=202)

    app = web.Application()
    app.router.add_post("/webhooks/generic/bench", receive)
    web.run_app(app, host="127.0.0.1", port=port, print=None, access_log=None)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
