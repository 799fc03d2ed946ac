"""Pages of lists. A cursor names the last item of a page, so inserts and deletes neither repeat nor skip the others.

Those that callers have also say of which list they are, and with which filters: in another one the same place would
mean something else, and rows would be left out in silence.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from harken.errors import Malformed
from harken.operate.output_rows import Plain

__all__ = [
    "MOST",
    "bind_cursor",
    "bounded",
    "id_after",
    "letter_after",
    "name_after",
    "page_by",
    "to_cursor",
    "unbind_cursor",
]

MOST = 500
LARGEST = 2**63 - 1
SHOWN = frozenset({"cursor", "limit", "before", "include"})
"""Parameters that say from where on, how many and how much of them. All others say which items a list has."""


def bounded(limit: int) -> int:
    return max(1, min(limit, MOST))


def to_cursor(key: int | str | None) -> str | None:
    """The cursor after the item of this key; None at the end. Nobody should look into it."""
    return None if key is None else _encode([key])


def bind_cursor(cursor: str, operation: str, params: Mapping[str, Any]) -> str:
    """The cursor as a caller gets it: good for the list of this operation with these parameters alone."""
    return _encode([_key(cursor), operation, _fingerprint(params)])


def unbind_cursor(cursor: str, operation: str, params: Mapping[str, Any]) -> str:
    """What `bind_cursor` was given. Raises Malformed if it was for another list, or for other filters."""
    found = _decode(cursor)
    if len(found) != 3:
        raise _unknown()
    key, listed, fingerprint = found
    if listed != operation:
        fix = "Use the `next` of the page before of the same list, or none"
        raise Malformed(f"this cursor is of another list than {operation}", fix=fix)
    if fingerprint != _fingerprint(params):
        fix = "Send what was sent for the page before, only with the cursor, or begin without one"
        raise Malformed(f"this cursor is of {operation} with other filters", fix=fix)
    return _encode([key])


def id_after(cursor: str) -> int | None:
    """The number in a cursor of a list that is ordered by number; None for the first page."""
    key = letter_after(cursor)
    if key is not None and key < 0:
        raise _unknown()
    return key


def letter_after(cursor: str) -> int | None:
    """As `id_after`, for dead letters: those of refused events have negative numbers."""
    key = _key(cursor) if cursor else None
    if key is not None and (not isinstance(key, int) or isinstance(key, bool) or not -LARGEST <= key <= LARGEST):
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


def _fingerprint(params: Mapping[str, Any]) -> str:
    """Tells one choice of items from another; what is empty chooses nothing."""
    chosen = {name: value for name, value in params.items() if name not in SHOWN and value not in (None, "", [], ())}
    return hashlib.sha256(msgspec.json.encode(chosen, order="deterministic")).hexdigest()[:8]


def _key(cursor: str) -> object:
    found = _decode(cursor)
    if len(found) != 1:
        raise _unknown()
    return found[0]


def _encode(parts: Sequence[object]) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(parts)).rstrip(b"=").decode()


def _decode(cursor: str) -> list[Any]:
    try:
        found = msgspec.json.decode(base64.b64decode(cursor + "=" * (-len(cursor) % 4), b"-_", validate=True))
    except (msgspec.DecodeError, binascii.Error, ValueError) as error:
        raise _unknown() from error
    if not isinstance(found, list):
        raise _unknown()
    return found


def _unknown() -> Malformed:
    return Malformed("this cursor is not one that a list gave", fix="Use the `next` of the page before, or none")
