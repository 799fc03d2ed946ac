"""What a feed asks of GitLab."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

import msgspec
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from harken.services.gitlab.api import Project
from harken.services.paging import digest_of

__all__ = ["Query", "Username"]

_USERNAME = re.compile(r"[A-Za-z0-9_.-]{1,255}")


def _several(value: Any) -> Any:
    several = [value] if isinstance(value, str) or type(value) is int else value
    return [str(one) if type(one) is int else one for one in several] if isinstance(several, list | tuple) else several


def _username(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    name = value.strip().removeprefix("@")
    if name.lower() == "me":
        raise ValueError("write the user name: there is no implicit me. harken integrations gitlab whoami shows yours")
    if not _USERNAME.fullmatch(name):
        raise ValueError("this is not a user name of GitLab: it stands behind @ on the page of the profile")
    return name


Username = Annotated[str, BeforeValidator(_username)]


class Query(BaseModel):
    """Which issues: with all `labels`, as GitLab has it, and by one of `author`."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    projects: Annotated[tuple[Project, ...], BeforeValidator(_several)] = Field(
        min_length=1, max_length=100, description="projects, as group/name or by number"
    )
    state: Literal["opened", "closed", "all"] = Field("opened", description="opened, closed or all")
    labels: Annotated[tuple[str, ...], BeforeValidator(_several)] = Field(
        (), description="labels that an issue must have, all of them; capitals matter"
    )
    assignee: Username | None = Field(None, description="user name of who it is assigned to; none: to nobody")
    author: Annotated[tuple[Username, ...], BeforeValidator(_several)] = Field(
        (), description="user names of those who opened it; one is enough"
    )
    milestone: str | None = Field(None, min_length=1, description="title of its milestone")

    @field_validator("state", mode="before")
    @classmethod
    def _gitlabs_word(cls, value: Any) -> Any:
        return "opened" if value == "open" else value

    @field_validator("projects")
    @classmethod
    def _each_once(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        known: dict[str, str] = {}
        for name in value:
            known.setdefault(name.lower(), name)
        return tuple(known.values())

    @field_validator("labels")
    @classmethod
    def _whole_names(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            if not name.strip() or not name.isprintable():
                raise ValueError("a label is empty, or has characters that cannot be printed")
            if "," in name:
                raise ValueError("GitLab takes a comma for the end of a label: write several labels as a list")
            if name.strip().lower() in ("none", "any"):
                raise ValueError("GitLab takes none and any for something else than a label")
        return tuple(name.strip() for name in value)

    def filters(self) -> list[tuple[str, str | int]]:
        """What every page asks for. Author and milestone are looked at here."""
        found: list[tuple[str, str | int]] = [("state", self.state)]
        if self.labels:
            found.append(("labels", ",".join(self.labels)))
        if self.assignee and self.assignee.lower() == "none":
            found.append(("assignee_id", "None"))
        elif self.assignee:
            found.append(("assignee_username", self.assignee))
        return found

    def fingerprint(self) -> str:
        return digest_of(msgspec.json.encode(self.model_dump(mode="json"), order="deterministic"))
