"""Strangers in a process of their own: `python crowd.py PORT HALF_OPEN MEGABYTES` connects, sends, and says so."""

from __future__ import annotations

import socket
import sys
from contextlib import suppress


def half_open(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port))
    connection.sendall(b"POST /webhooks/generic/hook HTTP/1.1\r\nHost: h\r\n")
    return connection


def endless_header(port: int, megabytes: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection, suppress(ConnectionError):
        connection.sendall(b"POST /webhooks/generic/hook HTTP/1.1\r\nX: ")
        for _ in range(megabytes):
            connection.sendall(b"x" * 1_000_000)


if __name__ == "__main__":
    port, count, megabytes = map(int, sys.argv[1:])
    crowd = [half_open(port) for _ in range(count)]
    endless_header(port, megabytes)
    sys.stdout.write("here\n")
    sys.stdout.flush()
    sys.stdin.read()
