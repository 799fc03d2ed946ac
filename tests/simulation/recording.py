"""Events in the store of a configuration, as if they had been read at some time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from harken.app.store import open_store
from harken.event import Event
from harken.ingest.commit import Committer, RuleCache
from harken.match import Read
from harken.operate.load_and_check_configuration import load_directory
from harken.testing import HandClock
from tests.ingest.process import NoExecutor

__all__ = ["record"]


def record(site: Path, events: Sequence[tuple[str, str, str | None, Mapping[str, Any]]], at: datetime) -> list[int]:
    """Store events (feed, subject, state, data) with the verdicts of the configuration's triggers. Return their ids."""

    async def commit() -> list[int]:
        clock = HandClock(at)
        loaded = load_directory(site)
        opened = open_store(loaded.store, clock)
        await opened.store.open(loaded.definitions())
        clock.advance(60)
        executor: Any = NoExecutor()
        committer = Committer(opened.store, RuleCache(opened.store), executor, clock)
        ids: list[int] = []
        for feed, subject, state, data in events:
            name = next(one.name for one in loaded.feeds if feed in (one.name, one.display_name))
            event = Event(subject=subject, type="item", data=data, state=state, occurred_at=clock.now())
            ids += (await committer.push(name, [event], Read(now=clock.now()))).event_ids
            clock.advance(60)
        await opened.store.close()
        return ids

    return asyncio.run(commit())
