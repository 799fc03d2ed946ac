"""What a run of a ticket came to: who was trusted to start it, what it cost, and the pull request it made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harken.operate.output_rows import Plain
from harken.runs import StepRecord

__all__ = ["summary_of"]

_WEB_SCHEMES = ("http://", "https://")


def summary_of(journal: Sequence[StepRecord]) -> Plain:
    """The result that a run's journal shows so far. What is not known, or has not happened, is empty or 0."""
    return {
        "labelled_by": _labelled_by(journal),
        "tokens": sum(step.tokens for step in journal),
        "usd": sum(step.usd for step in journal),
        "pull_request": _pull_request(journal),
    }


def _labelled_by(journal: Sequence[StepRecord]) -> str:
    """Who put the trigger label on, by the newest look at the ticket. Only someone who is trusted gets that far."""
    for step in reversed(journal):
        if step.action == "ticket.preflight" and step.status == "ok":
            return _text(step.output, "labelled_by")
    return ""


def _pull_request(journal: Sequence[StepRecord]) -> str:
    """The address of the newest pull request that a step reported, if it is a web address."""
    for step in reversed(journal):
        names = ("pr_url", "pull_request", "url") if "pull_request" in step.action else ("pr_url",)
        for name in names:
            found = _text(step.output, name)
            if found.startswith(_WEB_SCHEMES):
                return found
    return ""


def _text(output: Any, name: str) -> str:
    value = output.get(name) if isinstance(output, Mapping) else None
    return value if isinstance(value, str) else ""
