"""What people call a feed that a workflow describes: its stored name is a digest, which nobody can read."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from harken.config.loaded import Loaded

__all__ = ["with_labels"]


def with_labels(loaded: Loaded) -> Loaded:
    """Return the configuration with a label for each feed that workflows describe.

    It is the workflow's name, or of several that share the feed the first by name. Where another feed has that name
    the digest is shown, as a name must not mean two feeds.
    """
    labels: dict[str, str] = {}
    for trigger in loaded.triggers:
        labels[trigger.feed] = min(trigger.name, labels.get(trigger.feed, trigger.name))
    taken = {feed.name for feed in loaded.feeds}
    free = {feed: label for feed, label in labels.items() if label not in taken}
    feeds = (
        msgspec.structs.replace(feed, label=free.get(feed.name, feed.name)) if feed.label else feed
        for feed in loaded.feeds
    )
    return replace(loaded, feeds=tuple(feeds))
