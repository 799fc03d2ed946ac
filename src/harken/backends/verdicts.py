"""Verdicts as stored bytes. A thousand triggers on one feed give a thousand of them for every event, nearly all alike.

Few are a JSON list of objects, as they always were. Many are written column by column and compressed, which takes a
twentieth of the space. Whoever reads gets the same verdicts either way.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import msgspec

from harken.event import Outcome, Verdict

__all__ = ["MANY", "decode_verdicts", "encode_verdicts", "outcome_among"]

MANY = 8
"""So many verdicts are compressed; fewer would gain nothing."""

_COMPRESSED = b"\x01"
"""The first byte of compressed verdicts. A JSON list begins with a bracket."""

_LEVEL = 1

_Columns = tuple[list[str], list[Outcome], list[str], list[int], list[str], list[str]]
"""Triggers, outcomes, beginnings of reasons, numbers of their ends, run ids; and the ends."""

_Outcomes = tuple[list[str], list[str], msgspec.Raw, msgspec.Raw, msgspec.Raw, msgspec.Raw]
"""Of these columns only triggers and outcomes."""

_VALUES = " ("
"""What stands before the values of the event in a reason. These are the same for all triggers that read the same."""

# create decoders at import: msgspec crashes when two threads use a type for the first time
_encode = msgspec.json.Encoder().encode
_decode_list = msgspec.json.Decoder(tuple[Verdict, ...]).decode
_decode_columns = msgspec.json.Decoder(_Columns).decode
_decode_outcomes = msgspec.json.Decoder(_Outcomes).decode


def encode_verdicts(verdicts: Sequence[Verdict]) -> bytes:
    if len(verdicts) < MANY:
        return _encode(verdicts)
    return _COMPRESSED + zlib.compress(_encode(_columns(verdicts)), _LEVEL)


def decode_verdicts(stored: bytes) -> tuple[Verdict, ...]:
    if stored[:1] != _COMPRESSED:
        return _decode_list(stored)
    triggers, outcomes, beginnings, numbers, run_ids, ends = _decode_columns(zlib.decompress(stored[1:]))
    return tuple(
        Verdict(trigger=trigger, outcome=outcome, reason=beginning + ends[number], run_id=run_id)
        for trigger, outcome, beginning, number, run_id in zip(
            triggers, outcomes, beginnings, numbers, run_ids, strict=True
        )
    )


def outcome_among(stored: bytes, trigger: str) -> str:
    """The outcome of one trigger among many verdicts as they are stored, without making these; empty for none."""
    triggers, outcomes, *_ = _decode_outcomes(zlib.decompress(stored[1:]))
    return outcomes[triggers.index(trigger)] if trigger in triggers else ""


def _columns(verdicts: Sequence[Verdict]) -> _Columns:
    beginnings: list[str] = []
    numbers: list[int] = []
    ends: dict[str, int] = {}
    for verdict in verdicts:
        beginning, sign, values = verdict.reason.partition(_VALUES)
        beginnings.append(beginning)
        numbers.append(ends.setdefault(sign + values, len(ends)))
    return (
        [verdict.trigger for verdict in verdicts],
        [verdict.outcome for verdict in verdicts],
        beginnings,
        numbers,
        [verdict.run_id for verdict in verdicts],
        list(ends),
    )
