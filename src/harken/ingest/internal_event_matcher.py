"""Events that runs cause: matched here, committed with the journal or settlement that caused them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from harken.clock import Clock
from harken.event import Event
from harken.feed import INTERNAL
from harken.ingest.commit import RuleCache
from harken.match import Read, Rules, match, recognise
from harken.store import Commit

__all__ = ["has_listeners", "internal_matcher"]


def has_listeners(rule_cache: RuleCache) -> Callable[[str], bool]:
    """A function that tells whether any trigger listens to internal events of a type."""

    # it is asked for every run: the answers are kept as long as the rules are the same
    known: dict[str, bool] = {}
    known_by: Rules | None = None

    def listens(type: str) -> bool:
        nonlocal known_by
        rules = rule_cache.get(INTERNAL)
        if rules is not known_by:
            known.clear()
            known_by = rules
        answer = known.get(type)
        if answer is None:
            wanted = [rule.trigger.types for rule in rules.rules] if rules is not None else []
            answer = known[type] = any(not types or type in types for types in wanted)
        return answer

    return listens


def internal_matcher(rule_cache: RuleCache, clock: Clock) -> Callable[[Sequence[Event]], Commit | None]:
    """A function that makes the commit of events that a run caused; None without events or an internal feed."""

    def match_internal(events: Sequence[Event]) -> Commit | None:
        rules = rule_cache.get(INTERNAL)
        if rules is None or not events:
            return None
        entries = match(recognise(events, {}, rules.feed.identity), rules, Read(now=clock.now()))
        return Commit(feed=INTERNAL, revision=rules.revision, entries=entries)

    return match_internal
