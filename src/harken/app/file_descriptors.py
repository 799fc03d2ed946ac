"""How many files and sockets this process may have open."""

from __future__ import annotations

import sys

__all__ = ["KEPT", "WANTED", "raise_descriptors"]

WANTED = 1_280
"""Descriptors besides those of the listeners: all connections of both HTTP clients, the store, logs and files."""
KEPT = 256
"""How many of them the listeners leave alone where the process may not have that many."""


def raise_descriptors(wanted: int) -> int:
    """Raise the limit of this process to `wanted`, as far as it may, and return how many it may have."""
    if sys.platform == "win32":
        return wanted
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    except (OSError, ValueError):
        # macOS has a limit of its own below the hard one
        return soft
    return most
