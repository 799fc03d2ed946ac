"""Wraps trackers so that our own secrets are never in the tickets and comments they show, nor in their errors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from harken.errors import HarkenError, addressed
from harken.http.known_secret_redaction import contains_token, redact_error, scrub_bytes
from harken.ticket import (
    Access,
    Actor,
    CodeHost,
    Comment,
    LabelChange,
    PullRequest,
    Ticket,
    TicketPage,
    TicketTracker,
    Webhook,
)

__all__ = ["RedactingCodeHost", "RedactingTracker", "redacting_tracker"]

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)

_encode = msgspec.json.Encoder().encode


def redacting_tracker(
    tracker: TicketTracker, secrets: Callable[[], Collection[str]], kind: str, name: str
) -> TicketTracker:
    """The tracker, redacted. `kind` and `name` say with which command its credential is set."""
    host = getattr(tracker, "ensure_pull_request", None)
    return (RedactingTracker if host is None else RedactingCodeHost)(tracker, secrets, kind, name)


class RedactingTracker:
    def __init__(self, tracker: TicketTracker, secrets: Callable[[], Collection[str]], kind: str, name: str) -> None:
        self._tracker = tracker
        self._secrets = secrets
        self._kind, self._name = kind, name

    async def list_labelled(self, labels: Sequence[str], *, closed: bool, page: str | None = None) -> TicketPage:
        return self._clean_page(await self._call(self._tracker.list_labelled(labels, closed=closed, page=page)))

    async def list_changed(self, since: datetime, *, page: str | None = None) -> TicketPage:
        return self._clean_page(await self._call(self._tracker.list_changed(since, page=page)))

    async def get(self, id: str) -> Ticket | None:
        found = await self._call(self._tracker.get(id))
        return None if found is None else self._clean(found)

    async def label_history(self, ticket: Ticket) -> Sequence[LabelChange] | None:
        return await self._call(self._tracker.label_history(ticket))

    async def access_of(self, actor: Actor) -> Access:
        return await self._call(self._tracker.access_of(actor))

    async def own_account(self) -> Actor:
        return await self._call(self._tracker.own_account())

    async def swap_labels(self, ticket: Ticket, add: Sequence[str], remove: Sequence[str]) -> Ticket:
        return self._clean(await self._call(self._tracker.swap_labels(ticket, add, remove)))

    async def missing_labels(self, labels: Sequence[str]) -> Sequence[str]:
        return await self._call(self._tracker.missing_labels(labels))

    async def ensure_labels(self, labels: Sequence[str]) -> Sequence[str]:
        return await self._call(self._tracker.ensure_labels(labels))

    async def webhooks(self) -> Sequence[Webhook] | None:
        found = await self._call(self._tracker.webhooks())
        return None if found is None else [self._clean(one) for one in found]

    async def revive_webhook(self, webhook: Webhook) -> bool:
        return await self._call(self._tracker.revive_webhook(webhook))

    async def comments(self, ticket: Ticket, since: datetime | None = None) -> Sequence[Comment]:
        return [self._clean(one) for one in await self._call(self._tracker.comments(ticket, since))]

    async def comment(self, ticket: Ticket, text: str) -> Comment:
        return self._clean(await self._call(self._tracker.comment(ticket, text)))

    async def edit_comment(self, ticket: Ticket, id: str, text: str) -> Comment | None:
        found = await self._call(self._tracker.edit_comment(ticket, id, text))
        return None if found is None else self._clean(found)

    async def transition(self, ticket: Ticket, status: str) -> Ticket:
        return self._clean(await self._call(self._tracker.transition(ticket, status)))

    async def _call(self, answer: Awaitable[T]) -> T:
        try:
            return await answer
        except HarkenError as error:
            raise redact_error(addressed(error, self._kind, self._name), self._secrets()) from None

    def _clean(self, found: S) -> S:
        known, encoded = self._secrets(), _encode(found)
        if not known or not contains_token(encoded, known):
            return found
        return msgspec.json.decode(scrub_bytes(encoded, known), type=type(found))

    def _clean_page(self, page: TicketPage) -> TicketPage:
        # the next page is asked for as it is: a stored cursor has a stand-in for a token that is in it
        return msgspec.structs.replace(page, tickets=[self._clean(ticket) for ticket in page.tickets])


class RedactingCodeHost(RedactingTracker):
    """Of a platform that has repositories too."""

    async def ensure_pull_request(self, wanted: PullRequest) -> str:
        host: Any = self._tracker
        code_host: CodeHost = host
        return await self._call(code_host.ensure_pull_request(wanted))
