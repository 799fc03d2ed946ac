"""JQL made of values that strangers chose: every value is quoted, and raw JQL cannot leave its parentheses.

The language: https://support.atlassian.com/jira-software-cloud/docs/jql-fields/
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

from harken.kit.query_fields import has_control

__all__ = ["any_of", "joined", "quoted", "since_clause", "whole_jql"]

LONGEST_JQL = 10_000
# the index may cut an instant off at its minute, and repeats are harmless
SLACK = timedelta(minutes=1)
_ORDER_BY = re.compile(r"\border\s+by\b", re.IGNORECASE)


def quoted(value: str) -> str:
    """The value as a JQL string; whatever is in it stays inside."""
    if has_control(value):
        raise ValueError("holds a control character")
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def any_of(field: str, values: Iterable[str]) -> str:
    """The field has one of the values; empty when there are none."""
    listed = ", ".join(quoted(value) for value in values)
    return f"{field} in ({listed})" if listed else ""


def since_clause(instant: datetime) -> str:
    """Changed at this instant or later.

    Milliseconds since 1970 are absolute. A written date would be read in the time zone of the user's profile, which
    has an hour twice in autumn, and which the user may change.
    """
    minute = instant.astimezone(UTC).replace(second=0, microsecond=0) - SLACK
    return f"updated >= {int(minute.timestamp() * 1000)}"


def joined(clauses: Sequence[str], order: str) -> str:
    """All clauses that are not empty, in this order."""
    return f"{' AND '.join(clause for clause in clauses if clause)} ORDER BY {order}".strip()


def whole_jql(text: str) -> str:
    """Raw JQL that is complete in itself, so that it can stand in parentheses. ValueError says what is wrong."""
    flat = text.replace("\r\n", " ").replace("\n", " ").replace("\t", " ").strip()
    if not flat:
        raise ValueError("must not be empty")
    if len(flat) > LONGEST_JQL:
        raise ValueError(f"is longer than {LONGEST_JQL} characters")
    if has_control(flat):
        raise ValueError("holds a control character. Remove it")
    bare = _outside_quotes(flat)
    if "\\" in bare:
        raise ValueError("has a backslash outside of quotes. Put that value into quotes")
    _check_parentheses(bare)
    if _ORDER_BY.search(bare):
        raise ValueError("must not have ORDER BY: issues are read in the order in which they changed")
    return flat


def _outside_quotes(text: str) -> str:
    """The text with a blank in place of every quoted value."""
    bare: list[str] = []
    mark, escaped = "", False
    for letter in text:
        if mark:
            closed = letter == mark and not escaped
            escaped = letter == "\\" and not escaped
            mark = "" if closed else mark
        elif letter in "\"'":
            mark = letter
            bare.append(" ")
        else:
            bare.append(letter)
    if mark:
        raise ValueError(f"has a {mark} that is never closed")
    return "".join(bare)


def _check_parentheses(bare: str) -> None:
    depth = 0
    for letter in bare:
        depth += (letter == "(") - (letter == ")")
        if depth < 0:
            raise ValueError("closes a parenthesis that was not opened")
    if depth:
        raise ValueError("has a parenthesis that is never closed")
