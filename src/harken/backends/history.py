"""History: events of a feed in columns, oldest first. What the three stores share."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from datetime import timedelta
from typing import Protocol

import msgspec

from harken.store import History

__all__ = ["MARGIN_US", "HistoryRow", "as_history", "first_id_since", "outcome_of", "outcomes_of"]

MARGIN_US = round(timedelta(minutes=10) / timedelta(microseconds=1))
"""Ids rise with time, but clocks are set back now and then: so much earlier than asked is looked for."""

HistoryRow = tuple[int, str, int | None, int, bytes, str]
"""Id, type, when it happened and was recorded, payload, and the outcome of the trigger."""


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
_decode_all = msgspec.json.Decoder(list[list[_Decided]]).decode


def outcomes_of(verdicts: bytes, trigger: str) -> list[str]:
    """The outcomes of the trigger, of a JSON list with the verdicts of each event."""
    return [
        decided[0].outcome if len(decided) == 1 and decided[0].trigger == trigger else outcome_of(decided, trigger)
        for decided in _decode_all(verdicts)
    ]


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
        data=b"[" + b",".join(payloads) + b"]",
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
