"""What a read of monitors has to know of the one before: each group's status, and since when it has it.

Packed for the cursor: 11 bytes for a group before compression, so 10,000 groups are about 90 to 130 kB of text.
"""

from __future__ import annotations

import base64
import hashlib
import struct
import zlib
from collections.abc import Mapping
from typing import NamedTuple

from harken.services.datadog.event import STATUSES, Standing

__all__ = ["Occurrence", "Seen", "named", "occurrence", "pack", "unpack"]

_NAME, _WIDTH = 6, 11


class Seen(NamedTuple):
    """A status and its stamp: epoch seconds, or 0 when it was there at the first look and has no date."""

    status: str
    stamp: int


class Occurrence(NamedTuple):
    """`stamp` names this stay in a status. `dated`: the stamp is Datadog's; else it is when we noticed."""

    stamp: int
    previous: str
    dated: bool


def occurrence(now: Standing, before: Seen | None, *, first: bool, at: int) -> Occurrence:
    """Which stay in its status this is. The stamp stays the same for as long as the status is not left.

    `first`: nothing is known of the groups that were there earlier. `at` is the time of Datadog's answer.
    """
    if before is not None and before.status == now.status:
        # it was left and entered again between two reads: what it was meanwhile, nobody saw
        again = now.entered > before.stamp
        return Occurrence(now.changed if again else before.stamp, "", bool(again or before.stamp))
    previous = before.status if before and before.status != "unknown" else ""
    if now.changed > (before.stamp if before else 0):
        return Occurrence(now.changed, previous, True)
    return Occurrence(0 if first and before is None else at, previous, False)


def named(subject: str) -> bytes:
    """The short name under which a group is remembered; 48 bits are enough for a million groups."""
    return hashlib.blake2b(subject.encode("utf-8", "replace"), digest_size=_NAME).digest()


def pack(memory: Mapping[bytes, Seen]) -> str:
    """The memory as text; the same memory is always the same text."""
    if not memory:
        return ""
    names = sorted(memory)
    statuses = bytes(STATUSES.index(memory[name].status) for name in names)
    stamps = struct.pack(f">{len(names)}I", *(memory[name].stamp for name in names))
    # columns of like values compress better than rows
    return base64.b64encode(zlib.compress(b"".join(names) + statuses + stamps)).decode()


def unpack(text: str) -> dict[bytes, Seen]:
    """What `pack` made; nothing of a text that it did not make."""
    try:
        raw = zlib.decompress(base64.b64decode(text, validate=True)) if text else b""
        count = len(raw) // _WIDTH
        names, statuses = raw[: _NAME * count], raw[_NAME * count : (_NAME + 1) * count]
        stamps = struct.unpack(f">{count}I", raw[(_NAME + 1) * count :])
        seen = [Seen(STATUSES[code], stamp) for code, stamp in zip(statuses, stamps, strict=True)]
    except (ValueError, IndexError, zlib.error, struct.error):
        return {}
    return {names[_NAME * place : _NAME * (place + 1)]: one for place, one in enumerate(seen)}
