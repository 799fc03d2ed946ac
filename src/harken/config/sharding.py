"""Which slice of the feeds a feed belongs to: all that spend from one quota are read by one replica."""

from __future__ import annotations

from dataclasses import replace
from zlib import crc32

import msgspec

from harken.config.loaded import Loaded
from harken.config.settings import is_url
from harken.config.sources import credential_of
from harken.feed import Feed

__all__ = ["sharded", "shards_of"]

SHARDS = 16
"""Where replicas share a store: enough for as many of them, each with its part."""


def shards_of(loaded: Loaded) -> int:
    return loaded.settings.shards or (SHARDS if is_url(loaded.store) else 1)


def sharded(loaded: Loaded) -> Loaded:
    """Return the configuration with each feed in its shard."""
    shards = shards_of(loaded)
    return replace(loaded, feeds=tuple(_placed(feed, loaded, shards) for feed in loaded.feeds))


def _placed(feed: Feed, loaded: Loaded, shards: int) -> Feed:
    if feed.way == "internal" or feed.way == "push":
        return feed
    shard = crc32(credential_of(feed, loaded).encode()) % shards
    return feed if feed.shard == shard else msgspec.structs.replace(feed, shard=shard)
