"""Names for messages that carry no id, the same when one is delivered again.

RabbitMQ has no name for a message. Those of the last batch are in the cursor until their acknowledgement has arrived:
if it never does, they come again with the mark `redelivered`, and one with the same content takes the old name.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from secrets import token_hex

__all__ = ["MessageNames"]


class MessageNames:
    """`left` are names that were committed, and of which nobody knows whether they were acknowledged."""

    def __init__(self, left: Sequence[str]) -> None:
        self._connection = token_hex(4)
        self._left: dict[str, list[str]] = defaultdict(list)
        for name in left:
            self._left[name.partition(".")[0]].append(name)

    def name(self, content: bytes, tag: int, *, redelivered: bool) -> str:
        digest = hashlib.sha256(content).hexdigest()[:20]
        if redelivered and self._left.get(digest):
            return self._left[digest].pop(0)
        return f"{digest}.{self._connection}.{tag}"

    @property
    def left(self) -> list[str]:
        return [name for names in self._left.values() for name in names]

    def forget(self) -> None:
        """They would have come again by now: they were acknowledged."""
        self._left.clear()
