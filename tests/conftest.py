"""Shared by all tests: readable asserts in the shipped suites, and time for real processes on a busy machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
import structlog

pytest.register_assert_rewrite("harken.testing.source", "harken.testing.destination", "harken.testing.store")

PROCESS_SECONDS = 400


@pytest.fixture(autouse=True)
def logs_as_they_were() -> Iterator[None]:
    """What a command does to the logs of its process is over with the test."""
    yield
    if structlog.is_configured():
        structlog.reset_defaults()


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("process") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(PROCESS_SECONDS))
