"""POST /webhooks/<provider>/<id>: verified, committed, and only then answered.

A plain ASGI callable in front of everything else: this is the hot path.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping, Sequence, Set
from typing import Any, NamedTuple

import msgspec
import structlog

from harken.clock import Clock
from harken.errors import HarkenError, Malformed, NotFound, Refused, RetryLater, Unauthorized
from harken.event import Event, Outcome
from harken.ingest.commit import Committer
from harken.ingest.refused_webhooks import UNKNOWN, Reason, Refusals
from harken.ingest.webhook_rate import WebhookRate
from harken.ingest.webhook_run_results import RUNS, RunAnswers
from harken.match import Read
from harken.source import Handshake, PushSource, Request
from harken.store import Committed
from harken.tracing import SpanContext

__all__ = ["CLOSED", "MAX_BYTES", "PREFIX", "Endpoint", "Webhooks"]

log = structlog.get_logger("harken.ingest")

PREFIX = "/webhooks/"
MAX_BYTES = 1_000_000
CLOSED = "harken.closed"
"""Where the listener notes in the scope why it ended a request before its body was complete."""

# what most requests are answered, encoded once
ACCEPTED_ONE = b'{"accepted":1,"duplicate":0}'
ACCEPTED_NOTHING = b'{"accepted":0,"duplicate":0}'
MESSAGES = {
    413: "the body is too large",
    429: "more requests than this webhook takes; send it again later",
    500: "it failed here; send it again",
}
REFUSED_AS: Mapping[int, Reason] = {
    400: "malformed",
    401: "signature",
    408: "timeout",
    413: "too_large",
    500: "failed",
}
CLAIMED: Set[Outcome] = frozenset({"fired", "held", "gathered"})
AT_WORK = frozenset({"ticket.ready", "ticket.claimed"})
JSON = (b"content-type", b"application/json")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class _Answer(NamedTuple):
    """What is sent; and what became of the request, as the status that tells it where another one is sent."""

    status: int
    body: bytes
    headers: Sequence[tuple[bytes, bytes]] = ()
    became: int = 0


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    feed: str
    source: PushSource
    max_bytes: int = MAX_BYTES
    empty_answer: bool = False
    claims_tickets: bool = False
    max_per_minute: int = 0
    respond_seconds: float = 0.0


class _TooLarge(Exception):
    pass


class _CutOff(Malformed):
    """The listener did not wait for the rest of the body, and has answered."""


class _TooMany(Exception):
    """A sender that has proven itself sends more than it may."""

    def __init__(self, after: int) -> None:
        super().__init__("too many requests")
        self.after = after


class Webhooks:
    """Answers 202 when the events are committed, 200 when all of them were repeats, 503 while they cannot be stored.

    An endpoint with `respond_seconds` answers with what the runs came to, if they end within that time. One of a
    tracker answers 202 only where a ticket was claimed.
    """

    def __init__(self, committer: Committer, clock: Clock, run_answers: RunAnswers | None = None) -> None:
        self._committer = committer
        self._run_answers = run_answers
        self._clock = clock
        self._endpoints: dict[str, Endpoint] = {}
        self._further: Collection[str] = ()
        self._find: Callable[[str], Endpoint | None] = lambda path: None
        self._rates: dict[str, WebhookRate] = {}
        self._kept_rates: dict[str, WebhookRate] = {}
        self.received = 0
        self.refused = 0
        self.refusals = Refusals(clock)
        self.observe: Callable[[str, int], None] = lambda feed, status: None

    def serve(
        self,
        endpoints: Mapping[str, Endpoint],
        *,
        further: Collection[str] = (),
        find: Callable[[str], Endpoint | None] = lambda path: None,
    ) -> None:
        """Replace the table of paths (`<provider>/<id>`). Endpoints of `further` paths are found when one is called."""
        self._endpoints = dict(endpoints)
        self._further, self._find = further, find
        # a reload that leaves the limit as it is does not fill the bucket
        kept, self._rates = self._rates, {}
        for endpoint in endpoints.values():
            self._limit(endpoint, kept)
        self._kept_rates = kept if further else {}
        self.refusals.keep({*endpoints, *further})

    def change(self, path: str, endpoint: Endpoint | None) -> None:
        """Serve this endpoint at one path; None: the path is one of the further ones now, or there is none."""
        before = self._endpoints.pop(path, None)
        rate = self._rates.pop(before.feed, None) if before is not None else None
        if rate is not None and before is not None:
            self._kept_rates[before.feed] = rate
        if endpoint is not None:
            self._endpoints[path] = endpoint
            self._limit(endpoint, self._kept_rates)
        elif path not in self._further:
            self.refusals.forget(path)

    def _endpoint_at(self, path: str) -> Endpoint | None:
        found = self._endpoints.get(path)
        if found is None and path in self._further and (found := self._find(path)) is not None:
            self._endpoints[path] = found
            self._limit(found, self._kept_rates)
        return found

    def _limit(self, endpoint: Endpoint, kept: Mapping[str, WebhookRate]) -> None:
        if endpoint.max_per_minute:
            known = kept.get(endpoint.feed)
            same = known is not None and known.per_minute == endpoint.max_per_minute
            now = self._clock.monotonic()
            self._rates[endpoint.feed] = known if known and same else WebhookRate(endpoint.max_per_minute, now)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"][len(PREFIX) :]
        endpoint = self._endpoint_at(path)
        if endpoint is None:
            self.refusals.note(UNKNOWN, _sender(scope), "not_found", "there is no webhook at this path")
            await _answer(send, 404, {"error": "there is no webhook at this path"})
            return
        if scope["method"] != "POST":
            self.refusals.note(path, _sender(scope), "method", f"a {scope['method'][:20]} instead of a POST")
            await _answer(send, 405, {"error": "send a POST"}, (b"allow", b"POST"))
            return
        try:
            accept = self._accept_traced if self._committer.tracer.on else self._accept
            answer = await accept(endpoint, scope, receive)
            status = answer.became or answer.status
        except Handshake as handshake:
            status = 202
            await _answer(send, 200, handshake.answer)
        except _TooMany as error:
            status, message = 429, MESSAGES[429]
            self.refused += 1
            self.refusals.note(path, _sender(scope), "too_many", message)
            await _answer(send, status, {"error": message}, (b"retry-after", str(error.after).encode()))
        except RetryLater as error:
            self.refusals.note(path, _sender(scope), "unavailable", error.message)
            retry_after = str(max(1, round(error.after or 1))).encode()
            await _answer(send, 503, {"error": error.message}, (b"retry-after", retry_after))
            status = 503
        except Exception as error:
            status = _status_of(error)
            self.refused += 1
            if status == 500:
                log.error("webhook.failed", feed=endpoint.feed, exc_info=error)
            message = error.message if isinstance(error, HarkenError) else MESSAGES[status]
            self.refusals.note(path, _sender(scope), REFUSED_AS[status], message)
            await _answer(send, status, {"error": message})
        else:
            if endpoint.empty_answer and not answer.headers:
                await _send(send, 200, b"")
            else:
                await _send(send, answer.status, answer.body, *answer.headers)
        self.observe(endpoint.feed, status)

    async def _accept_traced(self, endpoint: Endpoint, scope: Scope, receive: Receive) -> _Answer:
        header = next((value for name, value in scope["headers"] if name == b"traceparent"), b"")
        sender = SpanContext.parse(header.decode("latin-1"))
        with self._committer.tracer.span(
            f"POST {scope['path']}", kind="server", parent=sender, root=True, feed=endpoint.feed
        ) as span:
            try:
                answer = await self._accept(endpoint, scope, receive)
            except (Refused, Handshake, _TooLarge, _TooMany):
                # a stranger must not write into anybody's trace
                span.dropped = True
                raise
            span.note(http__response__status_code=answer.status)
            return answer

    async def _accept(self, endpoint: Endpoint, scope: Scope, receive: Receive) -> _Answer:
        # before the body, as what follows it (trailers) is not a part of the head
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        if int(headers.get("content-length", 0)) > endpoint.max_bytes:
            raise _TooLarge
        body = await _body(scope, receive, endpoint.max_bytes)
        now = self._clock.now()
        request = Request(
            headers=headers,
            body=body,
            path=scope["path"],
            query=scope["query_string"],
            received_at=now,
        )
        events = await endpoint.source.receive(request)
        if endpoint.max_per_minute:
            self._count(endpoint.feed)
        self.received += len(events)
        if not events:
            return _Answer(200 if endpoint.claims_tickets else 202, ACCEPTED_NOTHING, became=202)
        try:
            committed = await self._committer.push(endpoint.feed, events, Read(now=now))
        except NotFound as error:
            # the store is not the one with which we started: the sender is not to throw it away for that
            raise RetryLater(error.message, fix="Was the store emptied or exchanged? Start Harken anew") from error
        if endpoint.respond_seconds and self._run_answers is not None:
            return await self._respond(endpoint, committed)
        if endpoint.claims_tickets:
            return _claim_answer(events, committed)
        # of a feed that tells transitions, what it knew already is not even committed
        fresh = _count_fresh(committed)
        if len(events) == fresh == 1:
            return _Answer(202, ACCEPTED_ONE)
        answer = {"accepted": fresh, "duplicate": len(events) - fresh}
        return _Answer(202 if fresh else 200, msgspec.json.encode(answer))

    async def _respond(self, endpoint: Endpoint, committed: Committed) -> _Answer:
        """What the runs came to. Everything is committed: what is sent again gets the answer of its first run."""
        assert self._run_answers is not None
        became = 202 if _count_fresh(committed) else 200
        found = await self._run_answers.answer(committed, endpoint.respond_seconds)
        if endpoint.empty_answer and found.status != 200:
            return _Answer(200, b"", became=became)
        headers = [(b"harken-run", ", ".join(found.runs).encode())]
        if found.status == 202 and len(found.runs) == 1:
            headers.append((b"location", (RUNS + found.runs[0]).encode()))
        return _Answer(found.status, msgspec.json.encode(found.content), headers, became)

    def _count(self, feed: str) -> None:
        """Only senders that have proven themselves are counted: a stranger must not use up what they may send."""
        if after := self._rates[feed].take(self._clock.monotonic()):
            raise _TooMany(after)


def _count_fresh(committed: Committed) -> int:
    fresh = 0
    for verdicts in committed.verdicts:
        if not verdicts or verdicts[0].outcome != "duplicate":
            fresh += 1
    return fresh


def _claim_answer(events: Sequence[Event], committed: Committed) -> _Answer:
    """202 for a ticket that was claimed; 200 for one that was claimed before, and for one that may not start."""
    outcomes = {verdict.outcome for verdicts in committed.verdicts for verdict in verdicts}
    if outcomes & CLAIMED:
        outcome = "claimed"
    elif any(event.type in AT_WORK for event in events):
        outcome = "already_claimed"
    else:
        outcome = "rejected"
    fresh = _count_fresh(committed)
    answer = {"accepted": fresh, "duplicate": len(events) - fresh, "outcome": outcome}
    return _Answer(202 if outcome == "claimed" else 200, msgspec.json.encode(answer), became=202 if fresh else 200)


def _sender(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else ""


async def _body(scope: Scope, receive: Receive, limit: int) -> bytes:
    message = await receive()
    body: bytes = message.get("body", b"")
    if message["type"] == "http.disconnect":
        raise _cut_off(scope)
    if not message.get("more_body"):
        if len(body) > limit:
            raise _TooLarge
        return body
    parts, size = [body], len(body)
    while message.get("more_body"):
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _cut_off(scope)
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > limit:
            raise _TooLarge
    return b"".join(parts)


def _cut_off(scope: Scope) -> Malformed:
    if reason := scope.get(CLOSED):
        return _CutOff(reason)
    return Malformed("the caller hung up before the body was complete")


def _status_of(error: Exception) -> int:
    if isinstance(error, Unauthorized):
        return 401
    if isinstance(error, _TooLarge):
        return 413
    if isinstance(error, _CutOff):
        return 408
    return 400 if isinstance(error, Refused) else 500


async def _answer(send: Send, status: int, content: Mapping[str, Any], *headers: tuple[bytes, bytes]) -> None:
    await _send(send, status, msgspec.json.encode(content), *headers)


async def _send(send: Send, status: int, body: bytes, *headers: tuple[bytes, bytes]) -> None:
    length = (b"content-length", b"%d" % len(body))
    # a tuple where it is nearly always the same: the listener makes a head of it once
    whole: Sequence[tuple[bytes, bytes]] = [JSON, length, *headers] if headers or status != 202 else (JSON, length)
    await send({"type": "http.response.start", "status": status, "headers": whole})
    await send({"type": "http.response.body", "body": body})
