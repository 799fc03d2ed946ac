"""The event bank: the ids of the last events that fired, were filtered or failed, for each trigger.

Housekeeping fills it, so that a commit costs nothing more. What it has stays when retention deletes. How many of its
lists have an event is counted, so that deleting asks about the event alone, however many triggers listen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

import msgspec

from harken.event import BANK_LISTS, Verdict

__all__ = ["GONE_SECONDS", "Listed", "add_to_lists", "decode_ids", "encode_ids", "list_events"]

GONE_SECONDS = 86_400.0
"""How long after a trigger was removed its lists are dropped."""

Listed = tuple[str, str]
"""A trigger's name, and one of its lists."""

_decode = msgspec.json.Decoder(list[int]).decode


def encode_ids(ids: Sequence[int]) -> bytes:
    """Rising ids as the first one and the differences: ids of one feed are near each other."""
    return msgspec.json.encode([after - before for before, after in zip((0, *ids), ids, strict=False)])


def decode_ids(stored: bytes) -> list[int]:
    return list(accumulate(_decode(stored)))


def list_events(events: Iterable[tuple[int, Sequence[Verdict]]], keep: int) -> dict[Listed, list[int]]:
    """The events of a slice by list, rising; of each list at most the last `keep`."""
    found: dict[Listed, list[int]] = {}
    for id, verdicts in events:
        for verdict in verdicts:
            name = BANK_LISTS.get(verdict.outcome)
            if name is not None:
                found.setdefault((verdict.trigger, name), []).append(id)
    return {listed: ids[-keep:] for listed, ids in found.items()}


def add_to_lists(
    new: Mapping[Listed, Sequence[int]], stored: Mapping[Listed, Sequence[int]], keep: int
) -> tuple[dict[Listed, list[int]], Counter[int]]:
    """The lists with the new events, and by how much the number of lists that have an event changes."""
    changed: dict[Listed, list[int]] = {}
    holds: Counter[int] = Counter()
    for listed, ids in new.items():
        before = stored.get(listed, ())
        changed[listed] = [*before, *ids][-keep:]
        holds.update(changed[listed])
        holds.subtract(before)
    return changed, Counter({id: by for id, by in holds.items() if by})
