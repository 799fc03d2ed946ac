"""Recorded events of the last days, read from the configuration's own store to simulate with."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path

from harken.app.store import KEY, open_store
from harken.clock import SystemClock
from harken.config.loaded import Loaded
from harken.config.settings import is_url
from harken.errors import NotFound
from harken.event import Recorded

__all__ = ["read_history"]

PAGE = 500
MOST = 5_000
"""So many of the newest events of a feed are used."""


async def read_history(loaded: Loaded, seconds: float) -> tuple[datetime, Mapping[str, Sequence[Recorded]]]:
    """When the span began, and the events of each feed in it. Raise NotFound without a store, or without events."""
    clock = SystemClock()
    since = (clock.now() - timedelta(seconds=seconds)).replace(microsecond=0)
    if not is_url(loaded.store) and not Path(loaded.store).exists():
        raise NotFound("there is no store with a history yet", fix="Leave --from-history out: events are made up then")
    opened = open_store(loaded.store, clock, readonly=True, key=os.environ.get(KEY, ""))
    try:
        await opened.connect()
        found: dict[str, Sequence[Recorded]] = {}
        for feed in loaded.feeds:
            events: list[Recorded] = []
            before: int | None = None
            while len(events) < MOST:
                page = await opened.store.events(feed=feed.name, since=since, before=before, limit=PAGE)
                events += page.items
                before = page.next
                if before is None:
                    break
            found[feed.name] = events[:MOST]
    finally:
        await opened.store.close()
    if not any(found.values()):
        raise NotFound("no event was recorded in that time", fix="Ask for a longer one, or leave --from-history out")
    return since, found
