"""What stands in for a source that cannot be made."""

from __future__ import annotations

from datetime import datetime

from harken.errors import HarkenError, NeedsAttention
from harken.source import Batch, Cursor

__all__ = ["Broken"]


class Broken:
    """Reading it fails with the reason, like any other failure."""

    def __init__(self, error: HarkenError) -> None:
        self._error = error

    async def poll(self, cursor: Cursor, since: datetime) -> Batch:
        raise NeedsAttention(self._error.message, fix=self._error.fix)
