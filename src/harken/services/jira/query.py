"""Which issues a feed asks for, the JQL that finds them, and the filter that their histories are compared with."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import msgspec
from pydantic import BeforeValidator, Field, field_validator, model_validator

from harken.kit.models import QueryModel
from harken.kit.query_fields import plain_value
from harken.kit.safe_text import has_control_character
from harken.services.jira.api import Person
from harken.services.jira.events_from_issue_history import Filter

__all__ = ["Query", "QueryPeople", "changed_jql", "check_jql", "filter_of", "jql_of", "labelled_jql", "quote"]

LONGEST_JQL = 10_000
# Jira's index may cut times to the minute, and reading an issue twice is harmless
SLACK = timedelta(minutes=1)
_ORDER_BY = re.compile(r"\border\s+by\b", re.IGNORECASE)


def _as_values(value: Any) -> Any:
    """One value becomes a list of one."""
    values = value if isinstance(value, list | tuple) else [] if value is None else [value]
    return tuple(plain_value(one) for one in values)


Values = Annotated[tuple[str, ...], BeforeValidator(_as_values)]


class Query(QueryModel):
    """Several values of one field mean any of them, different fields mean all."""

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
    def _check_jql(cls, value: str) -> str:
        return check_jql(value) if value else ""

    @model_validator(mode="after")
    def _check_allowed(self) -> Query:
        if self.jql and not self.allow_jql:
            raise ValueError("jql is read by Jira as it stands: add allow_jql: true if that is meant")
        return self

    @property
    def all_projects(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.project, *self.projects)))

    def fingerprint(self) -> str:
        # stored cursors hold this one, so it stays apart from QueryModel's
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:16]


class QueryPeople(msgspec.Struct, frozen=True, kw_only=True):
    """The users that a query names, looked up."""

    assignees: tuple[Person, ...] = ()
    mentioned: tuple[Person, ...] = ()


def jql_of(query: Query, people: QueryPeople, since: datetime) -> str:
    """Return the whole JQL. Raw JQL can become true without a change of the issue, so it is searched without a time."""
    clauses = [
        _any_of("project", query.all_projects),
        _any_of("assignee", [person.id for person in people.assignees]),
        _any_of("issuetype", query.issue_types),
        _any_of("status", query.statuses),
        _any_of("labels", query.labels),
    ]
    if query.jql:
        return _join([*clauses, f"({query.jql})"], "created ASC, key ASC")
    return _join([*clauses, _changed_since(since)], "updated ASC, key ASC")


def labelled_jql(project: str, labels: Sequence[str], *, closed: bool) -> str:
    """Return the JQL for issues with any of these labels. Without a project those of all projects are meant."""
    clauses = [_in_project(project), _any_of("labels", labels), "" if closed else "statusCategory != Done"]
    return _join(clauses, "updated ASC, key ASC")


def changed_jql(project: str, since: datetime) -> str:
    return _join([_in_project(project), _changed_since(since)], "updated ASC, key ASC")


def filter_of(query: Query, people: QueryPeople) -> Filter:
    """Return what a history is compared with. A mention is an occurrence of its own, whatever else the issue is."""
    if query.mentioned:
        return Filter(mentioned=_ids(people.mentioned))
    return Filter(
        assignees=_ids(people.assignees),
        statuses=_folded(query.statuses),
        types=_folded(query.issue_types),
        labels=_folded(query.labels),
        projects=_folded(query.all_projects),
    )


def _ids(people: Sequence[Person]) -> frozenset[str]:
    return frozenset[str]().union(*(person.ids for person in people))


def _folded(values: Sequence[str]) -> frozenset[str]:
    return frozenset(value.casefold() for value in values)


def quote(value: str) -> str:
    """The value as a JQL string. Nothing in it can end the quotes."""
    if has_control_character(value):
        raise ValueError("holds a control character")
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _in_project(key: str) -> str:
    return f"project = {quote(key)}" if key else ""


def _any_of(field: str, values: Iterable[str]) -> str:
    """The clause that the field has one of the values; empty when there are none."""
    listed = ", ".join(quote(value) for value in values)
    return f"{field} in ({listed})" if listed else ""


def _changed_since(instant: datetime) -> str:
    """Changed at this instant or later.

    Milliseconds since 1970 are absolute. A written date would be read in the time zone of the user's profile, which
    has an hour twice in autumn, and which the user may change.
    """
    minute = instant.astimezone(UTC).replace(second=0, microsecond=0) - SLACK
    return f"updated >= {int(minute.timestamp() * 1000)}"


def _join(clauses: Sequence[str], order: str) -> str:
    """Join the clauses that are not empty."""
    return f"{' AND '.join(clause for clause in clauses if clause)} ORDER BY {order}".strip()


def check_jql(text: str) -> str:
    """Return raw JQL on one line, if it is complete and can be put into parentheses. Raise ValueError otherwise."""
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
