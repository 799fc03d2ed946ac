"""From a feed to its source, to the credential whose quota it uses, and to its shard."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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

__all__ = ["credential_of", "query_model", "shards_of", "source_for", "with_shard", "with_shards"]

SHARDS = 16
"""Default where replicas share a store: up to as many replicas get shards to read."""


def source_for(feed: Feed, loaded: Loaded, plugins: Mapping[str, Plugin], host: Host) -> Source:
    """Return the source of a feed, with its account and query. Raise NotFound when its kind has none."""
    plugin = plugin_of(feed.kind, plugins)
    if plugin is None or (made := _maker(plugin, feed)) is None:
        raise NotFound(
            f"the feed {feed.display_name} has no source of kind {feed.kind}", fix="Install the service it needs"
        )
    build, model = made
    query = loaded.queries.get(feed.name) or _query(feed, model, loaded)
    account = loaded.integrations.get(feed.integration)
    private = host.allow_private or bool(account and account.allow_private) or _allows_private(query)
    bound = replace(host, allow_private=private, identity=feed.identity, feed=feed.name)
    return build(query, account.model if account else None, bound)


def _maker(plugin: Plugin, feed: Feed) -> tuple[Callable[[Any, Any, Host], Source], type[BaseModel] | None] | None:
    """What makes the source of a feed that is read in this way, and the model of its query."""
    if feed.way == "push":
        return (plugin.webhook, plugin.webhook_query) if plugin.webhook else None
    if feed.way == "stream":
        return (plugin.stream, plugin.stream_query) if plugin.stream else None
    return (plugin.source, plugin.query) if plugin.source else None


def query_model(plugin: Plugin, feed: Feed) -> type[BaseModel] | None:
    """The model of the query of a feed that is read in this way."""
    made = _maker(plugin, feed)
    return made[1] if made else None


def _query(feed: Feed, model: type[BaseModel] | None, loaded: Loaded) -> BaseModel | None:
    if model is None:
        return None
    try:
        return model.model_validate(loaded.reveal(dict(feed.query)))
    except ValidationError as error:
        location: Any = error.errors(include_url=False, include_input=False)[0]["loc"]
        where = ".".join(map(str, location)) or "its top"
        message = f"the query of feed {feed.display_name} does not fit {feed.kind} at {where}"
        raise Misconfigured(message, fix="Run: harken config check") from None


def _allows_private(query: BaseModel | None) -> bool:
    return bool(getattr(query, "allow_private_networks", False))


def credential_of(feed: Feed, loaded: Loaded) -> str:
    """Return whose quota the feed uses: its account's, or the host's when the account has no credential and no rate."""
    account = loaded.integrations.get(feed.integration)
    if account is not None and (account.model is not None or account.rate_limit is not None):
        return account.credential
    return f"{feed.kind}:{host_of(feed.query, account.base_url if account else '') or feed.name}"


def shards_of(loaded: Loaded) -> int:
    return loaded.settings.shards or (SHARDS if is_url(loaded.store) else 1)


def with_shards(loaded: Loaded) -> Loaded:
    """Return the configuration with each feed assigned to the shard of its credential."""
    shards = shards_of(loaded)
    return replace(loaded, feeds=tuple(with_shard(feed, loaded, shards) for feed in loaded.feeds))


def with_shard(feed: Feed, loaded: Loaded, shards: int) -> Feed:
    """Return the feed assigned to the shard of its credential."""
    if feed.way == "internal" or feed.way == "push":
        return feed
    shard = crc32(credential_of(feed, loaded).encode()) % shards
    return feed if feed.shard == shard else msgspec.structs.replace(feed, shard=shard)
