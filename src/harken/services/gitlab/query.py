"""Which issues a feed asks for."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator

from harken.kit.models import QueryModel
from harken.kit.query_fields import as_text_list, label_name, unique_names
from harken.services.gitlab.api import Project

__all__ = ["Query"]

_USERNAME = re.compile(r"[A-Za-z0-9_.-]{1,255}")


def _check_username(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    name = value.strip().removeprefix("@")
    if name.lower() == "me":
        raise ValueError("write the user name: there is no implicit me. harken integrations gitlab whoami shows yours")
    if not _USERNAME.fullmatch(name):
        raise ValueError("this is not a user name of GitLab: it stands behind @ on the page of the profile")
    return name


def _check_label(value: str) -> str:
    name = label_name(value, "GitLab")
    if name.lower() in ("none", "any"):
        raise ValueError("GitLab takes none and any for something else than a label")
    return name


Username = Annotated[str, BeforeValidator(_check_username)]


class Query(QueryModel):
    """Issues with all of `labels`, as at GitLab, and by one of `author`."""

    projects: Annotated[tuple[Project, ...], BeforeValidator(as_text_list)] = Field(
        min_length=1, max_length=100, description="projects, as group/name or by number"
    )
    state: Literal["opened", "closed", "all"] = Field("opened", description="opened, closed or all")
    labels: Annotated[tuple[str, ...], BeforeValidator(as_text_list)] = Field(
        (), description="labels that an issue must have, all of them; capitals matter"
    )
    assignee: Username | None = Field(None, description="user name of who it is assigned to; none: to nobody")
    author: Annotated[tuple[Username, ...], BeforeValidator(as_text_list)] = Field(
        (), description="user names of those who opened it; one is enough"
    )
    milestone: str | None = Field(None, min_length=1, description="title of its milestone")

    @field_validator("state", mode="before")
    @classmethod
    def _accept_open(cls, value: Any) -> Any:
        return "opened" if value == "open" else value

    _unique = field_validator("projects")(unique_names)

    @field_validator("labels")
    @classmethod
    def _check_labels(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(_check_label, value))

    def params(self) -> list[tuple[str, str | int]]:
        """The part of the query that GitLab filters by. Author and milestone are compared in `event.matches`."""
        params: list[tuple[str, str | int]] = [("state", self.state)]
        if self.labels:
            params.append(("labels", ",".join(self.labels)))
        if self.assignee and self.assignee.lower() == "none":
            params.append(("assignee_id", "None"))
        elif self.assignee:
            params.append(("assignee_username", self.assignee))
        return params
