"""WIQL made of values that strangers chose: every value is quoted, and nothing of it can leave its quotes.

https://learn.microsoft.com/en-us/azure/devops/boards/queries/wiql-syntax
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from harken.kit.query_fields import plain_value

__all__ = ["any_of", "changed", "quoted", "whole"]


def quoted(value: str) -> str:
    """The value as a WIQL string; a quote within is doubled, and there is no other way out."""
    return "'" + plain_value(value).replace("'", "''") + "'"


def any_of(field: str, values: Iterable[str]) -> str:
    """The field has one of the values; empty when there are none."""
    several = ", ".join(quoted(value) for value in values)
    return f"[{field}] IN ({several})" if several else ""


def changed(start: datetime, end: datetime | None) -> str:
    """Changed at `start` or later, and before `end`."""
    until = f" AND [System.ChangedDate] < '{_instant(end)}'" if end else ""
    return f"[System.ChangedDate] >= '{_instant(start)}'{until}"


def whole(clauses: Sequence[str]) -> str:
    """The query for the ids of all work items of the project for which every clause holds, oldest change first."""
    where = " AND ".join(clause for clause in ("[System.TeamProject] = @project", *clauses) if clause)
    return f"SELECT [System.Id] FROM WorkItems WHERE {where} ORDER BY [System.ChangedDate], [System.Id]"


def _instant(at: datetime) -> str:
    # without the Z it would be a time in the zone of the user's profile
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03d}Z"
