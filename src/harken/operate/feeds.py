"""Operations on feeds: list, show."""

from __future__ import annotations

from harken.operate.context import Context
from harken.operate.output_rows import Plain, announced_row, feed_row, lag_row, plain, spans
from harken.operate.owner_access import visible_rows
from harken.operate.paging import page_by

__all__ = ["list_feeds", "show"]


async def list_feeds(context: Context, *, cursor: str = "", limit: int = 0) -> Plain:
    """Feeds by name."""
    states = {state.name: state for state in await context.store.feeds()}
    known = context.feeds()
    # a feed that left the configuration stays in the store in case it returns, but is not listed
    ids = sorted((id for id in states if id in known or not known), key=context.feed_label)
    rows = [feed_row(states[id], known.get(id), _listeners(context, id)) for id in ids]
    return page_by(visible_rows(context, "triggers", rows), cursor, limit)


async def show(context: Context, *, name: str) -> Plain:
    """One feed with its query, its coverage ledger and its last reads."""
    id = context.feed_id(name)
    state = await context.feed(id)
    feed = context.feeds().get(id)
    ticks = await context.store.ticks(id)
    return feed_row(state, feed, _listeners(context, id)) | {
        "query": plain(feed.query) if feed else {},
        "identity": feed.identity if feed else "",
        "lookback": feed.lookback if feed else 0.0,
        "revision": state.revision,
        "created_at": plain(state.created_at),
        "clock_skew": context.engine.clock_skews().get(id, 0.0) if context.engine else 0.0,
        **lag_row(context.engine.stream_lags().get(id) if context.engine else None),
        **announced_row(context.engine.announced().get(id) if context.engine else None),
        "coverage": spans(state.coverage),
        "ticks": [plain(tick) for tick in ticks],
    }


def _listeners(context: Context, feed: str) -> list[str]:
    return sorted(trigger.name for trigger in context.triggers().values() if feed in trigger.feeds)
