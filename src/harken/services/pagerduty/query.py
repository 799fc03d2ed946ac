"""Which incidents a feed reads."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from harken.kit import QueryModel
from harken.kit.query_fields import as_list
from harken.services.pagerduty.api import Id

__all__ = ["Query"]


def _as_lower_list(value: Any) -> Any:
    several = as_list(value)
    if not isinstance(several, list | tuple):
        return several
    return [word.lower() if isinstance(word, str) else word for word in several]


class Query(QueryModel):
    """Which incidents: several values of one key mean any of them, different keys mean all."""

    user_id: Id | None = Field(None, description="id of the user to whom it is assigned (whoami shows yours)")
    services: Annotated[tuple[Id, ...], BeforeValidator(as_list)] = Field((), description="ids of services")
    teams: Annotated[tuple[Id, ...], BeforeValidator(as_list)] = Field((), description="ids of teams")
    statuses: Annotated[
        tuple[Literal["triggered", "acknowledged", "resolved"], ...], BeforeValidator(_as_lower_list)
    ] = Field(("triggered", "acknowledged"), description="triggered, acknowledged, resolved")
    urgencies: Annotated[tuple[Literal["high", "low"], ...], BeforeValidator(_as_lower_list)] = Field(
        (), description="high, low"
    )

    @field_validator("statuses")
    @classmethod
    def _not_empty(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value:
            raise ValueError("name at least one status, or leave it out for triggered and acknowledged")
        return value

    @field_validator("user_id")
    @classmethod
    def _is_not_me(cls, value: str | None) -> str | None:
        if value == "me":
            raise ValueError("write the id: there is no implicit me. harken integrations pagerduty whoami shows yours")
        return value

    @model_validator(mode="after")
    def _can_be_assigned(self) -> Query:
        if self.user_id and "resolved" in self.statuses:
            raise ValueError("resolved incidents are assigned to nobody: leave out user_id, or resolved")
        return self

    def filters(self) -> list[tuple[str, str]]:
        """The parameters of every page, except statuses."""
        return [
            *([("user_ids[]", self.user_id)] if self.user_id else []),
            *(("service_ids[]", id) for id in self.services),
            *(("team_ids[]", id) for id in self.teams),
            *(("urgencies[]", word) for word in self.urgencies),
        ]
