"""Feeds: those under `feeds:`, and those that a poll trigger describes itself."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

import msgspec
from pydantic import BaseModel, Field

from harken.config.accounts import plugin_of
from harken.config.findings import Path, Report
from harken.config.loaded import Account, digest
from harken.config.model_validation import Strict, as_table, check
from harken.config.resolver import FeedSpec, Resolver
from harken.config.schedules import read_schedule, shortest_gap
from harken.config.secret_values_to_mask import revealed_query, secrets_in_query, storable_query
from harken.config.settings import Duration
from harken.config.yaml.nodes import Node, Table, locate, to_storable
from harken.durations import format_duration
from harken.event import Identity
from harken.feed import INTERNAL, Feed, First
from harken.schedule import Every, Schedule
from harken.source import Plugin

__all__ = [
    "FeedBlock",
    "NamedFeedBlock",
    "find_account",
    "host_of",
    "internal_feed",
    "is_loopback",
    "merge_specs",
    "read_feed",
    "read_inline_feed",
    "read_query",
    "with_shorter_interval",
]

DEFAULT_INTERVAL = 30.0
LOOPBACK_FLOOR = 1.0
_PATH = re.compile("[/?#]")
# these settings space the runs of one trigger: feeds that differ in nothing else are shared
_SPACING = frozenset({"max_per_tick", "dispatch_delay_ms"})


class FeedBlock(Strict):
    """What is read, and how often."""

    integration: str = Field(min_length=1)
    query: Any = None
    interval: Duration | None = None
    schedule: Any = None
    identity: Identity | None = None
    lookback: Duration | None = None
    first: First | None = None
    account: str | None = None


class NamedFeedBlock(FeedBlock):
    """A feed under `feeds:`."""

    page_timeout: Duration = 10.0
    tick_timeout: Duration = 120.0
    jitter: float = Field(default=0.1, ge=0, le=0.5)


def read_feed(name: str, node: Node, resolver: Resolver, report: Report, path: Path) -> FeedSpec | None:
    """Return a feed under `feeds:`; None when anything in it is wrong."""
    table = as_table(node, report, path)
    block = check(NamedFeedBlock, table, report, path) if table else None
    spec = read_inline_feed(table, resolver, report, path) if table else None
    if block is None or spec is None or report.failed:
        return None
    feed = msgspec.structs.replace(
        spec.feed,
        name=name,
        page_timeout=block.page_timeout,
        tick_timeout=block.tick_timeout,
        jitter=block.jitter,
    )
    return replace(spec, feed=feed)


def read_inline_feed(
    table: Table, resolver: Resolver, report: Report, path: Path, *, query_path: Path | None = None
) -> FeedSpec | None:
    """Return the feed that a table describes, named by a digest of what it reads. Every error in it is reported.

    `query_path`: where its query is written, if not under `query`.
    """
    block = check(FeedBlock, table.without(*(set(table.items) - set(FeedBlock.model_fields))), report, path)
    found = find_account(table, resolver, report, path)
    if found is None:
        return None
    account, plugin = found
    if plugin.source is None:
        fix = "Use a stream trigger" if plugin.stream else "Use another integration, or a webhook trigger"
        report.error(table.items["integration"].place, (*path, "integration"), f"{plugin.kind} cannot be polled", fix)
        return None
    node = table.items.get("query", Table(items={}, keys={}, place=table.place))
    query, readable = read_query(plugin.query, node, report, query_path or (*path, "query"), kind=plugin.kind)
    if block is None or not readable:
        return None
    revealed = revealed_query(query)
    resolver.secrets |= secrets_in_query(revealed)
    schedule = _read_schedule(block, table, plugin, is_loopback(host_of(revealed, account.base_url)), report, path)
    if schedule is None:
        return None
    feed = _build_feed(block, account, plugin, resolver.hide(revealed), schedule)
    feed = msgspec.structs.replace(feed, query=storable_query(query, resolver.hide))
    return FeedSpec(feed=feed, query=query, given=to_storable(node) or {})


def find_account(table: Table, resolver: Resolver, report: Report, path: Path) -> tuple[Account, Plugin] | None:
    """Return the account and the service that `integration:` names, with `account:` where a service has none."""
    integration = table.items.get("integration")
    name = getattr(integration, "value", None)
    if integration is None or not isinstance(name, str) or not name:
        return None
    service = plugin_of(name, resolver.plugins)
    if service is not None and "account" in table.items:
        return _other_account(service, table.items["account"], resolver, report, (*path, "account"))
    return resolver.account(name, integration.place, report, (*path, "integration"))


def _other_account(
    plugin: Plugin, node: Node, resolver: Resolver, report: Report, path: Path
) -> tuple[Account, Plugin] | None:
    """Return the account that `account:` names, for services that sign in with the account of another service."""
    name = getattr(node, "value", None)
    if not plugin.uses:
        report.error(node.place, path, f"{plugin.kind} has accounts of its own", "Name it under integration:")
        return None
    found = resolver.account(str(name), node.place, report, path)
    if found is None:
        return None
    if found[0].kind != plugin.uses:
        report.error(node.place, path, f"{name} is not an account of {plugin.uses}", "Name another")
        return None
    return found[0], plugin


def read_query(
    model: type[BaseModel] | None, node: Node, report: Report, path: Path, *, kind: str
) -> tuple[BaseModel | None, bool]:
    """Return the validated query, and whether it is valid. An empty query is allowed, with a warning."""
    table = as_table(node, report, path)
    if table is None:
        return None, False
    if model is None:
        for key in table.items:
            report.error(table.keys[key], (*path, key), f"{kind} has no query", "Remove it", "unknown_key")
        return None, not table.items
    if not table.items and not any(field.is_required() for field in model.model_fields.values()):
        message = f"an empty query asks {kind} for everything it shows"
        report.warn(table.place, path, message, "Name what you want, if that is too much", "empty_query")
    found = check(model, table, report, path)
    return found, found is not None


def _read_schedule(
    block: FeedBlock, table: Table, plugin: Plugin, loopback: bool, report: Report, path: Path
) -> Schedule | None:
    floor = LOOPBACK_FLOOR if loopback else plugin.floor_seconds
    key, schedule = "interval", None
    if block.schedule is not None:
        key = "schedule"
        if block.interval is not None:
            report.error(table.keys["interval"], (*path, "interval"), "stands beside schedule", "Keep one of them")
            return None
        parsed = read_schedule(table.items["schedule"], report, (*path, "schedule"))
        schedule = parsed.schedule if parsed else None
    else:
        schedule = Every(seconds=max(DEFAULT_INTERVAL, floor) if block.interval is None else block.interval)
    if schedule is not None and shortest_gap(schedule) < floor:
        at, fix = locate(table, (key,)), f"Read it every {format_duration(floor)} at most"
        report.error(at, (*path, key), f"{plugin.kind} may not be read that often", fix, "too_often")
        return None
    return schedule


def _build_feed(block: FeedBlock, account: Account, plugin: Plugin, query: dict[str, Any], schedule: Schedule) -> Feed:
    identity = block.identity or plugin.identity
    lookback = plugin.lookback_seconds if block.lookback is None else block.lookback
    first = block.first or plugin.first
    # feeds with different intervals are one feed, read at the shortest; a cron line makes a feed of its own
    own_schedule = [] if isinstance(schedule, Every) else [schedule]
    compared = {key: value for key, value in query.items() if key not in _SPACING}
    mark = digest([account.name, compared, identity, lookback, first, *own_schedule], 8)
    return Feed(
        name=f"{plugin.kind}-{mark}",
        kind=plugin.kind,
        integration=account.name,
        schedule=schedule,
        identity=identity,
        lookback=lookback,
        first=first,
        backoff=account.backoff,
    )


def merge_specs(known: FeedSpec | None, spec: FeedSpec) -> FeedSpec:
    """Return one feed for two triggers that read the same: it is read at the shorter interval."""
    if known is None:
        return spec
    return replace(known, feed=with_shorter_interval(known.feed, spec.feed))


def with_shorter_interval(feed: Feed, other: Feed) -> Feed:
    """Return the feed with the shorter of both intervals; unchanged when either has another kind of schedule."""
    if not isinstance(feed.schedule, Every) or not isinstance(other.schedule, Every):
        return feed
    seconds = min(feed.schedule.seconds, other.schedule.seconds)
    return msgspec.structs.replace(feed, schedule=Every(seconds=seconds))


def internal_feed(name: str = INTERNAL) -> Feed:
    """Return a feed without a source: for Harken's own events, or for what is sent to a trigger's API."""
    return Feed(
        name=name, kind=INTERNAL, integration=INTERNAL, way="internal", identity="change", lookback=0.0, first="deliver"
    )


def host_of(query: Mapping[str, Any], base_url: str = "") -> str:
    """Return the host that a query reads from (its first `…url`, else the base URL), or an empty text."""
    for name, value in query.items():
        if name.endswith("url") and isinstance(value, str) and value:
            base_url = value
            break
    before, mark, after = base_url.partition("://")
    # there may be 100,000 addresses, and they are of few hosts
    return _host_of(before + mark + _PATH.split(after, 1)[0])


@lru_cache(maxsize=4096)
def _host_of(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
