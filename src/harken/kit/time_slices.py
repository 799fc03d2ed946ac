"""For APIs that list the newest first: they are read in ascending slices of time, so that a crash loses no older items.

A slice is read to its end before the cursor passes it. Where it does not fit on one page, read its `lower_half`
instead; where that is too narrow to be halved, `next_page` goes through its pages. The end of the read is fixed when
it begins, so that it does end. The next read begins at the engine's `since`, which overlaps by the feed's lookback.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec

from harken.event import Span
from harken.kit.cursor_codec import dump_cursor, load_cursor
from harken.source import Cursor

__all__ = ["Slice", "resume"]


class Slice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What to request now: both ends included, widened to the API's precision. Repeats are fine, gaps are not.

    `page` is the API's own position within the slice (None: its first page), `until` the end of the whole read.
    """

    start: datetime
    end: datetime
    until: datetime
    page: Any = None

    @property
    def covered(self) -> Span:
        return Span(self.start, self.end)

    def cursor(self) -> Cursor:
        """The cursor with which `resume` continues here."""
        return dump_cursor(self)

    def next_page(self, page: Any) -> Slice:
        """The next page of this slice."""
        return msgspec.structs.replace(self, page=page)

    def lower_half(self, smallest: timedelta) -> Slice | None:
        """The lower half of this slice; None when it is narrower than `smallest` and has to be paged through."""
        width = self.end - self.start
        if width <= smallest:
            return None
        return msgspec.structs.replace(self, end=self.start + max(width / 2, smallest), page=None)

    def next_slice(self, width: timedelta) -> Slice | None:
        """The slice above this one; None when everything up to `until` was read."""
        if self.end >= self.until:
            return None
        return Slice(start=self.end, end=min(self.end + width, self.until), until=self.until)


def resume(cursor: Cursor, since: datetime, now: datetime, width: timedelta) -> Slice:
    """Return the slice of the cursor, or else the first slice of a new read from `since` to `now`."""
    stored = load_cursor(cursor, Slice)
    if stored is not None:
        return stored
    start = min(since, now)
    return Slice(start=start, end=min(start + width, now), until=now)
