"""A recorded event as the event that matching saw."""

from __future__ import annotations

from typing import Any

import msgspec

from harken.event import Event, Recorded
from harken.match import variables_of

__all__ = ["event_of", "past_variables"]


def event_of(recorded: Recorded) -> Event:
    return Event(
        subject=recorded.subject,
        type=recorded.type,
        data=recorded.data,
        key=recorded.key,
        state=recorded.state,
        occurred_at=recorded.occurred_at,
    )


def past_variables(recorded: Recorded) -> dict[str, Any]:
    """What a condition saw of the event: it was no replay."""
    event = event_of(recorded)
    return variables_of(msgspec.structs.replace(event, data={"replay": False, **event.data}), recorded.feed)
