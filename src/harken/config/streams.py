"""Feeds that are followed and not polled: those that a stream trigger describes, and those under `feeds:`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
from pydantic import Field

from harken.config.feeds import find_account, read_query
from harken.config.findings import Path, Report
from harken.config.loaded import digest
from harken.config.model_validation import Strict, check
from harken.config.resolver import FeedSpec, Resolver
from harken.config.secret_values_to_mask import revealed_query, secrets_in_query, storable_query
from harken.config.yaml.nodes import Table, to_storable
from harken.feed import Feed

__all__ = ["is_stream", "read_named_stream", "read_stream"]

MEMORY_SECONDS = 80 * 3_600.0
"""Longer than brokers and senders deliver a message again."""


class StreamBlock(Strict):
    """What is followed."""

    integration: str = Field(min_length=1)
    query: Any = None
    account: str | None = None


def is_stream(table: Table, resolver: Resolver) -> bool:
    """Whether the integration of this feed can only be followed."""
    # what is wrong with the integration is reported when the feed is read
    found = find_account(table, resolver, Report(), ())
    return found is not None and found[1].source is None and found[1].stream is not None


def read_named_stream(name: str, table: Table, resolver: Resolver, report: Report, path: Path) -> FeedSpec | None:
    """Return a feed under `feeds:`."""
    spec = read_stream(table, resolver, report, path)
    return replace(spec, feed=msgspec.structs.replace(spec.feed, name=name)) if spec else None


def read_stream(table: Table, resolver: Resolver, report: Report, path: Path) -> FeedSpec | None:
    """Return the feed that a table describes, named by a digest of what it follows. Every error in it is reported."""
    block = check(StreamBlock, table, report, path)
    found = find_account(table, resolver, report, path)
    if block is None or found is None:
        return None
    account, plugin = found
    if plugin.stream is None:
        fix = "Use a poll trigger" if plugin.source else "Use another integration, or a webhook trigger"
        place = table.items["integration"].place
        report.error(place, (*path, "integration"), f"{plugin.kind} cannot be followed as a stream", fix)
        return None
    node = table.items.get("query", Table(items={}, keys={}, place=table.place))
    query, readable = read_query(plugin.stream_query, node, report, (*path, "query"), kind=plugin.kind)
    if not readable:
        return None
    revealed = revealed_query(query)
    resolver.secrets |= secrets_in_query(revealed)
    feed = Feed(
        name=f"{plugin.kind}-{digest([account.name, resolver.hide(revealed), 'stream'], 8)}",
        kind=plugin.kind,
        integration=account.name,
        way="stream",
        query=storable_query(query, resolver.hide),
        identity=plugin.identity,
        lookback=0.0,
        first="all",
        memory_seconds=MEMORY_SECONDS,
        backoff=account.backoff,
    )
    return FeedSpec(feed=feed, query=query, given=to_storable(node) or {})
