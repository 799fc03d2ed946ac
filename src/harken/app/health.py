"""How we are: the age of the last success, not the presence of a process."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from harken.clock import Clock

__all__ = ["Health", "Subsystem"]

Subsystem = tuple[str, str, str]
"""name, state (up, degraded, down, disabled), reason"""


class Health:
    """Remembers since when each subsystem has been in its state."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: dict[str, tuple[str, datetime]] = {}

    def report(self, subsystems: list[Subsystem]) -> Mapping[str, Any]:
        rows = [self._row(*subsystem) for subsystem in subsystems]
        states = {row["state"] for row in rows}
        status = "down" if "down" in states else "degraded" if "degraded" in states else "up"
        return {"status": status, "subsystems": rows}

    def _row(self, name: str, state: str, reason: str) -> dict[str, Any]:
        before = self._since.get(name)
        if before is None or before[0] != state:
            before = self._since[name] = (state, self._clock.now())
        return {"name": name, "state": state, "reason": reason, "since": before[1]}
