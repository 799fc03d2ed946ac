"""Real store servers that keep what they acknowledged, whatever happens to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import pytest

from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer
from tests.soak import SOAK

__all__ = ["BOTH", "POSTGRES", "REDIS", "StoreServer", "running"]


def _on(*kinds: str) -> pytest.MarkDecorator:
    found = [pytest.param(kind, marks=pytest.mark.worker_group(f"fleet-{kind}")) for kind in kinds]
    return pytest.mark.parametrize("kind", found)


BOTH = _on("postgres", "redis")
"""For a test on each store; those on the same one run one after the other."""
POSTGRES, REDIS = (BOTH, BOTH) if SOAK else (_on("postgres"), _on("redis"))
"""For a test of what no store does in another way: on both of them only in long rounds."""


class StoreServer(Protocol):
    """A server that can be stopped, killed and started again."""

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def kill(self) -> None: ...


@contextmanager
def running(
    kind: str, *, everywhere: bool = False, inside: Callable[[Callable[[], Any]], None] = lambda work: work()
) -> Iterator[tuple[StoreServer, str]]:
    """A server with an empty store, and its address. `inside` starts it where it shall live."""
    server = (_postgres if kind == "postgres" else _redis)(everywhere)
    inside(server.__enter__)
    try:
        yield server, server.url("postgres") if isinstance(server, PostgresServer) else server.url()
    finally:
        inside(lambda: server.__exit__(None, None, None))


def _postgres(everywhere: bool) -> PostgresServer:
    return PostgresServer(durable=True, **({"listen": "*"} if everywhere else {}))


def _redis(everywhere: bool) -> RedisServer:
    return RedisServer(appendonly="yes", appendfsync="always", **({"bind": "0.0.0.0"} if everywhere else {}))
