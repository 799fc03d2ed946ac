"""What was applied last, and what a trigger would do: the same with a running engine and without one."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from harken.app.dry_run import preview
from harken.app.factory import Parts
from harken.clock import Clock
from harken.config import Loaded
from harken.errors import NotFound
from harken.feed import Feed, Trigger
from harken.operate.engine import Preview
from harken.operate.queries import checked
from harken.source import Closable
from harken.store import Definitions, Store

__all__ = ["last_applied", "preview_of", "remember", "said", "start_lines"]


async def last_applied(store: Store, loaded: Loaded) -> Loaded:
    """The feeds and triggers that were applied last, whoever did it; empty for a new store."""
    document = await store.get("config", "applied")
    if document is None:
        return Loaded(directory=loaded.directory)
    feeds = msgspec.convert(document.value["feeds"], tuple[Feed, ...])
    triggers = msgspec.convert(document.value["triggers"], tuple[Trigger, ...])
    return Loaded(directory=loaded.directory, feeds=feeds, triggers=triggers)


async def remember(store: Store, definitions: Definitions) -> None:
    value = {"feeds": list(definitions.feeds), "triggers": list(definitions.triggers)}
    await store.put("config", "applied", value)


async def start_lines(store: Store) -> Mapping[str, datetime]:
    return {state.name: state.start_line for state in await store.triggers()}


async def preview_of(
    store: Store, parts: Parts, clock: Clock, trigger: str, lookback: float, begun: Mapping[str, datetime]
) -> Preview:
    loaded = parts.loaded
    wanted = next((found for found in loaded.triggers if found.name == trigger), None)
    if wanted is None:
        raise NotFound(f"there is no trigger {trigger}", fix="See: harken triggers list")
    feed = next(found for found in loaded.feeds if found.name == wanted.feed)
    names = await checked(feed, loaded, parts.plugins, parts.lend)
    start_line = begun.get(trigger)
    source = parts.source(feed)
    try:
        return await preview(store, feed, wanted, source, clock, lookback, names, start_line)
    finally:
        if isinstance(source, Closable):
            await source.aclose()


def said(loaded: Loaded) -> list[str]:
    """The findings as a person reads them."""
    return [str(finding) for finding in loaded.findings]
