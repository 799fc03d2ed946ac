"""Longer naps for engines on virtual time: `pytest.mark.usefixtures("long_naps")`, where days of quiet are played."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from harken.app import freshness
from harken.ingest import intake, leases
from harken.run import worker

__all__ = ["long_naps", "napping"]


@contextmanager
def napping(*, flush: float, sleep: float) -> Iterator[pytest.MonkeyPatch]:
    """Intake writes quiet reads down, and the worker looks for runs that nobody told it of, only this often."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(intake, "FLUSH_SECONDS", flush)
        patch.setattr(worker, "LONGEST_SLEEP", sleep)
        patch.setattr(worker, "LONGEST_SLEEP", sleep)
        yield patch


@pytest.fixture
def long_naps() -> Iterator[None]:
    """What an engine looks at every few seconds, only to see that nothing happened, is looked at every minute."""
    with napping(flush=30.0, sleep=60.0) as patch:
        patch.setattr(leases, "LOOKS", 3)
        patch.setattr(freshness, "ROUND", 60.0)
        yield
