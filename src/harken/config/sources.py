"""From a feed's definition to the value that reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from zlib import crc32

import msgspec
from pydantic import BaseModel, ValidationError

from harken.config.accounts import plugin_of
from harken.config.feeds import host_of
from harken.config.loaded import Loaded
from harken.config.settings import is_url
from harken.errors import Misconfigured, NotFound
from harken.feed import Feed
from harken.source import Host, Plugin, Source

__all__ = ["credential_of", "sharded", "shards_of", "source_for"]


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


def source_for(feed: Feed, loaded: Loaded, plugins: Mapping[str, Plugin], host: Host) -> Source:
    """Return the source of a feed, with its account and query. NotFound for feeds that nothing is read for."""
    plugin = plugin_of(feed.kind, plugins)
    build = (plugin.webhook if feed.way == "push" else plugin.source) if plugin else None
    if plugin is None or build is None:
        raise NotFound(f"the feed {feed.name} has no source of kind {feed.kind}", fix="Install the service it needs")
    model = plugin.webhook_query if feed.way == "push" else plugin.query
    query = loaded.queries.get(feed.name) or _query(feed, model, loaded)
    account = loaded.integrations.get(feed.integration)
    private = host.allow_private or bool(account and account.allow_private) or _allows_private(query)
    lent = replace(host, allow_private=private, identity=feed.identity, feed=feed.name)
    return build(query, account.model if account else None, lent)


def credential_of(feed: Feed, loaded: Loaded) -> str:
    """Whose quota the feed spends: that of its account; without a credential or rate, that of the host it reads."""
    account = loaded.integrations.get(feed.integration)
    if account is not None and (account.model is not None or account.rate_limit is not None):
        return account.credential
    return f"{feed.kind}:{host_of(feed.query, account.base_url if account else '') or feed.name}"


def _query(feed: Feed, model: type[BaseModel] | None, loaded: Loaded) -> BaseModel | None:
    if model is None:
        return None
    try:
        return model.model_validate(loaded.reveal(dict(feed.query)))
    except ValidationError as error:
        where: Any = error.errors(include_url=False, include_input=False)[0]["loc"]
        message = f"the query of feed {feed.name} does not fit {feed.kind} at {'.'.join(map(str, where)) or 'its top'}"
        raise Misconfigured(message, fix="Run: harken config check") from None


def _allows_private(query: BaseModel | None) -> bool:
    return bool(getattr(query, "allow_private_networks", False))
