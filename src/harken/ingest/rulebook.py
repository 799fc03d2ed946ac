"""The rules of every feed as this process knows them; the store says when they are out of date."""

from __future__ import annotations

from collections.abc import Mapping

from harken.match import Rules, compile_rules
from harken.store import Feeds

__all__ = ["Rulebook"]


class Rulebook:
    def __init__(self, store: Feeds) -> None:
        self._store = store
        self._rules: dict[str, Rules] = {}

    def get(self, feed: str) -> Rules | None:
        """The rules as last learnt, without asking."""
        return self._rules.get(feed)

    async def rules(self, feed: str) -> Rules:
        return self._rules.get(feed) or await self.learn(feed)

    async def learn(self, feed: str) -> Rules:
        """Read the rules from the store and compile them."""
        rules = self._rules[feed] = compile_rules(await self._store.listeners(feed))
        return rules

    def keep(self, revisions: Mapping[str, int]) -> None:
        """Forget the rules of every feed that is at another revision by now, or is gone."""
        self._rules = {name: rules for name, rules in self._rules.items() if revisions.get(name) == rules.revision}
