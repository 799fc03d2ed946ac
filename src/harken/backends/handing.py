"""Runs that a commit hands to its caller at once, together with the event that started them."""

from __future__ import annotations

from datetime import datetime

import msgspec

from harken.event import Event, Recorded, Verdict
from harken.runs import Claimed
from harken.store import Intent

__all__ = ["first_claim", "just_recorded"]


def just_recorded(event: Event, event_id: int, feed: str, now: datetime, verdicts: tuple[Verdict, ...]) -> Recorded:
    """The event as it would be read back."""
    return Recorded(
        id=event_id,
        feed=feed,
        key=event.key,
        subject=event.subject,
        state=event.state,
        type=event.type,
        occurred_at=event.occurred_at,
        recorded_at=now,
        data=event.data,
        verdicts=verdicts,
    )


def first_claim(intent: Intent, run_id: bytes, trigger: str, recorded: Recorded) -> Claimed:
    """The claim that is made together with its run."""
    return Claimed(
        id=run_id.hex(),
        token=1,
        trigger=trigger,
        workflow_rev=intent.workflow_rev,
        attempt=1,
        max_attempts=intent.max_attempts,
        events=(recorded,),
        input=msgspec.json.decode(intent.input) if intent.input else None,
        created_at=recorded.recorded_at,
        alone=not intent.slot,
    )
