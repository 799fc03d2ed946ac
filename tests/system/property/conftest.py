"""A place in memory for stores, and no log lines about planned disasters."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from tests.memory_files import in_memory


@pytest.fixture(scope="module")
def room() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=in_memory(), prefix="harken-") as directory:
        yield Path(directory)


@pytest.fixture(autouse=True, scope="module")
def silent() -> Iterator[None]:
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.configure(**before)
