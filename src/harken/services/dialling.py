"""Connections that are not the HTTP client's: what is dialled is checked like the addresses of web servers."""

from __future__ import annotations

import socket
from typing import Any

from harken.http.guard import check_address

__all__ = ["addresses", "dial"]


def addresses(host: str, port: int, allow_private: bool) -> list[tuple[Any, ...]]:
    """Where a host is, as a socket takes it. Raises Refused when one of the addresses is not allowed."""
    found = [where for *_, where in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    for where in found:
        check_address(host, str(where[0]), allow_private)
    return found


def dial(places: list[tuple[Any, ...]], timeout: float | None) -> socket.socket:
    """A connection to the first of the places that answers. What was checked is dialled: no name is looked up again."""
    problem: OSError = OSError("no address")
    for where in places:
        try:
            return socket.create_connection(where[:2], timeout)
        except OSError as error:
            problem = error
    raise problem
