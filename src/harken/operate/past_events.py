"""A recorded event as the event that matching saw."""

from __future__ import annotations

from harken.event import Event, Recorded

__all__ = ["event_of"]


def event_of(recorded: Recorded) -> Event:
    return Event(
        subject=recorded.subject,
        type=recorded.type,
        data=recorded.data,
        key=recorded.key,
        state=recorded.state,
        occurred_at=recorded.occurred_at,
    )
