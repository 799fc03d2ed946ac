"""What a feed asks of GitHub."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from harken.kit.query_fields import as_list, as_text_list, fingerprint_of, label_name, unique_names
from harken.services.github.api import Repo

__all__ = ["Login", "Query"]

_LOGIN = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,98}[A-Za-z0-9_])?(?:\[bot\])?")


def _login(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    name = value.strip().removeprefix("@")
    if name.lower() == "me":
        raise ValueError("write the login: there is no implicit me. harken integrations github whoami shows yours")
    if not _LOGIN.fullmatch(name):
        raise ValueError("this is not a login of GitHub, such as octocat")
    return name


Login = Annotated[str, BeforeValidator(_login)]


class Query(BaseModel):
    """Which issues: with all `labels`, as GitHub has it, and by one of `author`."""

    model_config = ConfigDict(extra="forbid", frozen=True)
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

    _each_once = field_validator("repos")(unique_names)

    @field_validator("labels")
    @classmethod
    def _whole_names(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(label_name(name, "GitHub") for name in value)

    def filters(self) -> list[tuple[str, str | int]]:
        """What every page asks for. Author, milestone and kind are looked at here."""
        return [
            ("state", self.state),
            *([("labels", ",".join(self.labels))] if self.labels else []),
            *([("assignee", self.assignee)] if self.assignee else []),
        ]

    def fingerprint(self) -> str:
        return fingerprint_of(self)
