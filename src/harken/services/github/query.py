"""Which issues and pull requests a feed asks for."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator

from harken.kit.models import QueryModel
from harken.kit.query_fields import as_list, as_text_list, label_name, unique_names
from harken.services.github.api import Repo

__all__ = ["Query"]

_LOGIN = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,98}[A-Za-z0-9_])?(?:\[bot\])?")


def _check_login(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    name = value.strip().removeprefix("@")
    if name.lower() == "me":
        raise ValueError("write the login: there is no implicit me. harken integrations github whoami shows yours")
    if not _LOGIN.fullmatch(name):
        raise ValueError("this is not a login of GitHub, such as octocat")
    return name


Login = Annotated[str, BeforeValidator(_check_login)]


class Query(QueryModel):
    """Issues with all of `labels`, as at GitHub, and by one of `author`."""

    repos: Annotated[tuple[Repo, ...], BeforeValidator(as_list)] = Field(
        min_length=1, max_length=100, description="repositories, as owner/name"
    )
    kind: Literal["issues", "pulls", "both"] = Field("issues", description="issues, pulls (pull requests) or both")
    state: Literal["open", "closed", "all"] = Field("open", description="open, closed or all")
    labels: Annotated[tuple[str, ...], BeforeValidator(as_text_list)] = Field(
        (), description="labels that an issue must have, all of them; capitals do not matter"
    )
    assignee: Login | None = Field(None, description="login of who it is assigned to; none: to nobody")
    author: Annotated[tuple[Login, ...], BeforeValidator(as_list)] = Field(
        (), description="logins of those who opened it; one is enough"
    )
    milestone: str | None = Field(None, min_length=1, description="title of its milestone")

    _unique = field_validator("repos")(unique_names)

    @field_validator("labels")
    @classmethod
    def _check_labels(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(label_name(name, "GitHub") for name in value)

    def params(self) -> list[tuple[str, str | int]]:
        """The part of the query that GitHub filters by. Author, milestone and kind are compared in `event.matches`."""
        return [
            ("state", self.state),
            *([("labels", ",".join(self.labels))] if self.labels else []),
            *([("assignee", self.assignee)] if self.assignee else []),
        ]
