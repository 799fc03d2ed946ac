"""An application on loopback, in a process of its own, behind the server that Harken itself has."""

from __future__ import annotations

import asyncio
from typing import Any

from harken.app.http_protocol import Connections
from harken.app.inbound_connection_limits import Limits
from harken.app.server import Listener, bind

__all__ = ["serve"]


def serve(app: Any) -> None:
    """Serve on any free port, and say which."""
    import uvloop

    uvloop.run(_serve(app))


async def _serve(app: Any) -> None:
    # whoever measures may connect as often as it likes
    connections = Connections(Limits(connections=100_000))
    listener = Listener(app, bind("127.0.0.1", 0), connections)
    await listener.start()
    print(listener.port, flush=True)
    await asyncio.Event().wait()
