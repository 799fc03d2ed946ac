"""Ports for servers that are told theirs before they start, or that are stopped and started again."""

from __future__ import annotations

import itertools
import random
import socket
from pathlib import Path

__all__ = ["free_port"]

RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
BELOW, LOWEST = 16_000, 10_000

_reserved: list[socket.socket] = []


def free_port() -> int:
    """A port of loopback that no other test of this machine is given while this process lives.

    Below the range from which the kernel takes ports for connections: one of those may get the port in the moment
    between its choice and its use, or while the server is away.
    """
    first = _first_of_connections()
    for tries in itertools.count():
        port = random.randrange(first - BELOW, first) if first and tries < BELOW else 0
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            port = int(probe.getsockname()[1])
        if _reserve(port):
            return port
    raise AssertionError("unreachable")


def _first_of_connections() -> int:
    """0 where that is not known, or there is no room below it."""
    try:
        first = int(RANGE.read_text().split()[0])
    except OSError:
        return 0
    return first if first - BELOW >= LOWEST else 0


def _reserve(port: int) -> bool:
    """By a name that the kernel gives to one process and takes back at its end. False if another one has it."""
    name = socket.socket(socket.AF_UNIX)
    try:
        name.bind(f"\0harken-tests-port-{port}")
    except OSError:
        name.close()
        return not RANGE.exists()  # only Linux has such names
    _reserved.append(name)
    return True
