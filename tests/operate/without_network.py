"""Replays dry and backtests where nobody can be reached, and any try to reach somebody is fatal.

Run as `python -m tests.operate.without_network DIRECTORY`. With a second argument it tries to reach somebody itself.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

from tests.operate.operator_world import trigger
from tests.operate.test_backtest import item, office_with

REACHED_OUT = 7
FATAL = frozenset({"socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto"})


def _refuse(event: str, arguments: Any) -> None:
    if event in FATAL:
        os.write(2, f"{event} {arguments[1:]}\n".encode())
        os._exit(REACHED_OUT)


async def main(directory: Path, *, reaches: bool) -> None:
    async with office_with(directory, trigger(condition='event.urgency == "high"')) as office:
        for name, urgency in (("A", "high"), ("B", "low"), ("C", "high")):
            await office.shows(item(office, name, urgency=urgency))
            office.clock.advance(60)
        sys.addaudithook(_refuse)
        if reaches:
            socket.create_connection(("127.0.0.1", 9), timeout=1)
        replayed = await office.ask("events.replay_range", trigger="oncall", since="1h", dry=True)
        tested = await office.ask("triggers.backtest", name="oncall", condition="true")
        interfaces = [name for _, name in socket.if_nameindex()]
        answer = {"replayed": replayed["started"], "tested": len(tested["lines"]), "interfaces": interfaces}
        sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), reaches=len(sys.argv) > 2))
