"""The rules of every feed as this process knows them; the store says when they are out of date."""

from __future__ import annotations

from harken.feed import Trigger, TriggerState
from harken.match import Rules, compile_rules
from harken.store import Definitions, Feeds, Listeners, Opened

__all__ = ["Rulebook"]


class Rulebook:
    def __init__(self, store: Feeds) -> None:
        self._store = store
        self._rules: dict[str, Rules] = {}
        self._told: dict[str, Listeners] = {}

    def get(self, feed: str) -> Rules | None:
        """The rules as last learnt, without asking."""
        return self._rules.get(feed)

    async def rules(self, feed: str) -> Rules:
        rules = self._rules.get(feed)
        if rules is None and feed in self._told:
            rules = self._rules[feed] = compile_rules(self._told.pop(feed))
        return rules or await self.learn(feed)

    async def learn(self, feed: str) -> Rules:
        """Read the rules from the store and compile them."""
        listeners = await self._store.listeners(feed)
        told = self._told.pop(feed, None)
        if told is not None and told.revision > listeners.revision:
            listeners = told
        rules = self._rules[feed] = compile_rules(listeners)
        return rules

    def adopt(self, definitions: Definitions, opened: Opened) -> None:
        """Keep what is still true; what the store has just been told of the others need not be asked of it again."""
        self._rules = {
            name: rules
            for name, rules in self._rules.items()
            if name in opened.feeds and rules.revision >= opened.feeds[name].revision
        }
        heard: dict[str, list[tuple[Trigger, TriggerState]]] = {}
        for trigger in sorted(definitions.triggers, key=lambda trigger: trigger.name):
            heard.setdefault(trigger.feed, []).append((trigger, opened.triggers[trigger.name]))
        self._told = {
            feed.name: Listeners(
                revision=opened.feeds[feed.name].revision, feed=feed, triggers=heard.get(feed.name, ())
            )
            for feed in definitions.feeds
            if feed.name not in self._rules
        }
