"""Which rows a feed reads, and in which order."""

from __future__ import annotations

from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
from pydantic import Field, field_validator

from harken.kit import QueryModel
from harken.kit.digest import digest_of
from harken.services.sql.statements import one_select
from harken.services.sql.watermark_times_and_bounds import Epoch

__all__ = ["Query"]


class Query(QueryModel):
    """A SELECT, and the columns that put its rows in order."""

    query: str = Field(
        max_length=20_000,
        description="one SELECT, without placeholders; which rows are new, their order and a limit are added around it",
    )
    watermark: str = Field(
        min_length=1,
        max_length=128,
        description="column that only grows for what is new: a time of creation or change, or a serial number",
    )
    key: str = Field(
        "id", min_length=1, max_length=128, description="column that tells rows of one watermark apart; names the row"
    )
    epoch: Epoch | None = Field(
        None, description="for a number that is a time: s, ms or us since 1970; else numbers are just an order"
    )
    timezone: str = Field("UTC", description="time zone of watermarks that name none, such as Europe/Berlin")
    overlap: int | None = Field(
        None,
        ge=0,
        le=1_000_000,
        description="read again so many numbers (usually 100) or days (1) below the newest; times have lookback",
    )
    initial: int | float | str | None = Field(
        None, description="deliver what is there from this watermark on; not for times, which have backfill"
    )
    page_size: int = Field(500, ge=1, le=10_000, description="rows per request")
    timeout: float = Field(
        8.0, gt=0, le=3_600, description="seconds for a page; the trigger's page_timeout is above it"
    )
    type: str = Field("sql.row", min_length=1, description="type of the events")

    @field_validator("query")
    @classmethod
    def _one_select(cls, value: str) -> str:
        return one_select(value)

    @field_validator("timezone")
    @classmethod
    def _zone(cls, value: str) -> str:
        try:
            ZoneInfo(value)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ValueError("there is no such time zone. Write a name such as UTC or Europe/Berlin") from None
        return value

    @property
    def zone(self) -> ZoneInfo:
        return ZoneInfo(self.timezone)

    def fingerprint(self) -> str:
        """Changes with the columns that the cursor refers to. The query's text may change: the order stays the same."""
        return digest_of(msgspec.json.encode([self.watermark, self.key, self.epoch]))
