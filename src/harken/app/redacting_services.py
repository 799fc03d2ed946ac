"""Wraps services so that our own secrets are never in their events, answers or errors."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, overload

import msgspec
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from harken.clock import Clock
from harken.errors import HarkenError, addressed
from harken.event import Event
from harken.http import Client, Connectivity, HttpSettings, Reply, ServiceClock
from harken.http.known_secret_redaction import (
    contains_token,
    hide_tokens,
    redact_error,
    restore_tokens,
    scrub,
    scrub_bytes,
)
from harken.ingest.webhook import MAX_BYTES
from harken.source import (
    Act,
    Batch,
    Call,
    Closable,
    Cursor,
    Destination,
    Message,
    PollSource,
    PushSource,
    Request,
    RingingSource,
)
from harken.tickets import TicketSource

__all__ = [
    "RedactingBell",
    "RedactingClient",
    "RedactingDestination",
    "RedactingPush",
    "RedactingSource",
    "RedactingTickets",
    "redacting_act",
]

Secrets = Callable[[], Collection[str]]

_encode = msgspec.json.Encoder().encode

AT_ONCE = 1_000
"""More events than this are redacted in parts, when they are used."""


class RedactingSource:
    """A polled source. A server's link to the next page may contain our token, so a stored cursor has a placeholder in
    its place. If the token has changed since, the read starts without a cursor.
    """

    def __init__(
        self, source: PollSource, secrets: Secrets, kind: str, name: str, service_clock: ServiceClock | None = None
    ) -> None:
        self._source = source
        self.service_clock = service_clock or ServiceClock()
        self._secrets = secrets
        self._kind, self._name = kind, name

    async def poll(self, cursor: Cursor, since: datetime) -> Batch:
        known = self._secrets()
        try:
            cursor = restore_tokens(cursor, known)
        except LookupError:
            cursor = None
        try:
            batch = await self._source.poll(cursor, since)
        except HarkenError as error:
            raise redact_error(addressed(error, self._kind, self._name), known) from None
        if not known:
            return batch
        many = len(batch.events) > AT_ONCE
        events = RedactedEvents(batch.events, known) if many else _redact_events(batch.events, known)
        return msgspec.structs.replace(batch, events=events, cursor=hide_tokens(batch.cursor, known))

    async def aclose(self) -> None:
        if isinstance(self._source, Closable):
            await self._source.aclose()


class RedactingBell(RedactingSource):
    """A polled source that hears of changes."""

    def __init__(
        self,
        source: PollSource,
        bell: RingingSource,
        secrets: Secrets,
        kind: str,
        name: str,
        service_clock: ServiceClock | None = None,
    ) -> None:
        super().__init__(source, secrets, kind, name, service_clock)
        self._bell = bell

    @property
    def ring_floor_seconds(self) -> float:
        return self._bell.ring_floor_seconds

    async def rung(self) -> None:
        await self._bell.rung()


class RedactingTickets(RedactingSource):
    """A tracker, which is polled and may send webhooks too."""

    def __init__(
        self,
        source: TicketSource,
        secrets: Secrets,
        kind: str,
        name: str,
        service_clock: ServiceClock | None = None,
    ) -> None:
        super().__init__(source, secrets, kind, name, service_clock)
        self.tickets = source
        self._pushed = RedactingPush(source, secrets)
        self.max_bytes = self._pushed.max_bytes
        self.claims_tickets = self._pushed.claims_tickets

    async def receive(self, request: Request) -> list[Event]:
        return await self._pushed.receive(request)


class RedactedEvents(Sequence[Event]):
    """The events of a long page, which are redacted when a part of them is used."""

    def __init__(self, events: Sequence[Event], known: Collection[str]) -> None:
        self._events = events
        self._known = known

    def __len__(self) -> int:
        return len(self._events)

    @overload
    def __getitem__(self, at: int) -> Event: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[Event]: ...

    def __getitem__(self, at: int | slice) -> Event | Sequence[Event]:
        if isinstance(at, slice):
            return _redact_events(self._events[at], self._known)
        return _redact_events([self._events[at]], self._known)[0]


class RedactingPush:
    """A webhook. Some senders authenticate with a token in the body."""

    def __init__(self, source: PushSource, secrets: Secrets) -> None:
        self._source = source
        self._secrets = secrets
        self.max_bytes = int(getattr(source, "max_bytes", MAX_BYTES))
        self.empty_answer = bool(getattr(source, "empty_answer", False))
        self.claims_tickets = bool(getattr(source, "claims_tickets", False))
        self.max_per_minute = int(getattr(source, "max_per_minute", 0))

    async def receive(self, request: Request) -> list[Event]:
        known = self._secrets()
        events = await self._source.receive(request)
        return _redact_events(events, known) if known else events


def _redact_events(events: Sequence[Event], known: Collection[str]) -> list[Event]:
    """Few reads contain a secret: search all events at once, and redact each only if one is found."""
    names = "\0".join([f"{event.subject}\0{event.key}\0{event.state}\0{event.type}" for event in events])
    parts = [event.raw for event in events if event.raw]
    if len(parts) < len(events):
        parts.append(_encode([event.data for event in events if not event.raw]))
    parts.append(names.encode("utf-8", "surrogatepass"))
    if not contains_token(b"\0".join(parts), known):
        return list(events)
    return [_redact_event(event, known) for event in events]


def _redact_event(event: Event, known: Collection[str]) -> Event:
    payload = event.payload()
    clean = scrub_bytes(payload, known)
    names = [event.subject, event.key, event.state, event.type]
    if clean == payload and scrub(names, known) is names:
        return event
    subject, key, state, kind = scrub(names, known)
    data = msgspec.json.decode(clean)
    return msgspec.structs.replace(event, subject=subject, key=key, state=state, type=kind, data=data, raw=b"")


def redacting_act(act: Act, secrets: Secrets, kind: str, name: str) -> Act:
    async def run(call: Call) -> Any:
        try:
            return scrub(await act.run(call), secrets())
        except HarkenError as error:
            raise redact_error(addressed(error, kind, name), secrets()) from None

    return replace(act, run=run)


class RedactingDestination:
    def __init__(self, destination: Destination, secrets: Secrets, kind: str, name: str) -> None:
        self._destination = destination
        self._secrets = secrets
        self._kind, self._name = kind, name

    async def deliver(self, message: Message) -> Mapping[str, Any]:
        try:
            answer: Mapping[str, Any] = scrub(dict(await self._destination.deliver(message)), self._secrets())
        except HarkenError as error:
            raise redact_error(addressed(error, self._kind, self._name), self._secrets()) from None
        return answer


class RedactingClient(Client):
    """The client of http steps, whose replies are stored in the journal."""

    def __init__(
        self, clock: Clock, settings: HttpSettings, secrets: Secrets, connectivity: Connectivity | None = None
    ) -> None:
        super().__init__(clock, settings=settings, connectivity=connectivity)
        self._secrets = secrets

    async def request(self, method: str, url: str | URL, **options: Any) -> Reply:
        reply = await super().request(method, url, **options)
        known = self._secrets()
        headers = CIMultiDict((name, scrub(value, known)) for name, value in reply.headers.items())
        reply.headers, reply.body = CIMultiDictProxy(headers), scrub_bytes(reply.body, known)
        return reply
