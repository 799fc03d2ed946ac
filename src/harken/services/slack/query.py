"""What a feed asks of Slack, and how the people in it are written."""

from __future__ import annotations

import hashlib
import re
from typing import Annotated

import msgspec
from pydantic import BeforeValidator, Field, StringConstraints, field_validator

from harken.kit import QueryModel
from harken.kit.query_fields import as_list

__all__ = ["Query", "normalized_name", "user_id"]

_ID = re.compile(r"[UW](?=[A-Z0-9]*[0-9]|[A-Z0-9]{8})[A-Z0-9]+")
_GROUPS = frozenset({"here", "channel", "everyone"})


Texts = Annotated[
    list[Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]], BeforeValidator(as_list)
]


class Query(QueryModel):
    """Several values of one field mean any of them; different fields must all fit."""

    mentions: Texts = Field(default_factory=list, description="people who are mentioned: @name or a member id")
    channels: Texts = Field(default_factory=list, description="names or ids; without it, every channel of the bot")
    include_threads: bool = Field(True, description="also replies in threads, old ones included")
    include_dms: bool = Field(False, description="also direct messages with the bot")
    exclude_bots: bool = Field(True, description="leave out what bots and apps post")
    keywords: Texts = Field(default_factory=list, description="words of which the text has one, in upper or lower case")

    @field_validator("mentions")
    @classmethod
    def _are_people(cls, value: list[str]) -> list[str]:
        for written in value:
            if normalized_name(written) in _GROUPS:
                raise ValueError(f"{written} is not a person. Write the name or the id of a person")
            if not normalized_name(written):
                raise ValueError("a mention needs a name after the @")
        return value

    def fingerprint(self) -> str:
        """Changes when the query selects other channels."""
        selected = msgspec.json.encode([sorted(self.channels), self.include_dms])
        return hashlib.blake2b(selected, digest_size=8).hexdigest()


def user_id(written: str) -> str | None:
    """The id if the text is one: U123, or <@U123> as copied from Slack. Text that begins with @ is a name."""
    bare = written.removeprefix("<@").removesuffix(">").partition("|")[0]
    return bare if _ID.fullmatch(bare) else None


def normalized_name(written: str) -> str:
    return written.strip().removeprefix("@").strip().casefold()
