"""Instants as stores keep them: whole microseconds since 1970, in UTC."""

from __future__ import annotations

from datetime import UTC, datetime

__all__ = ["micros", "micros_or_none", "moment", "moment_or_none"]


def micros(instant: datetime) -> int:
    return round(instant.timestamp() * 1_000_000)


def micros_or_none(instant: datetime | None) -> int | None:
    return None if instant is None else micros(instant)


def moment(us: int) -> datetime:
    return datetime.fromtimestamp(us / 1_000_000, UTC)


def moment_or_none(us: int | None) -> datetime | None:
    return None if us is None else moment(us)
