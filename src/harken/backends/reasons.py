"""Why a verdict is what it is, or why a store ended a run by itself: the words are the same in every store."""

from __future__ import annotations

from collections.abc import Iterable

from harken.event import Verdict

__all__ = ["BY_HAND", "DROPPED", "HAS_ITS_RUN", "HOLD_REASONS", "NOT_OVER", "REPLACED", "gathered_as", "repeated"]

HOLD_REASONS = {
    "flood": "the flood guard holds the runs of a first read",
    "paused": "the trigger is paused",
    "budget": "the trigger's budget is spent",
}
HAS_ITS_RUN = "this occurrence has its run already"
NOT_OVER = "an earlier run of this key is not over"
REPLACED = "a newer run of this key took its place"
BY_HAND = "cancelled by hand"
DROPPED = "dropped by hand while it was held"


def gathered_as(number: int, reason: str) -> str:
    return f"event {number} of the run that is gathering" + (f": {reason}" if reason else "")


def repeated(first: int, earlier: Iterable[Verdict], triggers: Iterable[str]) -> tuple[Verdict, ...]:
    """For an event that is known already: whatever was wanted has its run by the first of its kind."""
    run_ids = {verdict.trigger: verdict.run_id for verdict in earlier}
    reason = f"the same occurrence as event {first}"
    return tuple(
        Verdict(trigger=trigger, outcome="duplicate", reason=reason, run_id=run_ids.get(trigger, ""))
        for trigger in triggers
    )
