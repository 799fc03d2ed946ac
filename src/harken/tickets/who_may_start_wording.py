"""What we write on a ticket about who may start its run, and who may answer."""

from __future__ import annotations

from math import ceil

from harken.tickets.labeller_trust import Trust
from harken.tickets.unique_comments import inert

__all__ = ["approval_question", "how_to_start", "question_text", "who_may"]

MOST_NAMES = 5


def who_may(trust: Trust) -> str:
    """Whose label or answer counts, as part of a sentence."""
    if isinstance(trust.label, tuple):
        names = [inert(name) for name in trust.label[:MOST_NAMES]]
        more = ["others who are listed"] if len(trust.label) > MOST_NAMES else []
        return " or ".join([*names, *more]) or "nobody"
    return "anybody" if trust.label == "anyone" else f"somebody with {trust.label} access"


def how_to_start(trust: Trust, label: str, seen_within: float) -> str:
    """What to do about a ticket that was not started because its label is not trusted.

    `seen_within`: after so many seconds a label that is taken off is noticed; before that, nothing has changed."""
    if not label:
        return f"Only tickets by {who_may(trust)} are started"
    minutes = ceil(seen_within / 60)
    later = f" {minutes} minute{'s' if minutes > 1 else ''} later" if minutes else ""
    return f"To start it, {who_may(trust)} can take the label {label} off and put it on again{later}"


def question_text(question: str, trust: Trust) -> str:
    return f"{question}\n\nPlease answer with a comment: the first one by {who_may(trust)} counts."


def approval_question(why: str, trust: Trust, run: str) -> str:
    return (
        f"This run waits for approval: {why}. It begins when {who_may(trust)} comments `approve`, and is dropped after "
        f"`reject`. An operator can do the same with `harken runs approve {run[:12]}`."
    )
