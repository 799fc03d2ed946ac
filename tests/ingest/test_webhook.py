"""What a sender of webhooks is answered, and that nothing is acknowledged that is not committed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
import structlog

from harken.errors import Malformed, NotFound, RetryLater, StoreBusy, Unauthorized
from harken.event import Event, Verdict
from harken.ingest.refused_webhooks import REASONS, Refusals
from harken.ingest.webhook import CLOSED, Endpoint, Webhooks
from harken.source import Handshake, Request
from harken.store import Committed
from harken.testing import START, HandClock
from harken.tracing import NO_TRACER
from tests.ingest.noted_store import event

NEW, REPEATED = Verdict(trigger="t", outcome="fired"), Verdict(trigger="t", outcome="duplicate")


class Sender:
    """The source of a webhook: makes an event of each word of the body, and refuses what it is told to."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.requests: list[Request] = []

    async def receive(self, request: Request) -> list[Event]:
        self.requests.append(request)
        if self.error is not None:
            raise self.error
        return [event(word) for word in request.body.decode().split()]


class Gate:
    """Commits everything, with these verdicts; or fails."""

    tracer = NO_TRACER

    def __init__(self, *verdicts: Sequence[Verdict], error: Exception | None = None) -> None:
        self.verdicts = [tuple(one) for one in verdicts]
        self.error = error
        self.pushed: list[str] = []

    async def push(self, feed: str, events: Sequence[Event], read: Any) -> Committed:
        if self.error is not None:
            raise self.error
        assert read.now == START
        self.pushed += [f"{feed}/{one.subject}" for one in events]
        return Committed(event_ids=[1] * len(events), verdicts=self.verdicts)


async def ask(
    webhooks: Webhooks,
    *parts: bytes,
    method: str = "POST",
    path: str = "/webhooks/shop/1",
    hang_up: bool = False,
    last: bytes = b"",
    length: int | None = None,
    closed: str = "",
) -> tuple[int, Any, dict[str, str]]:
    """The status, the answer and the headers of one request, whose body comes in these parts, and `last` at last.

    `length` is what the sender says of the body, `closed` why the listener ended the request.
    """
    messages = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
    messages.append({"type": "http.disconnect"} if hang_up else {"type": "http.request", "body": last})
    sent: list[Any] = []

    async def receive() -> Any:
        return messages.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"x-signature", b"s\xe9")]
    if length is not None:
        headers.append((b"content-length", b"%d" % length))
    scope: dict[str, Any] = {CLOSED: closed} if closed else {}
    scope |= {"method": method, "path": path, "headers": headers, "query_string": b"a=1", "client": ("203.0.113.7", 9)}
    await webhooks(scope, receive, send)
    start, body = sent
    answered = {name.decode(): value.decode() for name, value in start["headers"]}
    assert int(answered["content-length"]) == len(body["body"])
    return start["status"], msgspec.json.decode(body["body"]), answered


def serving(gate: Gate, sender: Sender | None = None, max_bytes: int = 100) -> Webhooks:
    anything: Any = gate
    webhooks = Webhooks(anything, HandClock())
    webhooks.serve({"shop/1": Endpoint(feed="hooks", source=sender or Sender(), max_bytes=max_bytes)})
    return webhooks


@pytest.mark.parametrize("parts", [[], [b"first "], [b"first ", b"sec"]], ids=["one", "two", "three"])
async def test_a_body_reaches_its_source_whole_in_however_many_parts_it_comes(parts: list[bytes]) -> None:
    sender = Sender()
    status, _, _ = await ask(serving(Gate([NEW], [NEW]), sender), *parts, last=b"third")
    assert (status, [one.body for one in sender.requests]) == (202, [b"".join([*parts, b"third"])])


@pytest.mark.parametrize(
    ("body", "verdicts", "status", "accepted", "duplicate"),
    [
        (b"a", [[NEW]], 202, 1, 0),
        (b"a", [[]], 202, 1, 0),
        (b"a", [[REPEATED]], 200, 0, 1),
        (b"a", [], 200, 0, 1),
        (b"a b c", [[NEW], [REPEATED], []], 202, 2, 1),
        (b"a b", [[REPEATED], [REPEATED]], 200, 0, 2),
        (b"", [], 202, 0, 0),
    ],
    ids=[
        "new",
        "nobody listens",
        "repeated",
        "known and not committed",
        "some are repeated",
        "all are repeated",
        "nothing in it",
    ],
)
async def test_what_is_committed_is_acknowledged(
    body: bytes, verdicts: list[Any], status: int, accepted: int, duplicate: int
) -> None:
    gate = Gate(*verdicts)
    found = await ask(serving(gate), body)
    assert found[:2] == (status, {"accepted": accepted, "duplicate": duplicate})
    assert gate.pushed == [f"hooks/{word.decode()}" for word in body.split()]


@pytest.mark.parametrize(
    ("gate", "sender", "status", "message"),
    [
        (Gate(), Sender(Unauthorized("the signature is wrong")), 401, "the signature is wrong"),
        (Gate(), Sender(Malformed("it is not JSON")), 400, "it is not JSON"),
        (Gate(), Sender(KeyError("token=secret")), 500, "it failed here; send it again"),
        (Gate(error=ValueError("secret")), Sender(), 500, "it failed here; send it again"),
        (Gate(error=StoreBusy("too much waits")), Sender(), 503, "too much waits"),
        (Gate(error=NotFound("there is no trigger")), Sender(), 503, "there is no trigger"),
    ],
    ids=["not signed", "not understood", "a bug in the source", "a bug at the store", "the store is full", "emptied"],
)
async def test_what_is_not_committed_is_not_acknowledged(gate: Gate, sender: Sender, status: int, message: str) -> None:
    with structlog.testing.capture_logs():
        assert (await ask(serving(gate, sender), b"a"))[:2] == (status, {"error": message})
    assert gate.pushed == []


@pytest.mark.parametrize(
    ("after", "header"), [(None, "1"), (0.2, "1"), (30.4, "30")], ids=["not said", "at once", "in a while"]
)
async def test_a_sender_is_told_when_to_come_again(after: float | None, header: str) -> None:
    status, _, headers = await ask(serving(Gate(error=RetryLater("later", after=after))), b"a")
    assert (status, headers["retry-after"]) == (503, header)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("POST", "/webhooks/shop/2", 404), ("POST", "/webhooks/", 404), ("GET", "/webhooks/shop/1", 405)],
)
async def test_only_a_post_to_a_known_path_is_read(method: str, path: str, status: int) -> None:
    sender = Sender()
    assert (await ask(serving(Gate(), sender), b"a", method=method, path=path))[0] == status
    assert sender.requests == []


@pytest.mark.parametrize(
    ("parts", "status"),
    [([b"x" * 100], 202), ([b"x" * 101], 413), ([b"x" * 60, b"x" * 40], 202), ([b"x" * 60, b"x" * 41], 413)],
    ids=["just fits", "too large", "fits in parts", "too large in parts"],
)
async def test_a_body_has_a_limit(parts: list[bytes], status: int) -> None:
    sender = Sender()
    assert (await ask(serving(Gate([NEW]), sender), *parts))[0] == status
    assert [len(request.body) for request in sender.requests] == [100] * (status == 202)


async def test_a_body_that_says_it_is_too_large_is_not_read() -> None:
    gate = Gate()
    # there is nothing to receive: whoever tried would fail
    assert (await ask(serving(gate), length=101, hang_up=True))[0] == 413
    assert (await ask(serving(Gate([NEW])), b"a", length=100))[0] == 202


@pytest.mark.parametrize("parts", [(), (b"a",)], ids=["before it began", "in its middle"])
async def test_a_body_that_was_cut_off_is_not_taken(parts: tuple[bytes, ...]) -> None:
    sender, gate = Sender(), Gate()
    status, answer, _ = await ask(serving(gate, sender), *parts, hang_up=True)
    assert (status, answer) == (400, {"error": "the caller hung up before the body was complete"})
    assert (sender.requests, gate.pushed) == ([], [])


@pytest.mark.parametrize("parts", [(), (b"a",)], ids=["before it began", "in its middle"])
async def test_a_body_that_the_listener_did_not_wait_for_is_a_timeout(parts: tuple[bytes, ...]) -> None:
    webhooks = serving(Gate())
    with structlog.testing.capture_logs():
        status, answer, _ = await ask(webhooks, *parts, hang_up=True, closed="the request did not come in time")
    assert (status, answer) == (408, {"error": "the request did not come in time"})
    [kept] = webhooks.refusals.last("shop/1")
    assert (kept.reason, kept.message) == ("timeout", "the request did not come in time")


async def test_a_source_gets_the_request_as_it_was_sent() -> None:
    sender = Sender()
    await ask(serving(Gate([NEW]), sender), b"a")
    [request] = sender.requests
    assert (request.headers, request.query, request.path) == ({"x-signature": "sé"}, b"a=1", "/webhooks/shop/1")
    assert request.received_at == START


async def test_what_was_received_and_refused_is_counted() -> None:
    observed: list[tuple[str, int]] = []
    sender = Sender()
    webhooks = serving(Gate([NEW], [NEW]), sender)
    webhooks.observe = lambda feed, status: observed.append((feed, status))
    await ask(webhooks, b"a b")
    sender.error = Unauthorized("the signature is wrong")
    await ask(webhooks, b"c")
    assert (webhooks.received, webhooks.refused, observed) == (2, 1, [("hooks", 202), ("hooks", 401)])


class TicketSender(Sender):
    """Makes an event of each word that tells where a ticket stands."""

    async def receive(self, request: Request) -> list[Event]:
        found = await super().receive(request)
        return [
            msgspec.structs.replace(one, type=f"ticket.{word}")
            for one, word in zip(found, request.body.decode().split(), strict=True)
        ]


@pytest.mark.parametrize(
    ("body", "verdicts", "status", "outcome", "counted"),
    [
        (b"ready", [[NEW]], 202, "claimed", 202),
        (b"ready", [[REPEATED]], 200, "already_claimed", 200),
        (b"claimed", [[]], 200, "already_claimed", 202),
        (b"unrouted", [[]], 200, "rejected", 202),
        (b"unrouted", [[REPEATED]], 200, "rejected", 200),
        (b"", [], 200, None, 202),
    ],
    ids=["ready", "ready again", "at work", "not ready", "not ready again", "about no ticket"],
)
async def test_a_tracker_is_told_what_became_of_its_ticket_and_the_metric_whether_it_was_new(
    body: bytes, verdicts: list[Any], status: int, outcome: str | None, counted: int
) -> None:
    anything: Any = Gate(*verdicts)
    observed: list[tuple[str, int]] = []
    webhooks = Webhooks(anything, HandClock())
    webhooks.serve({"shop/1": Endpoint(feed="hooks", source=TicketSender(), claims_tickets=True)})
    webhooks.observe = lambda feed, status: observed.append((feed, status))
    answered, answer, _ = await ask(webhooks, body)
    assert (answered, answer.get("outcome")) == (status, outcome)
    assert observed == [("hooks", counted)]


async def test_refused_webhooks_leave_a_trace_without_body_or_signature() -> None:
    reasons: list[str] = []
    sender = Sender(Unauthorized("the signature is wrong"))
    webhooks = serving(Gate([NEW]), sender)
    webhooks.refusals.on_refused = reasons.append
    with structlog.testing.capture_logs() as logs:
        for _ in range(25):
            await ask(webhooks, b"these w0rds")
        sender.error = Malformed("it is not JSON")
        await ask(webhooks, b"these w0rds")
        sender.error = None
        await ask(webhooks, b"x" * 101)
        await ask(webhooks, b"", method="GET")
        await ask(webhooks, b"", path="/webhooks/shop/2")
    kept = webhooks.refusals.last("shop/1")
    assert [one.reason for one in kept] == ["method", "too_large", "malformed", *["signature"] * 17]
    assert (kept[-1].at, kept[-1].sender, kept[-1].message) == (START, "203.0.113.7", "the signature is wrong")
    assert reasons == [*["signature"] * 25, "malformed", "too_large", "method", "not_found"]
    lines = [line for line in logs if line["event"] == "webhook.refused"]
    assert [line["reason"] for line in lines] == ["signature", "malformed", "too_large", "method", "not_found"]
    assert not any(word in f"{kept}{logs}" for word in ("w0rds", "s\xe9", "a=1"))


def test_the_log_of_refusals_is_rate_limited_and_says_how_many_were_left_out() -> None:
    clock = HandClock()
    refusals = Refusals(clock)
    with structlog.testing.capture_logs() as logs:
        for _ in range(4):
            for _ in range(30):
                refusals.note("shop/1", "203.0.113.7", "signature", "the signature is wrong")
            clock.advance(30)
    assert [(line["path"], line["unlogged"]) for line in logs] == [("shop/1", 0), ("shop/1", 59)]


def test_refusals_of_a_path_that_left_the_configuration_are_forgotten() -> None:
    refusals = Refusals(HandClock())
    with structlog.testing.capture_logs():
        refusals.note("shop/1", "203.0.113.7", "signature", "no")
    refusals.keep(["shop/2"])
    assert refusals.last("shop/1") == ()


def refuse(refusals: Refusals, number: int = 1, path: str = "shop/1", sender: str = "203.0.113.7") -> None:
    with structlog.testing.capture_logs():
        for _ in range(number):
            refusals.note(path, sender, "signature", "the signature is wrong")


def test_unverified_requests_are_counted_by_path_and_told_after_a_minute() -> None:
    clock = HandClock()
    refusals = Refusals(clock)
    refuse(refusals, 600)
    refuse(refusals, 2, path="shop/2", sender="203.0.113.8")
    clock.advance(59)
    refuse(refusals, sender="203.0.113.9")
    assert refusals.unverified() == []
    assert len(refusals.unverified(ending=True)) == 2
    clock.advance(1)
    first, second = refusals.unverified()
    assert (first.path, first.number, first.senders) == ("shop/1", 601, ("203.0.113.7", "203.0.113.9"))
    assert (second.path, second.number, second.first_at) == ("shop/2", 2, START)


def test_what_comes_while_the_count_is_written_is_counted_next() -> None:
    clock = HandClock()
    refusals = Refusals(clock)
    refuse(refusals, 5)
    clock.advance(60)
    (count,) = refusals.unverified()
    refuse(refusals, 3)
    refusals.audited(count)
    assert refusals.unverified() == []
    clock.advance(60)
    (count,) = refusals.unverified()
    assert (count.number, count.message) == (3, "the signature is wrong")
    refusals.audited(count)
    assert refusals.unverified(ending=True) == []


def test_any_number_of_senders_takes_bounded_memory() -> None:
    refusals = Refusals(HandClock())
    for number in range(300):
        refuse(refusals, sender=f"2001:db8::{number:x}")
    (count,) = refusals.unverified(ending=True)
    assert (count.number, len(count.senders)) == (300, 10)


def test_only_a_missing_or_wrong_signature_goes_to_the_audit_log() -> None:
    refusals = Refusals(HandClock())
    with structlog.testing.capture_logs():
        for reason in REASONS:
            refusals.note("shop/1", "203.0.113.7", reason, "no")
    (count,) = refusals.unverified(ending=True)
    assert count.number == 1


async def test_a_handshake_is_answered_and_nothing_is_committed() -> None:
    gate = Gate()
    status, answer, _ = await ask(serving(gate, Sender(Handshake({"challenge": "c"}))), b"x")
    assert (status, answer, gate.pushed) == (200, {"challenge": "c"}, [])


async def test_a_sender_that_shows_its_answer_to_people_gets_an_empty_one() -> None:
    anything: Any = Gate([NEW])
    webhooks = Webhooks(anything, HandClock())
    webhooks.serve({"shop/1": Endpoint(feed="hooks", source=Sender(), empty_answer=True)})
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"a"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"method": "POST", "path": "/webhooks/shop/1", "headers": [], "query_string": b""}
    await webhooks(scope, receive, send)
    assert (sent[0]["status"], sent[1]["body"], anything.pushed) == (200, b"", ["hooks/a"])
