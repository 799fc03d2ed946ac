"""What a feed asks of Jira: the fields of a query, the JQL that they make, and what histories are held to."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import msgspec
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from harken.kit.query_fields import plain_value
from harken.kit.text import has_control_character
from harken.services.jira.api import Person
from harken.services.jira.event import Filter

__all__ = ["Meant", "Query", "any_of", "filter_of", "joined", "jql_of", "quoted", "since_clause", "whole_jql"]


LONGEST_JQL = 10_000

# the index may cut an instant off at its minute, and repeats are harmless
SLACK = timedelta(minutes=1)

_ORDER_BY = re.compile(r"\border\s+by\b", re.IGNORECASE)


def quoted(value: str) -> str:
    """The value as a JQL string; whatever is in it stays inside."""
    if has_control_character(value):
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
    if has_control_character(flat):
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


def _listed(value: Any) -> Any:
    """A plain value stands for a list of one."""
    values = value if isinstance(value, list | tuple) else [] if value is None else [value]
    return tuple(plain_value(one) for one in values)


Values = Annotated[tuple[str, ...], BeforeValidator(_listed)]


class Query(BaseModel):
    """Which issues. Several values of one field mean any of them, different fields mean all."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    assignee: Values = Field((), description="who it is assigned to: account id, e-mail address or user name")
    project: Values = Field((), description="key of a project, such as MYTEAM")
    projects: Values = Field((), description="keys of projects")
    issue_types: Values = Field((), description="names of issue types, such as Bug")
    statuses: Values = Field((), description="names of statuses, such as In Progress")
    mentioned: Values = Field((), description="users who are mentioned in the description or a comment")
    labels: Values = Field((), description="labels")
    jql: str = Field("", description="more conditions as raw JQL, without ORDER BY; needs allow_jql")
    allow_jql: bool = Field(False, description="allow raw JQL")

    @field_validator("jql")
    @classmethod
    def _whole(cls, value: str) -> str:
        return whole_jql(value) if value else ""

    @model_validator(mode="after")
    def _allowed(self) -> Query:
        if self.jql and not self.allow_jql:
            raise ValueError("jql is read by Jira as it stands: add allow_jql: true if that is meant")
        return self

    @property
    def all_projects(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.project, *self.projects)))

    def fingerprint(self) -> str:
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:16]


class Meant(msgspec.Struct, frozen=True, kw_only=True):
    """The users that a query names."""

    assignees: tuple[Person, ...] = ()
    mentioned: tuple[Person, ...] = ()


def jql_of(query: Query, meant: Meant, since: datetime) -> str:
    """The whole JQL. Raw JQL may hold for what has not changed, so it is asked without a time."""
    clauses = [
        any_of("project", query.all_projects),
        any_of("assignee", [person.id for person in meant.assignees]),
        any_of("issuetype", query.issue_types),
        any_of("status", query.statuses),
        any_of("labels", query.labels),
    ]
    if query.jql:
        return joined([*clauses, f"({query.jql})"], "created ASC, key ASC")
    return joined([*clauses, since_clause(since)], "updated ASC, key ASC")


def filter_of(query: Query, meant: Meant) -> Filter:
    """What a history is held to. A mention is an occurrence of its own, whatever else the issue is."""
    if query.mentioned:
        return Filter(mentioned=_ids(meant.mentioned))
    return Filter(
        assignees=_ids(meant.assignees),
        statuses=_folded(query.statuses),
        types=_folded(query.issue_types),
        labels=_folded(query.labels),
        projects=_folded(query.all_projects),
    )


def _ids(people: Sequence[Person]) -> frozenset[str]:
    return frozenset[str]().union(*(person.ids for person in people))


def _folded(values: Sequence[str]) -> frozenset[str]:
    return frozenset(value.casefold() for value in values)
