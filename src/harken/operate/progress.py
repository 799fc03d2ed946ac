"""How far a long operation has come, for the door at which somebody waits for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import msgspec

__all__ = ["Progress", "Report", "ignore"]


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """So many of `total` are done, which is an estimate unless it is `exact`. `what` is counted, in the plural."""

    done: int
    total: int
    what: str = "events"
    exact: bool = True


Report: TypeAlias = Callable[[Progress], None]
"""Called often, and from within the work: it must return at once."""


def ignore(progress: Progress) -> None:
    """For whoever does not look."""
