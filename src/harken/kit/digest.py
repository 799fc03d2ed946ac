"""Short digests, for comparing what was read with what was read before. Not for secrets or signatures."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

__all__ = ["digest_of", "digest_of_json"]


def digest_of(data: bytes) -> str:
    """24 hexadecimal digits."""
    return hashlib.blake2b(data, digest_size=12).hexdigest()


def digest_of_json(value: Any) -> str:
    """The digest of a JSON value. The order of keys makes no difference."""
    return digest_of(msgspec.json.encode(value, order="deterministic"))
