"""Shared by all tests: readable asserts in suites that others run, and time for real processes on a busy machine."""

from __future__ import annotations

import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator

import pytest
import structlog

from tests.memory_files import in_memory

__all__ = ["logs_as_they_were"]

pytest.register_assert_rewrite("harken.testing.source", "harken.testing.destination", "harken.testing.store")
pytest.register_assert_rewrite("tests.services.trackers", "tests.services.whole")

PROCESS_SECONDS = 900


def pytest_configure(config: pytest.Config) -> None:
    # thousands of tests are made, which stay until the end: looking for garbage among them is a third of it
    gc.disable()
    if memory := in_memory():
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", memory)
    # nobody's keys, settings and caches: what one test leaves there is not found by another clone
    home = tempfile.mkdtemp(prefix="harken-home-")
    config.add_cleanup(lambda: shutil.rmtree(home, ignore_errors=True))
    os.environ["HOME"] = home
    # nor what the keyring of this machine holds; the tests of keyrings bring their own
    os.environ["HARKEN_KEYRING"] = "off"
    for name in [name for name in os.environ if name.startswith("XDG_")]:
        del os.environ[name]


@pytest.fixture(autouse=True)
def logs_as_they_were() -> Iterator[None]:
    """What a command does to the logs of its process is over with the test."""
    before = structlog.get_config() if structlog.is_configured() else None
    yield
    if before is not None:
        structlog.configure(**before)
    elif structlog.is_configured():
        structlog.reset_defaults()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("process") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(PROCESS_SECONDS))


def pytest_collection_finish() -> None:
    if strategies := sys.modules.get("hypothesis.strategies"):
        # which characters there are takes two seconds to find out in a new clone: once, and not in each worker
        strategies.text().validate()
    gc.freeze()
    gc.enable()
