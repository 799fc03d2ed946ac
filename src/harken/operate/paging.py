"""Pages of lists. A cursor names the last item of a page, so inserts and deletes neither repeat nor skip the others."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence

import msgspec

from harken.errors import Malformed
from harken.operate.output_rows import Plain

__all__ = ["MOST", "bounded", "id_after", "name_after", "page_by", "to_cursor"]

MOST = 500
LARGEST = 2**63 - 1


def bounded(limit: int) -> int:
    return max(1, min(limit, MOST))


def to_cursor(key: int | str | None) -> str | None:
    """The cursor after the item of this key; None at the end. Nobody should look into it."""
    if key is None:
        return None
    return base64.urlsafe_b64encode(msgspec.json.encode([key])).rstrip(b"=").decode()


def id_after(cursor: str) -> int | None:
    """The number in a cursor of a list that is ordered by number; None for the first page."""
    key = _key(cursor) if cursor else None
    if key is not None and (not isinstance(key, int) or isinstance(key, bool) or not 0 <= key <= LARGEST):
        raise _unknown()
    return key


def name_after(cursor: str) -> str:
    """The text in a cursor of a list that is ordered by a text; empty for the first page."""
    after = _key(cursor) if cursor else ""
    if not isinstance(after, str):
        raise _unknown()
    return after


def page_by(rows: Sequence[Plain], cursor: str, limit: int, *, key: str = "name") -> Plain:
    """The page of a list that is in memory as a whole, ordered by a text that is unique in it. Limit 0 gives all."""
    after = name_after(cursor) if cursor else None
    ordered = sorted(rows, key=lambda row: str(row[key]))
    left = ordered if after is None else [row for row in ordered if str(row[key]) > after]
    size = bounded(limit) if limit else len(left)
    following = str(left[size - 1][key]) if len(left) > size else None
    return {"items": left[:size], "next": to_cursor(following)}


def _key(cursor: str) -> object:
    try:
        found = msgspec.json.decode(base64.b64decode(cursor + "=" * (-len(cursor) % 4), b"-_", validate=True))
    except (msgspec.DecodeError, binascii.Error, ValueError) as error:
        raise _unknown() from error
    if not isinstance(found, list) or len(found) != 1:
        raise _unknown()
    return found[0]


def _unknown() -> Malformed:
    return Malformed("this cursor is not one that a list gave", fix="Use the `next` of the page before, or none")
