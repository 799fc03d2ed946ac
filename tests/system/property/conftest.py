"""Longer naps, so that a virtual day costs milliseconds, and no log lines about planned disasters."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from harken.app import fleet
from harken.ingest import poll, scheduler
from harken.operate import fleet as members
from tests.memory_files import in_memory
from tests.system.property import fleet_scenario
from tests.timings import napping


@pytest.fixture(scope="module")
def room() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=in_memory(), prefix="harken-") as directory:
        yield Path(directory)


@pytest.fixture(autouse=True, scope="module")
def quick() -> Iterator[None]:
    # not those of `long_naps`: the scenarios that once went wrong were found with these, and may need them to go wrong
    with napping(flush=20.0, sleep=120.0) as patch:
        patch.setattr(scheduler, "LONGEST_NAP", 60.0)
        patch.setattr(scheduler, "DEAD", 600.0)
        patch.setattr(poll, "MEMORY_CAP", 4)
        patch.setattr(fleet, "BEAT_SECONDS", fleet_scenario.BEAT_SECONDS)
        patch.setattr(members, "ALIVE_SECONDS", fleet_scenario.ALIVE_SECONDS)
        patch.setattr(fleet, "LEASE_SECONDS", fleet_scenario.LEASE)
        before = structlog.get_config()
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
        yield
        structlog.configure(**before)
