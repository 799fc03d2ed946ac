"""How much of what happens to tickets their webhooks tell. What only a poll finds, a webhook has not announced."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec
from msgspec.structs import replace

from harken.clock import Clock
from harken.event import Event

__all__ = ["LEAST_SHARE", "Deliveries", "DeliveryCounter"]

LEAST_SHARE = 0.99
"""Webhooks that tell less than this part of the changes are not relied on."""

GRACE = timedelta(seconds=30)
"""A webhook may take so long; what a poll finds sooner says nothing about webhooks."""

MOST_REMEMBERED = 20_000


class Deliveries(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How many changes webhooks told, and how many only a poll found, since a time and in the hour before it."""

    since: datetime | None = None
    heard: int = 0
    missed: int = 0
    heard_before: int = 0
    missed_before: int = 0

    @property
    def share(self) -> float:
        """The part of the changes that webhooks told; 1 if there were none."""
        heard, missed = self.heard + self.heard_before, self.missed + self.missed_before
        return heard / (heard + missed) if heard + missed else 1.0

    def add(self, *, heard: int = 0, missed: int = 0, now: datetime) -> Deliveries:
        if self.since is None or not timedelta(0) <= now - self.since < timedelta(hours=1):
            return Deliveries(since=now, heard=heard, missed=missed, heard_before=self.heard, missed_before=self.missed)
        return replace(self, heard=self.heard + heard, missed=self.missed + missed)


class DeliveryCounter:
    """Counts the changes that start or end a run, each once in a cycle of polls; none from before our start."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._started = clock.now()
        self.counted = Deliveries()
        # when a webhook last spoke of a ticket
        self._announced: dict[str, datetime] = {}
        # what this cycle has found, as several lists show the same
        self._found: set[tuple[str, str | None]] = set()

    @property
    def lossy(self) -> bool:
        return self.counted.share < LEAST_SHARE

    def continue_from(self, stored: Deliveries) -> None:
        """Take over what was counted by another process that polled before this one."""
        ours, theirs = self.counted.since, stored.since
        if theirs is not None and (ours is None or theirs > ours):
            self.counted = stored

    def begin_cycle(self) -> None:
        self._found.clear()

    def announce(self, ticket: str) -> None:
        """A webhook has spoken of this ticket."""
        self._announced.pop(ticket, None)
        self._announced[ticket] = self._clock.now()
        if len(self._announced) > MOST_REMEMBERED:
            del self._announced[next(iter(self._announced))]

    def told(self, event: Event, before: str | None) -> None:
        """A webhook has told this; `before` is the state that the feed had."""
        if _matters(event, before):
            self.counted = self.counted.add(heard=1, now=self._clock.now())

    def found(self, event: Event, before: str | None) -> None:
        """A poll has found this."""
        now, at, change = self._clock.now(), event.occurred_at, (event.subject, event.state)
        if at is None or change in self._found or not _matters(event, before):
            return
        if self._started <= at <= now - GRACE:
            self._found.add(change)
            announced = self._announced.get(event.subject)
            heard = announced is not None and announced >= at - GRACE
            self.counted = self.counted.add(heard=int(heard), missed=int(not heard), now=now)


def _matters(event: Event, before: str | None) -> bool:
    kind, earlier = (event.state or "").partition(":")[0], (before or "").partition(":")[0]
    ends = kind == "closed" and earlier in ("ready", "claimed")
    return event.state != before and (ends or kind in ("ready", "withdrawn"))
