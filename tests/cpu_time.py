"""Limits for what a piece of code may cost, in seconds of a quiet machine of the usual speed.

A limit in plain seconds fails where others use the machine, or the machine is slow: the same work then takes several
times as much processor time. So a fixed piece of work is measured beside it, and the limit grows with what that took.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["cpu_at_most", "slowness"]

USUAL_SECONDS = 0.01
"""What the fixed piece of work takes on a quiet machine."""


@contextmanager
def cpu_at_most(seconds: float) -> Iterator[None]:
    """Fail if the block takes more of this process's CPU time than `seconds` of a quiet machine of the usual speed."""
    before = slowness()
    began = time.process_time()
    yield
    spent = time.process_time() - began
    limit = seconds * max(before, slowness())
    assert spent < limit, f"{spent:.2f} s of CPU; at most {seconds} s of a quiet machine, {limit:.2f} s of this one now"


def slowness() -> float:
    """How many times as much CPU time as on a quiet machine the same work takes now: the worst of five."""
    return max(1.0, *(_reference_seconds() / USUAL_SECONDS for _ in range(5)))


def _reference_seconds() -> float:
    began = time.process_time()
    rows = [{"number": number, "text": str(number)} for number in range(40_000)]
    assert len(",".join(str(row["text"]) for row in rows)) > 0
    return time.process_time() - began
