"""Nothing unproven comes in, one delivery is one event, and what goes out can be verified."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from pydantic import ValidationError

from harken.errors import HarkenError, Malformed, NeedsAttention, Refused, RetryLater, Unauthorized
from harken.event import Event
from harken.services.webhook import Incoming, IncomingQuery, Outgoing, OutgoingQuery, plugin
from harken.source import Host, Message, Request
from harken.testing import START, HandClock
from harken.testing.fakes import Answer, Listing

SECRET = "correct-horse"
BODY = b'{"id": "e7", "type": "deploy", "order": {"no": 12}, "at": 1772359200}'


def digest(body: bytes = BODY, secret: str = SECRET) -> bytes:
    return hmac.new(secret.encode(), body, hashlib.sha256).digest()


def signed(body: bytes = BODY, secret: str = SECRET) -> dict[str, str]:
    return {"x-signature-256": "sha256=" + digest(body, secret).hex()}


async def receive(headers: Mapping[str, str], body: bytes = BODY, **query: Any) -> Event:
    source = Incoming(IncomingQuery.model_validate({"secret": SECRET, **query}))
    (event,) = await source.receive(Request(headers=headers, body=body, received_at=START))
    return event


class TestSignature:
    @pytest.mark.parametrize(
        "value",
        [f"sha256={digest().hex()}", digest().hex(), digest().hex().upper(), base64.b64encode(digest()).decode()],
    )
    async def test_hex_and_base64_are_understood(self, value: str):
        assert (await receive({"x-signature-256": value})).data["id"] == "e7"

    @pytest.mark.parametrize("length", [1, 63, 64, 65, 200])
    async def test_a_secret_of_any_length_signs_as_hmac_does(self, length: int):
        secret = "sé" * length
        assert (await receive(signed(secret=secret), secret=secret)).data["id"] == "e7"

    @pytest.mark.parametrize(
        "headers",
        [
            {},
            {"x-signature-256": ""},
            {"x-signature-256": "sha256="},
            {"x-signature-256": "sha256=" + "0" * 64},
            {"x-signature-256": "sha256=" + "z" * 64},
            {"x-signature-256": "é" * 64},
            {"x-signature-256": "é" * 44},
            {"x-signature-256": digest().hex()[:-2]},
            {"x-signature-256": "sha1=" + digest().hex()},
            {"x-signature": digest().hex()},
            signed(secret="wrong"),
            signed(body=BODY + b" "),
        ],
    )
    async def test_a_missing_or_wrong_signature_is_unauthorized(self, headers: dict[str, str]):
        with pytest.raises(Unauthorized):
            await receive(headers)

    async def test_a_wrong_signature_is_refused_before_the_body_is_looked_at(self):
        with pytest.raises(Unauthorized):
            await receive({}, body=b"not json")

    async def test_no_error_holds_the_secret_or_the_signature(self):
        with pytest.raises(Unauthorized) as caught:
            await receive(signed(secret="wrong"))
        assert SECRET not in str(caught.value)
        assert digest(secret="wrong").hex() not in str(caught.value)

    async def test_both_secrets_count_while_one_replaces_the_other(self):
        for secret in ("old-secret", "new-secret"):
            await receive(signed(secret=secret), secret=["old-secret", "new-secret"])
        with pytest.raises(Unauthorized):
            await receive(signed(secret="older"), secret=["old-secret", "new-secret"])

    async def test_the_header_can_be_named(self):
        event = await receive({"x-hub-signature-256": digest().hex()}, header="X-Hub-Signature-256")
        assert event.subject

    async def test_a_newline_after_the_secret_does_not_count(self):
        assert await receive(signed(), secret=SECRET + "\n")


class TestReplayWindow:
    QUERY: Any = {"timestamp_header": "X-Timestamp", "tolerance": 300}  # noqa: RUF012

    async def check(self, stamp: str, headers: dict[str, str] | None = None) -> Event:
        signature = signed(stamp.encode() + b"." + BODY)["x-signature-256"]
        given = {"x-timestamp": stamp, "x-signature-256": signature}
        return await receive(given if headers is None else headers, **self.QUERY)

    @pytest.mark.parametrize("off", [-299, 0, 299])
    async def test_a_recent_time_is_accepted(self, off: int):
        assert await self.check(str(int(START.timestamp()) + off))

    async def test_other_notations_of_time_are_accepted(self):
        assert await self.check(str(int(START.timestamp() * 1000)))
        assert await self.check(START.isoformat())

    @pytest.mark.parametrize(
        "stamp", [*(str(int(START.timestamp()) + off) for off in (-301, 301, -86_400)), "", "soon", "nan"]
    )
    async def test_an_old_future_or_unreadable_time_is_unauthorized(self, stamp: str):
        with pytest.raises(Unauthorized):
            await self.check(stamp)

    async def test_a_missing_time_is_unauthorized(self):
        with pytest.raises(Unauthorized):
            await self.check("", signed())

    async def test_a_time_that_was_not_signed_is_unauthorized(self):
        with pytest.raises(Unauthorized):
            await self.check("", {"x-timestamp": str(int(START.timestamp())), **signed()})


class TestOtherSchemes:
    async def test_an_api_key_is_compared(self):
        assert await receive({"x-api-key": SECRET}, scheme="api_key")
        assert await receive({"authorization": f"bearer {SECRET}"}, scheme="api_key")
        assert await receive({"authorization": f"Bearer {SECRET}"}, scheme="api_key", header="Authorization")

    @pytest.mark.parametrize("headers", [{}, {"x-api-key": ""}, {"x-api-key": "wrong"}, {"x-api-key": "é"}, signed()])
    async def test_a_missing_or_wrong_key_is_unauthorized(self, headers: dict[str, str]):
        with pytest.raises(Unauthorized):
            await receive(headers, scheme="api_key")

    async def test_unsigned_events_come_in_only_when_that_is_said(self):
        assert await receive({}, scheme="none", allow_unsigned=True, secret=[])

    @pytest.mark.parametrize(
        "wrong",
        [
            {},
            {"secret": ""},
            {"secret": "  "},
            {"secret": []},
            {"secret": ["good", ""]},
            {"scheme": "api_key"},
            {"scheme": "none"},
            {"scheme": "api_key", "secret": "k", "timestamp_header": "X-T"},
            {"scheme": "md5", "secret": "k"},
            {"secret": "k", "max_bytes": 0},
            {"secret": "k", "hedaer": "x"},
        ],
    )
    def test_a_query_that_would_let_anybody_in_is_refused(self, wrong: Any):
        with pytest.raises(ValidationError):
            IncomingQuery.model_validate(wrong)

    def test_a_query_does_not_show_its_secret(self):
        assert SECRET not in repr(IncomingQuery.model_validate({"secret": [SECRET]}))


class TestEvents:
    async def test_the_body_is_stored_as_it_came(self):
        event = await receive(signed())
        assert (event.raw, event.payload(), event.type) == (BODY, BODY, "webhook.received")
        assert event.data == msgspec.json.decode(BODY)

    async def test_the_id_of_the_header_names_the_event(self):
        event = await receive({**signed(), "x-event-id": "abc"})
        assert event.key == event.subject == "abc"

    async def test_the_id_of_the_body_wins(self):
        event = await receive({**signed(), "x-event-id": "abc"}, id_field="id")
        assert event.key == "e7"

    async def test_a_body_without_its_id_is_malformed(self):
        with pytest.raises(Malformed, match="no id at 'uuid'"):
            await receive(signed(), id_field="uuid")

    async def test_a_repeated_delivery_without_an_id_is_the_same_event(self):
        other = b'{"id": "e8"}'
        first, again, next_one = await receive(signed()), await receive(signed()), await receive(signed(other), other)
        assert first.key == again.key != next_one.key

    async def test_events_about_one_subject_are_told_apart_by_their_id(self):
        event = await receive(signed(), id_field="id", subject_field="order.no")
        assert (event.subject, event.state, event.key, plugin.identity) == ("12", "e7", "e7", "change")

    async def test_type_and_time_are_found_where_the_query_says(self):
        event = await receive(signed(), type_field="type", time_field="at")
        assert event.type == "deploy"
        assert event.occurred_at == datetime(2026, 3, 1, 10, tzinfo=UTC)

    async def test_the_type_may_be_in_a_header(self):
        event = await receive({**signed(), "x-github-event": "push"}, type_header="X-GitHub-Event", type_field="type")
        assert event.type == "push"

    @pytest.mark.parametrize(("body", "value"), [(b"[1, 2]", [1, 2]), (b'"x"', "x"), (b"7", 7), (b"null", None)])
    async def test_json_that_is_no_object_is_wrapped(self, body: bytes, value: Any):
        event = await receive(signed(body), body)
        assert (event.data, event.raw) == ({"value": value}, b"")
        assert msgspec.json.decode(event.payload()) == {"value": value}

    async def test_a_form_becomes_its_fields(self):
        body = b"name=Ada+L&tag=a&tag=b&empty="
        event = await receive(
            {**signed(body), "content-type": "application/x-www-form-urlencoded; charset=utf-8"}, body
        )
        assert event.data == {"name": "Ada L", "tag": ["a", "b"], "empty": ""}
        assert msgspec.json.decode(event.payload()) == event.data

    @pytest.mark.parametrize(
        "body",
        [b"", b"hello", b"{", b"\xff\xfe", b'{"a": "\xff"}', b"[" * 500_000, b'{"a":' * 100_000, b"<xml/>", b"NaN"],
    )
    async def test_anything_else_is_malformed(self, body: bytes):
        with pytest.raises(Malformed):
            await receive(signed(body), body)

    async def test_a_body_that_is_too_large_is_malformed(self):
        with pytest.raises(Malformed, match="larger than 10 bytes"):
            await receive(signed(), max_bytes=10)

    def test_both_refusals_are_refusals_and_tell_apart(self):
        assert issubclass(Unauthorized, Refused)
        assert issubclass(Malformed, Refused)
        assert Unauthorized.code != Malformed.code


def verify(header: str, body: bytes, secret: str, now: float) -> bool:
    """What the documentation tells receivers to do."""
    parts = [part.split("=", 1) for part in header.split(",")]
    at = next(value for name, value in parts if name == "t")
    expected = hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    known = [value for name, value in parts if name == "v1" and hmac.compare_digest(value, expected)]
    return abs(now - int(at)) <= 300 and bool(known)


class TestOutgoing:
    def destination(self, host: Host, **query: Any) -> Outgoing:
        return Outgoing(OutgoingQuery.model_validate(query), host)

    def message(self, listing: Listing, path: str = "all") -> Message:
        to = f"{listing.url}/{path}"
        return Message(to=to, text="It's up 🎉", title="Up", data={"n": 1}, idempotency_key="run-1")

    async def test_a_message_is_posted_with_its_key(self, host: Host, listing: Listing):
        said = await self.destination(host, headers={"X-Team": "blue"}).deliver(self.message(listing))
        (seen,) = listing.seen
        assert msgspec.json.decode(seen.body) == {"text": "It's up 🎉", "title": "Up", "data": {"n": 1}}
        assert (seen.method, seen.headers["idempotency-key"], seen.headers["x-team"]) == ("POST", "run-1", "blue")
        assert seen.headers["content-type"] == "application/json"
        assert "x-harken-signature" not in seen.headers
        assert said == {"status": 200}

    async def test_a_receiver_can_verify_it_with_each_secret(self, clock: HandClock, host: Host, listing: Listing):
        await self.destination(host, secret=["old", "new"]).deliver(self.message(listing))
        header, body = listing.seen[0].headers["x-harken-signature"], listing.seen[0].body
        assert [verify(header, body, secret, clock.time()) for secret in ("old", "new", "other")] == [True, True, False]
        assert not verify(header, body + b" ", "new", clock.time())
        assert not verify(header, body, "new", clock.time() + timedelta(minutes=6).total_seconds())

    @pytest.mark.parametrize(
        ("answer", "error"),
        [
            (Answer(status=503, headers={"Retry-After": "9"}), RetryLater),
            (Answer(status=429, headers={"Retry-After": "9"}), RetryLater),
            (Answer(status=401), NeedsAttention),
            (Answer(status=404), NeedsAttention),
        ],
    )
    async def test_a_refusal_says_what_happens_next_and_not_the_address(
        self, host: Host, listing: Listing, answer: Answer, error: type[HarkenError]
    ):
        listing.answers = [answer]
        with pytest.raises(error) as caught:
            await self.destination(host).deliver(self.message(listing, "all/T0/secret-path?token=x"))
        assert getattr(caught.value, "after", 9) == 9
        assert "secret-path" not in str(caught.value)
        assert "token" not in str(caught.value)

    async def test_private_addresses_are_refused_unless_allowed(self, host: Host, listing: Listing):
        strict = Host(http=host.http, clock=host.clock, random=host.random)
        with pytest.raises(Refused, match="private"):
            await self.destination(strict).deliver(self.message(listing))
        await self.destination(strict, allow_private_networks=True).deliver(self.message(listing))

    async def test_data_alone_is_a_message(self, host: Host, listing: Listing):
        await self.destination(host).deliver(Message(to=f"{listing.url}/all", text="", data={"n": 1}))
        assert msgspec.json.decode(listing.seen[0].body) == {"text": "", "title": "", "data": {"n": 1}}

    @pytest.mark.parametrize("secret", ["", " ", ["good", ""]])
    def test_an_empty_secret_is_refused(self, secret: Any):
        with pytest.raises(ValidationError):
            OutgoingQuery.model_validate({"secret": secret})
