"""A place in memory for stores, the servers of the others, no log lines about disasters, and failures in short."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
import structlog

from tests.memory_files import in_memory
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer

LINES = 30


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    call: pytest.CallInfo[None],
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What went wrong stands behind the long scenario: whoever looks at the last lines must find it there."""
    report = yield
    if report.failed and call.excinfo is not None:
        report.sections.append(("What went wrong", "\n".join(causes(call.excinfo.value))))
    return report


def causes(error: BaseException) -> Iterator[str]:
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from causes(one)
    else:
        yield from f"{type(error).__name__}: {error}".splitlines()[:LINES]


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


# each example has a place of its own in them, so one of each serves all tests of a worker
@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with PostgresServer() as running:
        yield running


@pytest.fixture(scope="session")
def redis() -> Iterator[RedisServer]:
    with RedisServer() as running:
        yield running
