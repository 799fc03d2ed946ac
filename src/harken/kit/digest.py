"""Short digests, for comparing what was read with what was read before. Not for secrets or signatures."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

import msgspec

__all__ = ["digest_of", "digest_of_json", "digest_of_long"]

_INLINE = 1_000_000
"""More bytes are digested in a thread, so that the event loop is not blocked."""


def digest_of(data: bytes) -> str:
    """24 hexadecimal digits."""
    return hashlib.blake2b(data, digest_size=12).hexdigest()


async def digest_of_long(data: bytes) -> str:
    """As `digest_of`, for any number of bytes."""
    return digest_of(data) if len(data) <= _INLINE else await asyncio.to_thread(digest_of, data)


def digest_of_json(value: Any) -> str:
    """The digest of a JSON value. The order of keys makes no difference."""
    return digest_of(msgspec.json.encode(value, order="deterministic"))
