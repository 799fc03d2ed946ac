"""A tap as a child process, and the file that it sends."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

from harken.services.singer import Query, TapSource
from harken.source import Host
from harken.testing import START, HandClock
from tests.services.programs import POLLERS


class Orders:
    """A service for SourceContract: what is put is written into the file that the tap sends."""

    page_size = 3
    since = START - timedelta(seconds=1)

    def __init__(self, folder: Path, clock: HandClock, host: Host, **options: Any) -> None:
        self.file = folder / "orders.jsonl"
        self.file.touch()
        self._clock = clock
        self._numbers = count(1)
        config = {"file": str(self.file), **options.pop("config", {})}
        # the test's directory on its command line lets it be found among all processes
        tap = [sys.executable, str(POLLERS / "tap.py"), str(folder)]
        self.source = TapSource(Query.model_validate({"tap": tap, "config": config, **options}), host)

    async def put(self, count: int, *, tied: bool = False) -> Sequence[str]:
        names = [f"i{next(self._numbers)}" for _ in range(count)]
        with self.file.open("a") as file:
            for name in names:
                self._clock.advance(0 if tied else 10)
                file.write(json.dumps({"id": name, "at": self._clock.now().isoformat()}) + "\n")
        return [f"orders/{name}" for name in names]

    async def expire(self) -> bool:
        return False
