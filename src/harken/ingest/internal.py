"""Events that runs cause: matched here, committed with the journal or settlement that caused them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from harken.clock import Clock
from harken.event import Event
from harken.feed import INTERNAL
from harken.ingest.rulebook import Rulebook
from harken.match import Read, Rules, match, recognise
from harken.store import Commit

__all__ = ["internal_matching"]


OUTCOMES = "run."
"""How runs end stands in the runs already: it becomes an event only where somebody listens."""


def _listened_to(event: Event, rules: Rules) -> bool:
    return any(not rule.trigger.types or event.type in rule.trigger.types for rule in rules.rules)


def internal_matching(rulebook: Rulebook, clock: Clock) -> Callable[[Sequence[Event]], Commit | None]:
    """A function from caused events to their commit; None while there is no internal feed."""

    def matched(events: Sequence[Event]) -> Commit | None:
        rules = rulebook.get(INTERNAL)
        if rules is None:
            return None
        wanted = [event for event in events if not event.type.startswith(OUTCOMES) or _listened_to(event, rules)]
        if not wanted:
            return None
        entries = match(recognise(wanted, {}, rules.feed.identity), rules, Read(now=clock.now()))
        return Commit(feed=INTERNAL, revision=rules.revision, entries=entries)

    return matched
