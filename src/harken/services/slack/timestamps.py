"""Slack's timestamps: text with six decimals that names a message. They never become floats, which cannot hold them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any, TypeGuard

__all__ = ["earlier", "is_stamp", "micros", "moment", "newest", "oldest", "stamp"]

_STAMP = re.compile(r"[0-9]{1,11}\.[0-9]{6}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def is_stamp(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and _STAMP.fullmatch(value) is not None


def micros(text: str) -> int:
    """The microseconds since 1970, which put stamps in order."""
    return int(text.replace(".", ""))


def moment(text: str) -> datetime:
    return _EPOCH + timedelta(microseconds=micros(text))


def stamp(instant: datetime) -> str:
    """The stamp of this instant, exact to the microsecond."""
    return _written((instant - _EPOCH) // timedelta(microseconds=1))


def earlier(text: str, seconds: int) -> str:
    return _written(micros(text) - seconds * 1_000_000)


def newest(*texts: str) -> str:
    return max(texts, key=micros)


def oldest(*texts: str) -> str:
    return min(texts, key=micros)


def _written(count: int) -> str:
    seconds, rest = divmod(max(count, 0), 1_000_000)
    return f"{seconds}.{rest:06d}"
