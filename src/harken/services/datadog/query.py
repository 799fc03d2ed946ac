"""Which monitors and statuses a feed reads."""

from __future__ import annotations

from typing import Any, Literal, get_args

import msgspec
from pydantic import Field, field_validator

from harken.kit import QueryModel
from harken.kit.digest import digest_of
from harken.services.datadog.event import word

__all__ = ["Query"]

Status = Literal["triggered", "warn", "no_data", "ok"]


class Query(QueryModel):
    """Which monitors, and which statuses of theirs."""

    tags: tuple[str, ...] = Field((), description="any of these tags, on the monitor or on the group: team:platform")
    monitor_ids: tuple[int, ...] = Field((), description="any of these monitors: the number in a monitor's address")
    statuses: tuple[Status, ...] = Field(
        ("triggered", "warn", "no_data"), description="fire on a change to any of these; ok tells of recoveries"
    )

    @field_validator("tags", "monitor_ids", mode="before")
    @classmethod
    def _several(cls, value: Any) -> Any:
        return value if isinstance(value, list | tuple) else [value]

    @field_validator("statuses", mode="before")
    @classmethod
    def _known_words(cls, value: Any) -> Any:
        known = [word(one) if word(one) in get_args(Status) else one for one in cls._several(value)]
        if not known:
            raise ValueError("name at least one status: triggered, warn, no_data or ok")
        return known

    @field_validator("tags")
    @classmethod
    def _tags(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        tags = tuple(tag.strip() for tag in value)
        if any(not tag or "," in tag or not tag.isprintable() for tag in tags):
            raise ValueError("a tag is a word such as team:platform; write several as a list")
        return tags

    @field_validator("monitor_ids")
    @classmethod
    def _numbers(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if any(number <= 0 for number in value):
            raise ValueError("the id of a monitor is the number in its address")
        return tuple(dict.fromkeys(value))

    def fingerprint(self) -> str:
        """Changes with the selected monitors, not with the statuses."""
        return digest_of(msgspec.json.encode([sorted(self.tags), sorted(self.monitor_ids)]))
