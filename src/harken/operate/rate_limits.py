"""The rate limit of each credential: what is left, until when it is blocked, and which feeds spend it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from harken.clock import from_unix
from harken.operate.context import Context
from harken.operate.output_rows import Plain, plain
from harken.operate.paging import page_by
from harken.operate.wording import ago
from harken.outgoing_rate_limit import Level
from harken.schedule import Every

if TYPE_CHECKING:
    from harken.config.loaded import Loaded

__all__ = ["budget_of", "list_rate_limits", "rows"]

WHY = {
    "asked": "the service answered 429 and asked for this wait",
    "used up": "the service says that the quota is used up until then",
}


async def list_rate_limits(context: Context, *, cursor: str = "", limit: int = 0) -> Plain:
    """Every credential that feeds or steps spend from, by its name."""
    return page_by(_all(context), cursor, limit, key="credential")


def budget_of(context: Context, feed: str) -> Plain | None:
    """The rate limit that this feed spends from, if it is known."""
    return next((row for row in _all(context) if context.feed_label(feed) in row["feeds"]), None)


def _all(context: Context) -> list[Plain]:
    if context.engine is None or context.loaded is None:
        return []
    return rows(context.loaded, context.engine.budgets(), context.clock.now())


def rows(loaded: Loaded, levels: Mapping[str, Level], now: datetime) -> list[Plain]:
    """One flat row for each credential that is configured, or that is still blocked."""
    spenders = _spenders(loaded)
    blocked = [name for name, level in levels.items() if level.blocked_until is not None]
    return [
        _row(loaded, name, *spenders.get(name, (set(), set())), levels.get(name, Level()), now)
        for name in sorted({*spenders, *blocked})
    ]


def _spenders(loaded: Loaded) -> dict[str, tuple[set[str], set[str]]]:
    """Integrations and feeds by the credential that they spend from."""
    from harken.config.feed_sources import credential_of

    found: dict[str, tuple[set[str], set[str]]] = {}
    for account in loaded.integrations.values():
        if account.model is not None or account.rate_limit is not None:
            found.setdefault(account.credential, (set(), set()))[0].add(account.name)
    for feed in loaded.feeds:
        if feed.way == "poll" and feed.kind != "cron":
            integrations, feeds = found.setdefault(credential_of(feed, loaded), (set(), set()))
            integrations.add(feed.integration or feed.kind)
            feeds.add(feed.display_name)
    return found


def _row(loaded: Loaded, name: str, integrations: set[str], feeds: set[str], level: Level, now: datetime) -> Plain:
    rates = [account.rate_limit for account in loaded.integrations.values() if account.credential == name]
    spending = [feed for feed in loaded.feeds if feed.display_name in feeds]
    every = [feed.schedule.seconds for feed in spending if isinstance(feed.schedule, Every)]
    return {
        "credential": name,
        "integrations": sorted(integrations),
        "feeds": sorted(feeds),
        "limit": _whole(level.limit),
        "remaining": _whole(None if level.remaining is None else max(0.0, level.remaining)),
        "resets_at": _moment(level.resets_at),
        "blocked_until": _moment(level.blocked_until),
        "reason": _reason(level, now),
        "waiting": sum(level.waiting.values()),
        "rate_limit": level.rate or next((rate for rate in rates if rate), None),
        "reads_per_hour": round(sum(3600 / seconds for seconds in every), 1),
    }


def _reason(level: Level, now: datetime) -> str:
    if level.blocked_until is None:
        return ""
    return f"{WHY.get(level.why, level.why)}; the next call is made {ago(from_unix(level.blocked_until), now)}"


def _moment(at: float | None) -> str | None:
    return None if at is None else str(plain(from_unix(at)))


def _whole(number: float | None) -> int | None:
    return None if number is None else int(number)
