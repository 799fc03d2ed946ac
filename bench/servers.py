"""Servers of our own for the measurements, set to keep what they acknowledge; RuntimeError where there are none."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.servers.kafka import KafkaServer
    from tests.servers.postgres import PostgresServer
    from tests.servers.redis import RedisServer

__all__ = ["durable_postgres", "durable_redis", "mock_kafka", "new_database", "postmaster"]

ROOMY = "-c shared_buffers=256MB -c max_wal_size=4GB"
ABSENT = (pytest.skip.Exception, pytest.fail.Exception, AssertionError, OSError)


@contextmanager
def durable_postgres() -> Iterator[PostgresServer]:
    with _told("PostgreSQL"):
        from tests.servers.postgres import PostgresServer

        server = PostgresServer(durable=True)
        # what is said last counts
        server._settings = f"{server._settings} {ROOMY}"
        server.__enter__()
    try:
        yield server
    finally:
        server.__exit__()


def new_database(server: PostgresServer) -> str:
    """The address of an empty one."""
    return server.url(asyncio.run(server.database()))


def postmaster(server: PostgresServer) -> int:
    """The process whose children serve the sessions."""
    return int((server._data / "postmaster.pid").read_text().split()[0])


@contextmanager
def durable_redis() -> Iterator[RedisServer]:
    with _told("Redis"):
        from tests.servers.redis import RedisServer

        server = RedisServer(appendonly="yes", appendfsync="always").__enter__()
    try:
        yield server
    finally:
        server.__exit__()


@contextmanager
def mock_kafka() -> Iterator[KafkaServer]:
    """It keeps its topics in memory, and costs less than a real one."""
    with _told("Kafka"):
        from tests.servers.kafka import KafkaServer

        server = KafkaServer().__enter__()
    try:
        yield server
    finally:
        server.__exit__()


@contextmanager
def _told(what: str) -> Iterator[None]:
    """The starters speak to tests: they skip, or fail. A measurement says that it cannot be done, and why."""
    try:
        yield
    except ABSENT as error:
        raise RuntimeError(f"there is no {what} to measure: {error}") from None
    except ImportError as error:
        raise RuntimeError(f"measuring {what} needs {error.name}; pip install 'harken[dev]'") from None
