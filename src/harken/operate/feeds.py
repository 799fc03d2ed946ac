"""Operations on feeds: list, show."""

from __future__ import annotations

from harken.operate.context import Context
from harken.operate.rows import Plain, feed_row, plain, spans

__all__ = ["list_feeds", "show"]


async def list_feeds(context: Context) -> Plain:
    states = {state.name: state for state in await context.store.feeds()}
    known = context.feeds()
    # a feed that left the configuration stays in the store in case it returns, but is not listed
    names = sorted(name for name in states if name in known or not known)
    rows = [feed_row(states[name], known.get(name), _listeners(context, name)) for name in names]
    return {"items": rows, "next": None}


async def show(context: Context, *, name: str) -> Plain:
    """One feed with its query, its coverage ledger and its last reads."""
    state = await context.feed(name)
    feed = context.feeds().get(name)
    ticks = await context.store.ticks(name)
    return feed_row(state, feed, _listeners(context, name)) | {
        "query": plain(feed.query) if feed else {},
        "identity": feed.identity if feed else "",
        "lookback": feed.lookback if feed else 0.0,
        "revision": state.revision,
        "created_at": plain(state.created_at),
        "clock_skew": context.engine.clock_skews().get(name, 0.0) if context.engine else 0.0,
        "coverage": spans(state.coverage),
        "ticks": [plain(tick) for tick in ticks],
    }


def _listeners(context: Context, feed: str) -> list[str]:
    return sorted(trigger.name for trigger in context.triggers().values() if trigger.feed == feed)
