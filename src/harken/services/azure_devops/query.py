"""What a feed asks of Azure DevOps."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from harken.kit.query_fields import as_text_list, fingerprint_of, plain_value, unique_names
from harken.services.azure_devops.api import Project
from harken.services.azure_devops.wiql import any_of, quoted

__all__ = ["NOBODY", "Query", "Tag"]

NOBODY = "none"


def _a_tag(value: str) -> str:
    name = plain_value(value)
    if ";" in name or "," in name:
        raise ValueError("Azure DevOps takes ; and , for the end of a tag: write several tags as a list")
    return name


def _a_person(value: str) -> str:
    name = plain_value(value)
    if name.startswith("@") or name.lower() == "me":
        raise ValueError("write the e-mail address: harken integrations azure_devops whoami shows yours")
    return name


Value = Annotated[str, AfterValidator(plain_value)]
Tag = Annotated[str, AfterValidator(_a_tag)]


class Query(BaseModel):
    """Which work items: with all `tags`, and with one of `types` and of `states`."""

    model_config = ConfigDict(extra="forbid", frozen=True)
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
    assigned_to: Annotated[str, AfterValidator(_a_person)] | None = Field(
        None, description="e-mail address of who it is assigned to; none: to nobody"
    )
    area_path: Value | None = Field(None, description="area, with those below it, such as Shop\\Checkout")

    _each_once = field_validator("projects")(unique_names)

    def clauses(self) -> list[str]:
        """What every request asks for."""
        person = "" if self.assigned_to is None else "''" if self.to_nobody else quoted(self.assigned_to)
        return [
            any_of("System.WorkItemType", self.types),
            any_of("System.State", self.states),
            *(f"[System.Tags] CONTAINS {quoted(tag)}" for tag in self.tags),
            f"[System.AssignedTo] = {person}" if person else "",
            f"[System.AreaPath] UNDER {quoted(self.area_path)}" if self.area_path else "",
        ]

    @property
    def to_nobody(self) -> bool:
        return self.assigned_to is not None and self.assigned_to.lower() == NOBODY

    def fingerprint(self) -> str:
        return fingerprint_of(self)
