"""How reliable the webhooks of a tracker are: how many changes of tickets they delivered, and how many polls found.

Any replica may receive a webhook, and one of them polls. So they count together, in one document for each tracker, to
which each replica adds now and then what it has counted itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec.structs import replace

from harken.clock import Clock, from_unix
from harken.event import Event
from harken.store.document_kinds import DELIVERIES
from harken.tickets.last_written_ticket_state import DocumentStore

__all__ = ["LEAST_SHARE", "Deliveries", "DeliveryCounter", "stored_deliveries"]

LEAST_SHARE = 0.99
"""Webhooks that deliver less than this part of the changes are not relied on."""

GRACE = timedelta(seconds=30)
"""A webhook may take so long; what a poll finds sooner says nothing about webhooks."""

SHARED_AFTER = timedelta(seconds=15)
"""After so long all replicas know of a webhook that one of them has received."""

MOST_REMEMBERED = 20_000
MOST_SHARED, SHARED_FOR = 200, timedelta(hours=1)
"""The replicas tell each other of so many tickets that webhooks were about, for so long."""


class Deliveries(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How many changes webhooks delivered, and how many were lost, since a time and in the hour before it."""

    since: datetime | None = None
    delivered: int = 0
    lost: int = 0
    delivered_before: int = 0
    lost_before: int = 0

    @property
    def total(self) -> tuple[int, int]:
        """What was delivered and what was lost in the last hours."""
        return self.delivered + self.delivered_before, self.lost + self.lost_before

    @property
    def share(self) -> float:
        """The part of the changes that webhooks delivered; 1 if there were none."""
        delivered, lost = self.total
        return delivered / (delivered + lost) if delivered + lost else 1.0

    def add(self, *, delivered: int = 0, lost: int = 0, now: datetime) -> Deliveries:
        if self.since is None or not timedelta(0) <= now - self.since < timedelta(hours=1):
            return Deliveries(
                since=now,
                delivered=delivered,
                lost=lost,
                delivered_before=self.delivered,
                lost_before=self.lost,
            )
        return replace(self, delivered=self.delivered + delivered, lost=self.lost + lost)


class _Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the replicas share. `webhooks` has the unix time of the last webhook about a ticket, oldest first."""

    deliveries: Deliveries = Deliveries()
    webhooks: dict[str, float] = {}

    def with_webhooks(self, webhooks: Mapping[str, float], now: float) -> dict[str, float]:
        newest = {id: max(at, self.webhooks.get(id, at)) for id, at in webhooks.items()}
        recent = now - SHARED_FOR.total_seconds()
        merged = sorted((self.webhooks | newest).items(), key=lambda one: one[1])
        return dict([(id, at) for id, at in merged if at > recent][-MOST_SHARED:])


class DeliveryCounter:
    """Counts the changes that start or end a run, each once; none from before our start.

    Without a `store` it counts for itself alone. `load` and `save` exchange what was counted with other replicas."""

    def __init__(self, clock: Clock, store: DocumentStore | None = None, tracker: str = "") -> None:
        self._clock = clock
        self._store = store
        self._tracker = tracker
        self._started = clock.now()
        self._record = _Record()
        # what was counted here and is not in the record yet
        self._delivered = 0
        self._lost = 0
        self._unsaved: dict[str, float] = {}
        # when a webhook that came here was last about a ticket
        self._webhooks: dict[str, float] = {}
        # what this cycle has found, as several lists show the same
        self._found: set[tuple[str, str | None]] = set()
        # changes for which a webhook may still come
        self._awaited: dict[tuple[str, str | None], datetime] = {}

    @property
    def counted(self) -> Deliveries:
        """What all replicas have counted, as far as it is known here."""
        if not self._delivered and not self._lost:
            return self._record.deliveries
        return self._record.deliveries.add(delivered=self._delivered, lost=self._lost, now=self._clock.now())

    @property
    def lossy(self) -> bool:
        return self.counted.share < LEAST_SHARE

    async def load(self) -> None:
        """Learn what other replicas have counted, and of which tickets webhooks told them."""
        if self._store is not None and (document := await self._store.get(DELIVERIES, self._tracker)) is not None:
            self._record = msgspec.convert(document.value, _Record)

    async def save(self) -> None:
        """Add what was counted here to what is stored, if there is something; nobody else's counts are lost."""
        if self._store is None or not (self._delivered or self._lost or self._unsaved):
            return
        while True:
            document = await self._store.get(DELIVERIES, self._tracker)
            before = _Record() if document is None else msgspec.convert(document.value, _Record)
            delivered, lost, webhooks = self._delivered, self._lost, dict(self._unsaved)
            after = self._add_to(before)
            expect = 0 if document is None else document.revision
            if await self._store.put(DELIVERIES, self._tracker, msgspec.to_builtins(after), expect=expect):
                break
        self._record = after
        self._delivered -= delivered
        self._lost -= lost
        self._unsaved = {id: at for id, at in self._unsaved.items() if webhooks.get(id) != at}

    def _add_to(self, record: _Record) -> _Record:
        deliveries = record.deliveries
        if self._delivered or self._lost:
            deliveries = deliveries.add(delivered=self._delivered, lost=self._lost, now=self._clock.now())
        return _Record(deliveries=deliveries, webhooks=record.with_webhooks(self._unsaved, self._clock.time()))

    def begin_cycle(self) -> None:
        """A cycle of polls begins, so what the last one found is stored. Count changes whose webhook is overdue."""
        self._found.clear()
        overdue = [change for change, at in self._awaited.items() if self._is_overdue(at)]
        for change in overdue:
            self._judge(change[0], self._awaited.pop(change))

    def note_webhook(self, ticket: str) -> None:
        """A webhook about this ticket has come."""
        for known in (self._webhooks, self._unsaved):
            known.pop(ticket, None)
            known[ticket] = self._clock.time()
            _shorten(known)

    def count_webhook(self, event: Event, before: str | None) -> None:
        """A webhook delivered this; `before` is the state that the feed had."""
        if _matters(event, before):
            self._delivered += 1

    def count_poll(self, event: Event, before: str | None) -> None:
        """A poll found this: it is lost unless a webhook about the ticket came, or comes in time."""
        at, change = event.occurred_at, (event.subject, event.state)
        if at is None or at < self._started or change in self._found or not _matters(event, before):
            return
        self._found.add(change)
        if self._is_overdue(at):
            self._judge(event.subject, at)
        else:
            self._awaited.setdefault(change, at)
            _shorten(self._awaited)

    def _is_overdue(self, at: datetime) -> bool:
        """Whether every replica would know by now if a webhook had told what happened then."""
        return at <= self._clock.now() - GRACE - SHARED_AFTER

    def _judge(self, ticket: str, at: datetime) -> None:
        last = max(self._webhooks.get(ticket, 0.0), self._record.webhooks.get(ticket, 0.0))
        if last and from_unix(last) >= at - GRACE:
            self._delivered += 1
        else:
            self._lost += 1


async def stored_deliveries(store: DocumentStore) -> Mapping[str, Deliveries]:
    """What all replicas have counted, by tracker."""
    found = await store.documents(DELIVERIES)
    return {document.name: msgspec.convert(document.value, _Record).deliveries for document in found}


def _shorten(known: dict[Any, Any]) -> None:
    if len(known) > MOST_REMEMBERED:
        del known[next(iter(known))]


def _matters(event: Event, before: str | None) -> bool:
    kind, earlier = (event.state or "").partition(":")[0], (before or "").partition(":")[0]
    ends = kind == "closed" and earlier in ("ready", "claimed")
    return event.state != before and (ends or kind in ("ready", "withdrawn"))
