"""How far the monitors have been read, and each group's status at the last read with the time it was entered.

The statuses are packed: 11 bytes per group before compression, so 10,000 groups are about 90 to 130 kB of text.
"""

from __future__ import annotations

import base64
import hashlib
import struct
import zlib
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from harken.services.datadog.event import STATUSES, GroupStatus

__all__ = [
    "KnownStatus",
    "Occurrence",
    "Place",
    "memory_key",
    "occurrence",
    "pack",
    "unpack",
]

_KEY_SIZE, _ROW_SIZE = 6, 11


class Place(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`known` are the packed statuses of the last complete read, `fresh` those of this read so far.

    `whole`: this query was read completely before. `after` and `page` are the position in the listing, or in the list
    of ids. `gone` counts ids that do not exist.
    """

    of: str
    known: str = ""
    fresh: str = ""
    whole: bool = False
    after: int = 0
    page: int = 0
    gone: int = 0


class KnownStatus(NamedTuple):
    """A status and when it was entered: epoch seconds, or 0 if it has no date and was there at the first read."""

    status: str
    stamp: int


class Occurrence(NamedTuple):
    """A period in one status. `stamp` identifies it. `dated`: the stamp is Datadog's, else when we noticed it."""

    stamp: int
    previous: str
    dated: bool


def occurrence(now: GroupStatus, before: KnownStatus | None, *, first: bool, at: int) -> Occurrence:
    """Which period in its status this is. The stamp is the same until the status is left.

    `first`: there was no complete read before. `at` is the time of Datadog's answer.
    """
    if before is not None and before.status == now.status:
        # it was left and entered again between two reads: the status in between is unknown
        again = now.entered > before.stamp
        return Occurrence(now.changed if again else before.stamp, "", bool(again or before.stamp))
    previous = before.status if before and before.status != "unknown" else ""
    if now.changed > (before.stamp if before else 0):
        return Occurrence(now.changed, previous, True)
    return Occurrence(0 if first and before is None else at, previous, False)


def memory_key(subject: str) -> bytes:
    """The short key of a group; 48 bits are enough for a million groups."""
    return hashlib.blake2b(subject.encode("utf-8", "replace"), digest_size=_KEY_SIZE).digest()


def pack(memory: Mapping[bytes, KnownStatus]) -> str:
    """Encode statuses as text, deterministically."""
    if not memory:
        return ""
    names = sorted(memory)
    statuses = bytes(STATUSES.index(memory[name].status) for name in names)
    stamps = struct.pack(f">{len(names)}I", *(memory[name].stamp for name in names))
    # columns compress better than rows
    return base64.b64encode(zlib.compress(b"".join(names) + statuses + stamps)).decode()


def unpack(text: str) -> dict[bytes, KnownStatus]:
    """Decode the text of `pack`; empty if the text is invalid."""
    try:
        raw = zlib.decompress(base64.b64decode(text, validate=True)) if text else b""
        count = len(raw) // _ROW_SIZE
        names, statuses = raw[: _KEY_SIZE * count], raw[_KEY_SIZE * count : (_KEY_SIZE + 1) * count]
        stamps = struct.unpack(f">{count}I", raw[(_KEY_SIZE + 1) * count :])
        seen = [KnownStatus(STATUSES[code], stamp) for code, stamp in zip(statuses, stamps, strict=True)]
    except (ValueError, IndexError, zlib.error, struct.error):
        return {}
    return {names[_KEY_SIZE * place : _KEY_SIZE * (place + 1)]: one for place, one in enumerate(seen)}
