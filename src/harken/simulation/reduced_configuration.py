"""A loaded configuration as a simulation uses it: the feeds that matter, and its workflows, compiled once."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec

from harken.config.loaded import Loaded
from harken.errors import HarkenError
from harken.feed import Feed, Trigger
from harken.run.compiled_workflows import WorkflowCache
from harken.simulation.step_stand_ins import Effects, stand_in_kinds
from harken.store import Definitions

__all__ = ["ITSELF", "Configuration", "SharedPlans", "in_use"]

ITSELF = "cron"
"""The kind of source that needs nothing outside but the clock: no stand-in is better."""


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """A loaded configuration, reduced to the feeds and triggers that a case uses, with its workflows compiled."""

    loaded: Loaded
    feeds: tuple[Feed, ...]
    triggers: tuple[Trigger, ...]

    def definitions(self, *, starting: bool) -> Definitions:
        whole = self.loaded.definitions(starting=starting)
        named = {trigger.name for trigger in self.triggers}
        pause = {name: reason for name, reason in whole.pause.items() if name in named}
        return msgspec.structs.replace(whole, feeds=self.feeds, triggers=self.triggers, pause=pause)

    def feed(self, name: str) -> Feed:
        return next(feed for feed in self.feeds if feed.name == name)


def in_use(loaded: Loaded, feeds: Sequence[str] | None = None) -> Configuration:
    """The configuration with only these feeds and what listens to Harken's own events; with all feeds if None.

    A case is about one shard: what replicas share is not simulated.
    """
    wanted = set(feeds or ())
    for trigger in loaded.triggers:
        # one that joins events of several feeds needs all of them
        wanted |= set(trigger.feeds) if wanted & set(trigger.feeds) else set()
    kept = [feed for feed in loaded.feeds if feeds is None or feed.name in wanted or feed.way == "internal"]
    names = {feed.name for feed in kept}
    return Configuration(
        loaded=loaded,
        feeds=tuple(feed if not feed.shard else msgspec.structs.replace(feed, shard=0) for feed in kept),
        triggers=tuple(trigger for trigger in loaded.triggers if trigger.feed in names),
    )


class _NoDefinitions:
    """All workflows are compiled before the start, so none is looked for in the store."""

    async def get(self, kind: str, name: str) -> None:
        return None


class SharedPlans:
    """The compiled workflows of a configuration. Their stand-ins call the `effects` of whoever runs them now."""

    def __init__(self, loaded: Loaded) -> None:
        self.effects: Effects | None = None
        nothing: Any = _NoDefinitions()
        self.cache = WorkflowCache(nothing, size=len(loaded.workflows) + 1, kinds=stand_in_kinds(self._current))
        for workflow in loaded.workflows.values():
            with suppress(HarkenError):
                # the run says what is wrong with it
                self.cache.put(msgspec.structs.replace(workflow, definition=loaded.reveal(workflow.definition)))

    def _current(self) -> Effects:
        assert self.effects is not None
        return self.effects
