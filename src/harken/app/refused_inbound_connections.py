"""Connections and requests that the listener refused: counted by reason, logged at a bounded rate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

import structlog

__all__ = ["REFUSED", "RefusedConnections", "RefusedFor"]

RefusedFor = Literal[
    "connections",
    "address",
    "head_timeout",
    "body_timeout",
    "head_too_large",
    "malformed",
    "pipelined",
    "not_reading",
]
REFUSED: tuple[RefusedFor, ...] = get_args(RefusedFor)
LOG_SECONDS = 60.0

log = structlog.get_logger("harken.app")


class RefusedConnections:
    def __init__(self) -> None:
        self._counts: dict[RefusedFor, int] = {}
        self._logged: dict[RefusedFor, tuple[float, int]] = {}
        self.on_refused: Callable[[RefusedFor], None] = lambda reason: None

    def note(self, reason: RefusedFor, address: str, now: float) -> None:
        """Count a refusal. One line a minute for each reason is logged, with how many there were since the last."""
        count = self._counts[reason] = self._counts.get(reason, 0) + 1
        self.on_refused(reason)
        at, logged = self._logged.get(reason, (now - LOG_SECONDS, 0))
        if now - at >= LOG_SECONDS:
            self._logged[reason] = (now, count)
            log.warning("connection.refused", reason=reason, sender=address, unlogged=count - logged - 1)

    def counts(self) -> dict[str, int]:
        """How many there were since the start, for each reason that there was."""
        return {str(reason): count for reason, count in self._counts.items()}
