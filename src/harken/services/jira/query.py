"""What a feed asks of Jira: the fields of a query, the JQL that they make, and what histories are held to."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

import msgspec
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from harken.kit.query_fields import plain_value
from harken.services.jira.event import Filter
from harken.services.jira.jql import any_of, joined, since_clause, whole_jql
from harken.services.jira.people import Person

__all__ = ["Meant", "Query", "filter_of", "jql_of"]


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
