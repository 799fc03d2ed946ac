"""How the idempotency key of a step goes with what it sends to a queue or a topic."""

from __future__ import annotations

import hashlib
import re

__all__ = ["KEY_ATTRIBUTE", "deduplication_id"]

KEY_ATTRIBUTE = "idempotency-key"
"""The message attribute that has the key: standard queues and topics do not drop repeats themselves."""
_ALLOWED = re.compile(r"[A-Za-z0-9!\"#$%&'()*+,./:;<=>?@\[\\\]^_`{|}~-]{1,128}")


def deduplication_id(key: str) -> str:
    """The key, or a digest of it where it is longer than Amazon allows, or has other characters."""
    return key if _ALLOWED.fullmatch(key) else hashlib.sha256(key.encode()).hexdigest()
