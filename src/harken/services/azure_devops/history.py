"""What happened to a work item, for where it does not tell itself since when it matches."""

from __future__ import annotations

from collections.abc import Mapping

from harken.kit.histories import Gone, Histories, History
from harken.services.azure_devops.api import Api
from harken.services.azure_devops.event import Item

__all__ = ["history_of"]

MOST_PAGES = 20


async def history_of(item: Item, histories: Histories, api: Api) -> History:
    """Its updates, oldest first; None when there are too many to read. Raises Gone.

    Updates that are behind the work item are not remembered.
    """
    id, rev = item.id, item.rev
    assert id is not None

    async def read() -> History:
        found = await api.updates(id, MOST_PAGES)
        if found is None:
            raise Gone
        updates, whole = found
        return updates if whole else None

    return await histories.of(id, rev, read, lambda updates: updates is None or _newest(updates) >= (rev or 0))


def _newest(updates: History) -> int:
    revs = [one.get("rev") for one in updates or () if isinstance(one, Mapping)]
    return max((rev for rev in revs if type(rev) is int), default=0)
