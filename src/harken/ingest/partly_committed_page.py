"""A long page is committed in parts, so that neither the event loop nor the store is busy with it for long.

The cursor moves with the last part. Until then the stored cursor also tells how much of the page is committed, so that
a page that is read again after a crash goes on behind it: what it shows again is the same as before, and not news.
Beside it stands what else a read that was interrupted has to know.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec

from harken.event import Event, Identity

__all__ = [
    "PageDigest",
    "Progress",
    "stored_cap",
    "stored_position",
    "stored_seek",
    "with_cap",
    "with_progress",
    "with_seek",
]

_MARK = "harken.page"


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """The first `events` of the page at the cursor are committed; `digest` tells whether a page begins with them."""

    events: int
    digest: str


class PageDigest:
    """The digest of the events of a page that were added so far, in their order."""

    def __init__(self, identity: Identity) -> None:
        self._digest = hashlib.blake2b(identity.encode(), digest_size=16)
        self.events = 0

    def add(self, events: Iterable[Event]) -> None:
        # repr, because a name may have characters that cannot be encoded
        lines = [repr((event.subject, event.state, event.key)) for event in events]
        self._digest.update("\n".join([*lines, ""]).encode())
        self.events += len(lines)

    @property
    def progress(self) -> Progress:
        return Progress(events=self.events, digest=self._digest.hexdigest())


def with_progress(cursor: Any, progress: Progress, cap: float | None = None) -> Any:
    """What is stored as the feed's cursor after a part of the page at `cursor`; `cap` as in `with_cap`."""
    return {_MARK: {"cursor": cursor, **msgspec.structs.asdict(progress), **({} if cap is None else {"cap": cap})}}


def with_cap(cursor: Any, cap: float) -> Any:
    """What is stored as the feed's cursor within a read whose watermark is not to pass `cap`."""
    return {_MARK: {"cursor": cursor, "cap": cap}}


def with_seek(cursor: Any, at: datetime) -> Any:
    """What is stored as the cursor of a stream that is to be read from another time.

    Its next reader finds the place: who holds the lease alone moves the cursor."""
    return {_MARK: {"cursor": cursor, "seek": at.isoformat()}}


def stored_seek(stored: Any) -> datetime | None:
    """The time from which a stream is to be read, out of what the store has as the cursor; None to read on."""
    mark = _mark(stored)
    return datetime.fromisoformat(mark["seek"]) if mark is not None and "seek" in mark else None


def stored_position(stored: Any) -> tuple[Any, Progress | None]:
    """The source's own cursor, and how much of the page there is committed, out of what the store has as the cursor."""
    mark = _mark(stored)
    if mark is None:
        return stored, None
    if "events" not in mark:
        return mark["cursor"], None
    return mark["cursor"], Progress(events=mark["events"], digest=mark["digest"])


def stored_cap(stored: Any) -> float | None:
    """The time that the watermark of the read under way is not to pass, out of what the store has as the cursor."""
    mark = _mark(stored)
    return None if mark is None else mark.get("cap")


def _mark(stored: Any) -> dict[str, Any] | None:
    found = stored[_MARK] if isinstance(stored, dict) and set(stored) == {_MARK} else None
    return found if isinstance(found, dict) else None
