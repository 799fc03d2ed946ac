"""Services as the engine uses them: whatever they say, return or complain about, our own secrets are not in it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

import msgspec
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from harken.clock import Clock
from harken.errors import HarkenError
from harken.event import Event
from harken.http import Client, HttpSettings, Reply
from harken.http.redact import hush, scrub, scrub_bytes
from harken.source import Act, Batch, Call, Cursor, Destination, Message, PollSource

__all__ = ["HushedClient", "HushedDestination", "HushedSource", "hushed_act"]

Secrets = Callable[[], Collection[str]]


class HushedSource:
    """A polled source. Its cursor is its own: a server's link to the next page must work as it is."""

    def __init__(self, source: PollSource, secrets: Secrets) -> None:
        self._source = source
        self._secrets = secrets

    async def poll(self, cursor: Cursor, since: datetime) -> Batch:
        known = self._secrets()
        try:
            batch = await self._source.poll(cursor, since)
        except HarkenError as error:
            raise hush(error, known) from None
        if not known or not batch.events:
            return batch
        return msgspec.structs.replace(batch, events=[_hushed(event, known) for event in batch.events])


def _hushed(event: Event, known: Collection[str]) -> Event:
    payload = event.payload()
    clean = scrub_bytes(payload, known)
    return event if clean == payload else msgspec.structs.replace(event, data=msgspec.json.decode(clean), raw=b"")


def hushed_act(act: Act, secrets: Secrets) -> Act:
    async def run(call: Call) -> Any:
        try:
            return scrub(await act.run(call), secrets())
        except HarkenError as error:
            raise hush(error, secrets()) from None

    return replace(act, run=run)


class HushedDestination:
    def __init__(self, destination: Destination, secrets: Secrets) -> None:
        self._destination = destination
        self._secrets = secrets

    async def deliver(self, message: Message) -> Mapping[str, Any]:
        try:
            answer: Mapping[str, Any] = scrub(dict(await self._destination.deliver(message)), self._secrets())
        except HarkenError as error:
            raise hush(error, self._secrets()) from None
        return answer


class HushedClient(Client):
    """The client of http steps, whose answers are journaled."""

    def __init__(self, clock: Clock, settings: HttpSettings, secrets: Secrets) -> None:
        super().__init__(clock, settings=settings)
        self._secrets = secrets

    async def request(self, method: str, url: str | URL, **options: Any) -> Reply:
        reply = await super().request(method, url, **options)
        known = self._secrets()
        headers = CIMultiDict((name, scrub(value, known)) for name, value in reply.headers.items())
        reply.headers, reply.body = CIMultiDictProxy(headers), scrub_bytes(reply.body, known)
        return reply
