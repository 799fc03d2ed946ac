"""Connections that are not HTTP, such as IMAP and SMTP, guarded like those of the HTTP client."""

from __future__ import annotations

import socket
import ssl
from typing import Any

from harken.errors import Misconfigured
from harken.http.guard import check_address

__all__ = ["allowed_addresses", "connect", "shut_down", "tls_context"]


def allowed_addresses(host: str, port: int, allow_private: bool) -> list[tuple[Any, ...]]:
    """Resolve a host to socket addresses. Raise Refused when one of them is not allowed."""
    found = [target for *_, target in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    for target in found:
        check_address(host, str(target[0]), allow_private)
    return found


def connect(targets: list[tuple[Any, ...]], timeout: float | None) -> socket.socket:
    """Connect to the first address that answers. No name is resolved again, so only checked addresses are used."""
    problem: OSError = OSError("no address")
    for target in targets:
        try:
            return socket.create_connection(target[:2], timeout)
        except OSError as error:
            problem = error
    raise problem


def tls_context(ca_bundle: str) -> ssl.SSLContext:
    """A TLS context that trusts the certificates in the file, or those of the system if the path is empty."""
    try:
        return ssl.create_default_context(cafile=ca_bundle or None)
    except OSError:
        raise Misconfigured("ca_bundle of the mail server cannot be read", fix="Check the path") from None


def shut_down(sock: socket.socket | None) -> None:
    """Shut the connection down, so that a thread that waits for the other side stops waiting."""
    if sock is None:
        return
    try:
        # not the method of a TLS socket, which would detach the TLS layer under the thread that reads
        socket.socket.shutdown(sock, socket.SHUT_RDWR)
    except OSError:
        return  # closed already
