"""Longer naps for engines on virtual time: `pytest.mark.usefixtures("long_naps")`, where days of quiet are played."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harken.app import freshness
from harken.ingest import intake, shares
from harken.run import flight, worker

__all__ = ["long_naps"]


@pytest.fixture
def long_naps() -> Iterator[None]:
    """What an engine looks at every few seconds, only to see that nothing happened, is looked at every minute."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(intake, "FLUSH_SECONDS", 30.0)
        patch.setattr(flight, "LONGEST_SLEEP", 60.0)
        patch.setattr(worker, "LONGEST_SLEEP", 60.0)
        patch.setattr(shares, "LOOKS", 3)
        patch.setattr(freshness, "ROUND", 60.0)
        yield
