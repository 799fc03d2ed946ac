"""How stores find the events of an object: by hashes of its names, which housekeeping keeps for older events.

A commit writes nothing for it. Events are numbered, and `BUCKET` numbers make a bucket; when all of a bucket's events
are there, the hashes of their names are written near each other. A question looks into each part of them, and reads
keys and subjects of the newest events, whose names are not there yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from harken.backends.encryption import Seal
from harken.store.events_by_object_name import names_of, names_to_try

__all__ = ["BUCKET", "CANDIDATES", "PART", "hashes_of", "hashes_to_try"]

BUCKET = 1000
PART = 16 * BUCKET
"""How many events have their names side by side in the SQL stores: few pages to write, and few places to look into."""

CANDIDATES = 50
"""How many events are looked at in one go: most of them are what was asked for."""


def hashes_of(seal: Seal, feed: str, subject: str, key: str) -> Iterable[int]:
    return {_hash(seal, feed, name) for name in names_of(subject, key)}


def hashes_to_try(seal: Seal, feed: str, name: str) -> Sequence[int]:
    return [_hash(seal, feed, each) for each in names_to_try(name)]


def _hash(seal: Seal, feed: str, name: str) -> int:
    """32 bits: an event that has the hash of another name by chance is read in vain, and left out."""
    return int.from_bytes(seal.name(f"object\0{feed}\0{name}")[:4], "big", signed=True)
