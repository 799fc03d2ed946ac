"""Which work items a feed asks for, and the WIQL that finds them.

Values are always quoted, so nothing that a person or a template wrote can leave its quotes.
https://learn.microsoft.com/en-us/azure/devops/boards/queries/wiql-syntax
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, field_validator

from harken.kit.models import QueryModel
from harken.kit.query_fields import as_text_list, plain_value, unique_names
from harken.services.azure_devops.api import Project

__all__ = ["Query", "Tag", "changed_clause", "has_any_tag", "none_of", "whole_query"]

NOBODY = "none"


def _check_tag(value: str) -> str:
    name = plain_value(value)
    if ";" in name or "," in name:
        raise ValueError("Azure DevOps takes ; and , for the end of a tag: write several tags as a list")
    return name


def _check_person(value: str) -> str:
    name = plain_value(value)
    if name.startswith("@") or name.lower() == "me":
        raise ValueError("write the e-mail address: harken integrations azure_devops whoami shows yours")
    return name


Value = Annotated[str, AfterValidator(plain_value)]
Tag = Annotated[str, AfterValidator(_check_tag)]


class Query(QueryModel):
    """Work items with all of `tags`, one of `types` and one of `states`."""

    projects: Annotated[tuple[Project, ...], BeforeValidator(as_text_list)] = Field(
        min_length=1, max_length=100, description="projects, by name"
    )
    types: Annotated[tuple[Value, ...], BeforeValidator(as_text_list)] = Field(
        (), max_length=50, description="types of work items, such as Bug; one is enough"
    )
    states: Annotated[tuple[Value, ...], BeforeValidator(as_text_list)] = Field(
        (), max_length=50, description="states, such as New or Active; one is enough"
    )
    tags: Annotated[tuple[Tag, ...], BeforeValidator(as_text_list)] = Field(
        (), max_length=20, description="tags that a work item must have, all of them; capitals do not matter"
    )
    assigned_to: Annotated[str, AfterValidator(_check_person)] | None = Field(
        None, description="e-mail address of who it is assigned to; none: to nobody"
    )
    area_path: Value | None = Field(None, description="area, with those below it, such as Shop\\Checkout")

    _unique = field_validator("projects")(unique_names)

    def clauses(self) -> list[str]:
        """The query as clauses of WIQL."""
        person = "" if self.assigned_to is None else "''" if self.to_nobody else _quote(self.assigned_to)
        return [
            _any_of("System.WorkItemType", self.types),
            _any_of("System.State", self.states),
            *(f"[System.Tags] CONTAINS {_quote(tag)}" for tag in self.tags),
            f"[System.AssignedTo] = {person}" if person else "",
            f"[System.AreaPath] UNDER {_quote(self.area_path)}" if self.area_path else "",
        ]

    @property
    def to_nobody(self) -> bool:
        return self.assigned_to is not None and self.assigned_to.lower() == NOBODY


def changed_clause(start: datetime, end: datetime | None) -> str:
    """Changed at `start` or later, and before `end`."""
    until = f" AND [System.ChangedDate] < '{_instant(end)}'" if end else ""
    return f"[System.ChangedDate] >= '{_instant(start)}'{until}"


def has_any_tag(tags: Iterable[str]) -> str:
    """The clause that a work item has one of the tags. Raise ValueError for what cannot be a tag."""
    return "(" + " OR ".join(f"[System.Tags] CONTAINS {_quote(_check_tag(tag))}" for tag in tags) + ")"


def none_of(field: str, values: Iterable[str]) -> str:
    """The clause that the field has none of the values; empty when there are none."""
    several = ", ".join(_quote(value) for value in values)
    return f"[{field}] NOT IN ({several})" if several else ""


def whole_query(clauses: Sequence[str], order: str = "[System.ChangedDate], [System.Id]") -> str:
    """The query for the ids of the work items of a project for which all clauses hold, oldest change first."""
    where = " AND ".join(clause for clause in ("[System.TeamProject] = @project", *clauses) if clause)
    return f"SELECT [System.Id] FROM WorkItems WHERE {where} ORDER BY {order}"


def _any_of(field: str, values: Iterable[str]) -> str:
    """The clause that the field has one of the values; empty when there are none."""
    several = ", ".join(_quote(value) for value in values)
    return f"[{field}] IN ({several})" if several else ""


def _quote(value: str) -> str:
    """The value as a WIQL string. A quote within is doubled; WIQL has no other escape."""
    return "'" + plain_value(value).replace("'", "''") + "'"


def _instant(at: datetime) -> str:
    # without the Z it would be a time in the zone of the user's profile
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03d}Z"
