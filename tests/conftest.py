"""Shared by all tests: readable asserts in the shipped suites, and time for real processes on a busy machine."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress

import pytest
import structlog

from tests.naps import long_naps

__all__ = ["logs_as_they_were", "long_naps"]

pytest.register_assert_rewrite("harken.testing.source", "harken.testing.destination", "harken.testing.store")

PROCESS_SECONDS = 400
MEMORY, ROOM = "/dev/shm", 2_000_000_000


def pytest_configure() -> None:
    """Files of tests are in memory where there is room: each commit waits for the disk, which is not what is tested."""
    with suppress(OSError):
        if shutil.disk_usage(MEMORY).free > ROOM:
            os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", MEMORY)


@pytest.fixture(autouse=True)
def logs_as_they_were() -> Iterator[None]:
    """What a command does to the logs of its process is over with the test."""
    before = structlog.get_config() if structlog.is_configured() else None
    yield
    if before is not None:
        structlog.configure(**before)
    elif structlog.is_configured():
        structlog.reset_defaults()


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("process") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(PROCESS_SECONDS))
