"""What happened to a work item, asked for where it does not tell itself since when it matches, and remembered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harken.services.azure_devops.api import Api
from harken.services.azure_devops.item import Item

__all__ = ["Gone", "Histories"]

MOST_PAGES = 20
KEPT = 5000


class Gone(Exception):
    """The work item was deleted after it was listed."""


class Histories:
    """The histories of work items. One that is behind the work item is not remembered."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._known: dict[int, tuple[int, Sequence[Any] | None]] = {}

    async def of(self, item: Item) -> Sequence[Any] | None:
        """Its updates, oldest first; None when there are too many to read. Raises Gone."""
        assert item.id is not None
        known = self._known.get(item.id)
        if known is not None and known[0] == item.rev:
            return known[1]
        found = await self._api.updates(item.id, MOST_PAGES)
        if found is None:
            raise Gone
        updates = found[0] if found[1] else None
        if item.rev is not None and (updates is None or _newest(updates) >= item.rev):
            self._keep(item.id, item.rev, updates)
        return updates

    def _keep(self, id: int, rev: int, updates: Sequence[Any] | None) -> None:
        while len(self._known) >= KEPT:
            del self._known[next(iter(self._known))]
        self._known[id] = (rev, updates)


def _newest(updates: Sequence[Any]) -> int:
    revs = [one.get("rev") for one in updates if isinstance(one, Mapping)]
    return max((rev for rev in revs if type(rev) is int), default=0)
