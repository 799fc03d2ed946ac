"""Shared by all tests: readable asserts in the shipped suites, and time for real processes on a busy machine."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

pytest.register_assert_rewrite("harken.testing.source", "harken.testing.destination", "harken.testing.store")

PROCESS_SECONDS = 400


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("process") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(PROCESS_SECONDS))
