"""`harken budget`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harken.cli.invocation import Session, command
from harken.cli.output import Column, clock, listing, say

__all__ = ["budget_command"]


def _rate(row: Mapping[str, Any]) -> str:
    rate = row["rate_limit"]
    if rate is None:
        return ""
    if rate >= 1 and rate % 1 == 0:
        return f"{rate:g}/s"
    return f"{rate * 60:g}/min" if rate * 60 >= 1 else f"{rate * 3600:g}/h"


COLUMNS: tuple[Column, ...] = (
    ("integration", "integrations"),
    ("credential", "credential"),
    ("limit", "limit"),
    ("left", "remaining"),
    ("resets", "resets_at"),
    ("blocked until", lambda row: row["blocked_until"] and clock(row["blocked_until"])),
    ("waiting", "waiting"),
    ("rate limit", _rate),
    ("reads/h", "reads_per_hour"),
)


@command(None, "budget")
def budget_command(session: Session) -> None:
    """Show what each credential may still ask of its service: limits, what is left, who waits."""
    answer = session.call("budget.list")
    listing(session, answer, COLUMNS, "Nothing that is configured calls a service.")
    if session.as_json:
        return
    for row in answer["items"]:
        if row["reason"]:
            say(f"{', '.join(row['integrations']) or row['credential']}: {row['reason']}")
