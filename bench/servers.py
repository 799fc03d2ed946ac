"""Servers of our own for the measurements, set to keep what they acknowledge; RuntimeError where there are none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.servers.postgres import PostgresServer
    from tests.servers.redis import RedisServer

__all__ = ["broker", "durable_postgres", "durable_redis", "new_database", "postmaster"]

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
def broker(system: str) -> Iterator[str]:
    """The address of a broker with nothing in it. Kafka's is librdkafka's mock cluster, which is in memory."""
    with _told(system):
        server, address = _BROKERS[system]()
        server.__enter__()
    try:
        yield address(server)
    finally:
        server.__exit__(None, None, None)


def _kafka() -> tuple[Any, Callable[[Any], str]]:
    from tests.servers.kafka import KafkaServer

    return KafkaServer(), lambda server: str(server.address)


def _nats() -> tuple[Any, Callable[[Any], str]]:
    from tests.servers.nats import NatsServer

    return NatsServer("debug: false"), lambda server: f"nats://127.0.0.1:{server.port}"


def _rabbitmq() -> tuple[Any, Callable[[Any], str]]:
    from tests.servers.rabbitmq import RabbitServer

    return RabbitServer(), lambda server: str(server.url)


def _sqs() -> tuple[Any, Callable[[Any], str]]:
    from tests.servers.moto import MotoServer

    return MotoServer(), lambda server: str(server.url)


def _mqtt() -> tuple[Any, Callable[[Any], str]]:
    from tests.servers.mosquitto import Mosquitto

    return Mosquitto(), lambda server: str(server.url())


_BROKERS: dict[str, Callable[[], tuple[Any, Callable[[Any], str]]]] = {
    "kafka": _kafka,
    "nats": _nats,
    "rabbitmq": _rabbitmq,
    "sqs": _sqs,
    "mqtt": _mqtt,
}


@contextmanager
def _told(what: str) -> Iterator[None]:
    """The starters speak to tests: they skip, or fail. A measurement says that it cannot be done, and why."""
    try:
        yield
    except ABSENT as error:
        raise RuntimeError(f"there is no {what} to measure: {error}") from None
    except ImportError as error:
        raise RuntimeError(f"measuring {what} needs {error.name}; pip install 'harken[dev]'") from None
