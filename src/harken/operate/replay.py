"""What a stored event would give a trigger as its input, by the same matching that live events go through."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from harken.errors import Refused
from harken.event import Event, Recorded, Verdict
from harken.feed import Feed, Trigger, TriggerState

__all__ = ["input_for"]

ALWAYS = datetime(1970, 1, 1, tzinfo=UTC)


def input_for(event: Recorded, trigger: Trigger, state: TriggerState, feed: Feed, now: datetime) -> bytes:
    """The mapped input as JSON; empty when the trigger takes the event as it is. Conditions are not asked."""
    from harken.match import Read, Rule, Rules, Sighting, match

    willing = msgspec.structs.replace(trigger, condition="", gather=None, overlap="allow", types=())
    rule = Rule(willing, msgspec.structs.replace(state, start_line=ALWAYS, paused=""))
    again = Event(
        subject=event.subject,
        type=event.type,
        data=event.data,
        key=event.key,
        state=event.state,
        occurred_at=event.occurred_at,
    )
    entries = match([Sighting(again, "", 0, 1)], Rules(0, feed, (rule,)), Read(now=now))
    decision = entries[0].decisions[0]
    if isinstance(decision, Verdict):
        message = f"the input of {trigger.name} cannot be made of event {event.id}: {decision.reason}"
        raise Refused(message, fix="Mend its input_mapping, then replay")
    return decision.input
