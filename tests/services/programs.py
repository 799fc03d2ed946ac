"""A poller as a child process, and the file that it shows."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

from harken.services.exec import Query, StdioPoller
from harken.source import Host
from harken.testing import START, HandClock

POLLERS = Path(__file__).parent / "pollers"


class Ledger:
    """A service for SourceContract: what is put is written into the file that the program reads."""

    page_size = 3
    since = START - timedelta(seconds=1)

    def __init__(self, folder: Path, clock: HandClock, host: Host, **options: Any) -> None:
        self.file = folder / "items.jsonl"
        self.file.touch()
        self._clock = clock
        self._numbers = count(1)
        config = {"file": str(self.file), "page": self.page_size, **options.pop("config", {})}
        command = options.pop("command", [sys.executable, str(POLLERS / "lines_poller.py")])
        self.query = Query.model_validate({"command": command, "config": config, **options})
        self.source = StdioPoller(self.query, host)

    async def put(self, count: int, *, tied: bool = False) -> Sequence[str]:
        names = [f"i{next(self._numbers)}" for _ in range(count)]
        with self.file.open("a") as file:
            for name in names:
                self._clock.advance(0 if tied else 10)
                file.write(json.dumps({"id": name, "occurred_at": self._clock.now().isoformat()}) + "\n")
        return names

    async def expire(self) -> bool:
        return False
