"""A journal as it is read, whichever store holds it."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from harken.runs import StepRecord

__all__ = ["steps"]

_record = msgspec.json.Decoder(StepRecord).decode


def steps(records: Iterable[bytes]) -> tuple[StepRecord, ...]:
    """Each once: a worker that does not know whether its write was taken writes the very same record again."""
    return tuple(_record(record) for record in dict.fromkeys(records))
