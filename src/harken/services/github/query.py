"""What a feed asks of GitHub."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

import msgspec
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from harken.services.github.api import Repo
from harken.services.paging import digest_of

__all__ = ["Login", "Query"]

_LOGIN = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,98}[A-Za-z0-9_])?(?:\[bot\])?")


def _several(value: Any) -> Any:
    return [value] if isinstance(value, str | int) and not isinstance(value, bool) else value


def _texts(value: Any) -> Any:
    several = _several(value)
    return [str(one) if type(one) is int else one for one in several] if isinstance(several, list | tuple) else several


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
    repos: Annotated[tuple[Repo, ...], BeforeValidator(_several)] = Field(
        min_length=1, max_length=100, description="repositories, as owner/name"
    )
    kind: Literal["issues", "pulls", "both"] = Field("issues", description="issues, pulls (pull requests) or both")
    state: Literal["open", "closed", "all"] = Field("open", description="open, closed or all")
    labels: Annotated[tuple[str, ...], BeforeValidator(_texts)] = Field(
        (), description="labels that an issue must have, all of them; capitals do not matter"
    )
    assignee: Login | None = Field(None, description="login of who it is assigned to; none: to nobody")
    author: Annotated[tuple[Login, ...], BeforeValidator(_several)] = Field(
        (), description="logins of those who opened it; one is enough"
    )
    milestone: str | None = Field(None, min_length=1, description="title of its milestone")

    @field_validator("repos")
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
                raise ValueError("GitHub takes a comma for the end of a label: write several labels as a list")
        return tuple(name.strip() for name in value)

    def filters(self) -> list[tuple[str, str | int]]:
        """What every page asks for. Author, milestone and kind are looked at here."""
        return [
            ("state", self.state),
            *([("labels", ",".join(self.labels))] if self.labels else []),
            *([("assignee", self.assignee)] if self.assignee else []),
        ]

    def fingerprint(self) -> str:
        return digest_of(msgspec.json.encode(self.model_dump(mode="json"), order="deterministic"))
