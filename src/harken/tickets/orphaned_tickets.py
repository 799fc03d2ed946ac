"""Tickets that say that they have a run, of which we know nothing: the store was lost, or somebody set the label.

They are made pending again, but only if they were seen so more than once, over a time in which no clock jumped.
"""

from __future__ import annotations

from datetime import timedelta

import msgspec

from harken.clock import Clock
from harken.ticket import Ticket
from harken.tickets.lifecycle_labels import Lifecycle

__all__ = ["Orphans"]

_AFTER = {Lifecycle.IN_PROGRESS: timedelta(minutes=1), Lifecycle.ENQUEUED: timedelta(minutes=10)}
JUMP_SECONDS = 5.0


class _Sighting(msgspec.Struct, frozen=True):
    state: Lifecycle
    at: float
    wall: float


class Orphans:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[str, _Sighting] = {}

    def is_stale(self, ticket: Ticket, state: Lifecycle | None) -> bool:
        """Note that the ticket was seen in this state without a memory of ours; return whether it was so for long."""
        if state not in _AFTER:
            self.forget(ticket.id)
            return False
        now, wall, limit = self._clock.monotonic(), self._clock.time(), _AFTER[state]
        first = self._seen.get(ticket.id)
        if first is None or first.state is not state or abs((wall - first.wall) - (now - first.at)) > JUMP_SECONDS:
            self._seen[ticket.id] = _Sighting(state, now, wall)
            return False
        if now - first.at < limit.total_seconds():
            return False
        # somebody who is at work on it changes it now and then
        return ticket.updated_at is None or wall - ticket.updated_at.timestamp() >= limit.total_seconds()

    def forget(self, id: str) -> None:
        self._seen.pop(id, None)
