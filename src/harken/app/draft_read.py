"""Reads a service for a trigger that is not stored, as its dry run does, and remembers what it showed for a minute.

Whoever writes a trigger changes its condition many times and its query seldom: only the query needs another read."""

from __future__ import annotations

import copy
from dataclasses import replace
from datetime import timedelta

import msgspec

from harken.app.source_and_action_factory import Factory
from harken.app.trigger_dry_run import UNDATED, read_pages
from harken.clock import Clock
from harken.operate.engine_protocol import DraftEvents, DraftFeed
from harken.operate.integrations import check_query
from harken.source import Closable, PollSource

__all__ = ["DraftReads"]

REMEMBERED_SECONDS = 60.0
MOST_REMEMBERED = 8
MOST_EVENTS = 1_000
PAGES = 5
"""A form waits for the answer, so fewer pages are read than `harken triggers test` reads."""


class DraftReads:
    """The last reads of drafts, each for a minute."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[object, tuple[float, DraftEvents]] = {}

    async def read(self, factory: Factory, draft: DraftFeed, lookback: float) -> DraftEvents:
        """What the draft's service shows of the last `lookback` seconds, oldest first. Nothing is written."""
        key = (draft.feed.name, msgspec.json.encode(draft.feed.query), draft.secrets, lookback)
        at, known = self._known.get(key, (0.0, None))
        if known is not None and self._clock.time() - at < REMEMBERED_SECONDS:
            return known
        found = await _read(factory, draft, self._clock, lookback)
        self._known[key] = (self._clock.time(), found)
        while len(self._known) > MOST_REMEMBERED:
            del self._known[next(iter(self._known))]
        return found


async def _read(factory: Factory, draft: DraftFeed, clock: Clock, lookback: float) -> DraftEvents:
    mine = _factory_for(factory, draft)
    names = await check_query(draft.feed, mine.loaded, mine.plugins, mine.lend)
    source = mine.source(draft.feed)
    try:
        if not isinstance(source, PollSource):
            return DraftEvents(notes=(f"{draft.feed.display_name} is pushed: there is nothing to read",))
        since = clock.now() - timedelta(seconds=lookback)
        events, complete = await read_pages(source, draft.feed, since, PAGES)
    finally:
        if isinstance(source, Closable):
            await source.aclose()
    return DraftEvents(
        events=tuple(events[-MOST_EVENTS:]),
        complete=complete and len(events) <= MOST_EVENTS,
        notes=() if all(event.occurred_at for event in events) else (UNDATED,),
        unknown=tuple(names.unknown) if names else (),
    )


def _factory_for(factory: Factory, draft: DraftFeed) -> Factory:
    """The factory with the draft in its configuration; rate limits and connections are those that all share."""
    found, loaded = copy.copy(factory), factory.loaded
    accounts = {draft.account.name: draft.account} if draft.account is not None else {}
    queries = {draft.feed.name: draft.query} if draft.query is not None else {}
    found.loaded = replace(
        loaded,
        integrations={**accounts, **loaded.integrations},
        queries=queries or {name: loaded.queries[name] for name in (draft.feed.name,) if name in loaded.queries},
        secrets=loaded.secrets | draft.secrets,
    )
    return found
