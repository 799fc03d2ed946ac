"""History: events of a feed in columns, oldest first. What the three stores share."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from datetime import timedelta
from typing import Protocol

import msgspec

from harken.backends.verdicts import outcome_among
from harken.store import History

__all__ = [
    "MARGIN_US",
    "HistoryRow",
    "as_history",
    "beginning_of",
    "first_id_since",
    "outcome_of",
    "outcome_reader",
    "outcomes_of",
]

MARGIN_US = round(timedelta(minutes=10) / timedelta(microseconds=1))
"""Ids rise with time, but clocks are set back now and then: so much earlier than asked is looked for."""

HistoryRow = tuple[int, str, int | None, int, bytes, str]
"""Id, type, when it happened and was recorded, payload, and the outcome of the trigger."""


MOST_REMEMBERED = 1_000
"""Stored verdicts that are remembered with their outcome. Those of a thousand triggers are some kilobytes."""


class Decided(Protocol):
    @property
    def trigger(self) -> str: ...

    @property
    def outcome(self) -> str: ...


class _Decided(msgspec.Struct, gc=False):
    """What counting needs of a verdict; the reason, which is most of it, is skipped."""

    trigger: str
    outcome: str


# create decoders at import: msgspec crashes when two threads use a type for the first time
_decode = msgspec.json.Decoder(list[_Decided]).decode


def beginning_of(trigger: str) -> bytes:
    """What stands before the outcome in stored verdicts, if the first of them is the trigger's."""
    return b'[{"trigger":' + msgspec.json.encode(trigger) + b',"outcome":"'


def outcomes_of(verdicts: str, trigger: str) -> list[str]:
    """The outcomes of the trigger, of lines with the verdicts of one event each: as stored, or what follows the
    beginning if that is the trigger's."""
    # most lines are equal, as they begin with the outcome
    outcomes: dict[str, str] = {}
    lines = verdicts.split("\n")
    for line in set(lines):
        outcomes[line] = outcome_of(_decode(line), trigger) if line.startswith("[") else line.partition('"')[0]
    return list(map(outcomes.__getitem__, lines))


def outcome_reader(trigger: str) -> Callable[[bytes], str]:
    """What finds the outcome of the trigger in the stored verdicts of one event, for the events of a page.

    Many events that nobody wanted have the same verdicts to the byte: these are decompressed once.
    """
    beginning = beginning_of(trigger)
    known: dict[bytes, str] = {}

    def outcome_in(stored: bytes) -> str:
        if stored.startswith(beginning):
            return stored[len(beginning) : stored.index(b'"', len(beginning))].decode()
        found = known.get(stored)
        if found is None:
            found = outcome_of(_decode(stored), trigger) if stored[:1] == b"[" else outcome_among(stored, trigger)
            if len(known) < MOST_REMEMBERED:
                known[stored] = found
        return found

    return outcome_in


def outcome_of(verdicts: Iterable[Decided], trigger: str) -> str:
    return next((each.outcome for each in verdicts if each.trigger == trigger), "")


def as_history(rows: Sequence[HistoryRow], limit: int) -> History:
    if not rows:
        return History()
    ids, types, occurred, recorded, payloads, outcomes = zip(*rows, strict=True)
    return History(
        ids=ids,
        types=types,
        occurred_at=occurred,
        recorded_at=recorded,
        outcomes=outcomes,
        data=b"\n".join(payloads),
        next=ids[-1] if len(ids) == limit else None,
    )


def first_id_since(since: int, newest: int) -> Generator[int, int | None, int]:
    """An id below which everything was recorded before `since`. Yields an id, and wants the time at which the first
    event from that id on was recorded, None without one."""
    low, high = 0, newest + 1
    while low < high:
        middle = (low + high) // 2
        recorded = yield middle
        if recorded is not None and recorded < since - MARGIN_US:
            low = middle + 1
        else:
            high = middle
    return low
