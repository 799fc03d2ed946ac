"""Newest-first APIs, read in ascending slices of time, so that a burst or a crash never leaves older items behind.

A slice is read to its end before the cursor passes it. Where it does not fit on one page, read its lower half instead
(`halved`); where that is too narrow to be halved, `turned` goes through its pages. The top of the read is fixed when it
begins, so that it ends, and the next read begins at the engine's `since`, which overlaps by the feed's lookback.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec

from harken.event import Span

__all__ = ["Slice", "resume"]


class Slice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What to ask for now. Ask with both ends included, widened to the API's precision: repeats are fine, gaps are not.

    `page` is the API's own place within the slice (None: its first page), `until` the top of the whole read.
    """

    start: datetime
    end: datetime
    until: datetime
    page: Any = None

    @property
    def covered(self) -> Span:
        return Span(self.start, self.end)

    def cursor(self) -> dict[str, Any]:
        """The cursor with which `resume` continues here."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain

    def turned(self, page: Any) -> Slice:
        """The next page of this slice."""
        return msgspec.structs.replace(self, page=page)

    def halved(self, smallest: timedelta) -> Slice | None:
        """The lower half of this slice; None when it is narrower than `smallest` and has to be paged through."""
        width = self.end - self.start
        if width <= smallest:
            return None
        return msgspec.structs.replace(self, end=self.start + max(width / 2, smallest), page=None)

    def following(self, width: timedelta) -> Slice | None:
        """The slice above this one; None when everything up to `until` was read."""
        if self.end >= self.until:
            return None
        return Slice(start=self.end, end=min(self.end + width, self.until), until=self.until)


def resume(cursor: Any, since: datetime, now: datetime, width: timedelta) -> Slice:
    """The slice that the cursor stands in, or else the first one of a new read from `since` to `now`."""
    if cursor is not None:
        try:
            return msgspec.convert(cursor, Slice)
        except msgspec.ValidationError:
            pass  # what another version stored is no place to go on from, and `since` repeats at worst
    start = min(since, now)
    return Slice(start=start, end=min(start + width, now), until=now)
