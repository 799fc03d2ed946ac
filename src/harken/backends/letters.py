"""Dead letters as people see them, whichever store holds them."""

from __future__ import annotations

from datetime import datetime

from harken.runs import Run
from harken.store import Buried

__all__ = ["dead_run", "refused_event"]


def dead_run(found: Run) -> Buried:
    return Buried(
        id=found.id,
        what="run",
        trigger=found.trigger,
        key=", ".join(found.event_keys),
        reason=found.error,
        at=found.finished_at or found.created_at,
    )


def refused_event(number: int, feed: str, key: str, reason: str, at: datetime) -> Buried:
    return Buried(id=f"event-{number}", what="event", trigger=feed, key=key, reason=reason, at=at)
