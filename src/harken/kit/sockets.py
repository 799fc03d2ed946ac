"""Connections that are not the HTTP client's: what is dialled is checked like the addresses of web servers."""

from __future__ import annotations

import socket
import ssl
from typing import Any

from harken.errors import Misconfigured
from harken.http.guard import check_address

__all__ = ["allowed_addresses", "connect", "shut_down", "tls_context"]


def allowed_addresses(host: str, port: int, allow_private: bool) -> list[tuple[Any, ...]]:
    """Where a host is, as a socket takes it. Raises Refused when one of the addresses is not allowed."""
    found = [where for *_, where in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    for where in found:
        check_address(host, str(where[0]), allow_private)
    return found


def connect(places: list[tuple[Any, ...]], timeout: float | None) -> socket.socket:
    """A connection to the first of the places that answers. What was checked is dialled: no name is looked up again."""
    problem: OSError = OSError("no address")
    for where in places:
        try:
            return socket.create_connection(where[:2], timeout)
        except OSError as error:
            problem = error
    raise problem


def tls_context(ca_bundle: str) -> ssl.SSLContext:
    """Encryption that trusts the certificates in the file, or those of the system if it is empty."""
    try:
        return ssl.create_default_context(cafile=ca_bundle or None)
    except OSError:
        raise Misconfigured("ca_bundle of the mail server cannot be read", fix="Check the path") from None


def shut_down(sock: socket.socket | None) -> None:
    """End what is said over the connection, so that a thread that waits for the other side waits no longer."""
    if sock is None:
        return
    try:
        # not the method of a TLS socket, which would pull it away under the thread that reads
        socket.socket.shutdown(sock, socket.SHUT_RDWR)
    except OSError:
        return  # closed already, which is what we want
