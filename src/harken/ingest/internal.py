"""Events that runs cause: matched here, committed with the journal or settlement that caused them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from harken.clock import Clock
from harken.event import Event
from harken.feed import INTERNAL
from harken.ingest.rulebook import Rulebook
from harken.match import Read, match, recognise
from harken.store import Commit

__all__ = ["internal_matching"]


def internal_matching(rulebook: Rulebook, clock: Clock) -> Callable[[Sequence[Event]], Commit | None]:
    """A function from caused events to their commit; None while there is no internal feed."""

    def matched(events: Sequence[Event]) -> Commit | None:
        rules = rulebook.get(INTERNAL)
        if rules is None or not events:
            return None
        entries = match(recognise(events, {}, "once"), rules, Read(now=clock.now()))
        return Commit(feed=INTERNAL, revision=rules.revision, entries=entries)

    return matched
