"""The other ways to prove where a webhook comes from: forms of HMAC, HTTP Basic, and Standard Webhooks."""

from __future__ import annotations

import base64
import hmac
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from pydantic import ValidationError
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from harken.errors import Malformed, Refused, Unauthorized
from harken.event import Event
from harken.services.webhook import IncomingQuery, plugin, sample
from harken.source import Request, Sample
from harken.testing import START

SECRET = "correct-horse"
BODY = b'{"type": "order.paid", "timestamp": "2026-03-01T10:00:00Z", "data": {"id": 7}}'
SIGNING = "whsec_" + base64.b64encode(b"k" * 32).decode()
OTHER = "whsec_" + base64.b64encode(b"o" * 32).decode()
PAIR = Ed25519PrivateKey.from_private_bytes(b"p" * 32)
PUBLIC = "whpk_" + base64.b64encode(PAIR.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)).decode()


async def receive(headers: Mapping[str, str], body: bytes = BODY, at: datetime = START, **query: Any) -> Event:
    nobody: Any = None
    assert plugin.webhook is not None
    source = plugin.webhook(IncomingQuery.model_validate({"secret": SECRET, **query}), None, nobody)
    (event,) = await source.receive(Request(headers=headers, body=body, received_at=at))
    return event


def digest(algorithm: str, signed: bytes = BODY, secret: str = SECRET) -> bytes:
    return hmac.new(secret.encode(), signed, algorithm).digest()


class TestFormsOfHmac:
    @pytest.mark.parametrize("algorithm", ["sha256", "sha512", "sha1"])
    @pytest.mark.parametrize("length", [1, 64, 65, 129, 300])
    async def test_each_algorithm_signs_as_the_standard_library_does(self, algorithm: str, length: int):
        secret = "s" * length
        found = digest(algorithm, secret=secret)
        for value in (found.hex(), f"{algorithm}={found.hex()}", base64.b64encode(found).decode()):
            assert await receive({"x-signature-256": value}, secret=secret, algorithm=algorithm)

    async def test_a_weaker_hash_counts_only_where_it_is_asked_for(self):
        with pytest.raises(Unauthorized):
            await receive({"x-signature-256": "sha1=" + digest("sha1").hex()})
        with pytest.raises(Unauthorized):
            await receive({"x-signature-256": "sha256=" + digest("sha256").hex()}, algorithm="sha1")

    async def test_the_encoding_and_the_prefix_can_be_fixed(self):
        found = digest("sha256")
        query: Any = {"header": "X-Sig", "prefix": "v1=", "encoding": "base64"}
        assert await receive({"x-sig": "v1=" + base64.b64encode(found).decode()}, **query)
        for wrong in (found.hex(), "v1=" + found.hex(), base64.b64encode(found).decode(), "v1=", "", "v2=" + "0" * 64):
            with pytest.raises(Unauthorized):
                await receive({"x-sig": wrong}, **query)

    @pytest.mark.parametrize("form", ["v0:{timestamp}:{body}", "{body}{timestamp}", "{timestamp}{body}"])
    async def test_what_is_signed_with_the_time_can_be_written(self, form: str):
        stamp = str(int(START.timestamp()))
        signed = form.encode().replace(b"{timestamp}", stamp.encode()).replace(b"{body}", BODY)
        headers = {"x-time": stamp, "x-signature-256": digest("sha256", signed).hex()}
        assert await receive(headers, timestamp_header="X-Time", signed=form)
        with pytest.raises(Unauthorized):
            await receive(headers, timestamp_header="X-Time")
        with pytest.raises(Unauthorized):
            await receive(headers, timestamp_header="X-Time", signed=form, at=START + timedelta(minutes=6))

    @pytest.mark.parametrize(
        "wrong",
        [
            {"algorithm": "md5"},
            {"encoding": "base32"},
            {"signed": "{timestamp}{body}"},
            {"signed": "{body}", "timestamp_header": "X-T"},
            {"signed": "{timestamp}", "timestamp_header": "X-T"},
            {"signed": "{timestamp}{body}{body}", "timestamp_header": "X-T"},
            {"scheme": "basic", "algorithm": "sha512"},
            {"scheme": "api_key", "prefix": "x"},
        ],
    )
    def test_a_form_that_makes_no_sense_is_refused(self, wrong: Any):
        with pytest.raises(ValidationError):
            IncomingQuery.model_validate({"secret": SECRET, **wrong})


def basic(text: str) -> dict[str, str]:
    return {"authorization": "Basic " + base64.b64encode(text.encode()).decode()}


class TestBasic:
    @pytest.mark.parametrize("secret", ["pass", "ann:pass", ["old", "pass"], ["pass", "new"]])
    async def test_the_password_counts_and_the_user_where_it_is_given(self, secret: Any):
        assert await receive(basic("ann:pass"), scheme="basic", secret=secret)

    @pytest.mark.parametrize(
        "headers",
        [
            {},
            basic("ann:wrong"),
            basic("ann:"),
            basic("pass"),
            basic(":"),
            {"authorization": "Basic !"},
            {"authorization": "pass"},
        ],
    )
    async def test_anything_else_is_unauthorized(self, headers: dict[str, str]):
        with pytest.raises(Unauthorized):
            await receive(headers, scheme="basic", secret=["pass", "ann:word"])


def standard(secret: str = SIGNING, body: bytes = BODY, id: str = "msg_1", at: datetime = START) -> dict[str, str]:
    return {
        "webhook-id": id,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": Webhook(secret).sign(id, at, body.decode()),
    }


def asymmetric(body: bytes = BODY, id: str = "msg_1", at: datetime = START) -> dict[str, str]:
    stamp = str(int(at.timestamp()))
    signature = PAIR.sign(f"{id}.{stamp}.".encode() + body)
    encoded = base64.b64encode(signature).decode()
    return {"webhook-id": id, "webhook-timestamp": stamp, "webhook-signature": f"v1a,{encoded}"}


async def receive_standard(headers: Mapping[str, str], body: bytes = BODY, **query: Any) -> Event:
    return await receive(headers, body, **{"scheme": "standard_webhooks", "secret": SIGNING, **query})


class TestStandardWebhooks:
    async def test_the_signed_id_names_the_event_and_the_body_its_type_and_time(self):
        event = await receive_standard({**standard(), "x-event-id": "other"})
        assert (event.key, event.type) == ("msg_1", "order.paid")
        assert event.occurred_at == datetime(2026, 3, 1, 10, tzinfo=UTC)

    async def test_a_key_without_its_prefix_or_padding_is_the_same_key(self):
        assert await receive_standard(standard(), secret=SIGNING.removeprefix("whsec_").rstrip("="))

    async def test_a_public_key_verifies_signatures_of_its_private_one(self):
        assert (await receive_standard(asymmetric(), secret=PUBLIC)).key == "msg_1"

    async def test_several_keys_and_several_signatures_count_while_keys_are_changed(self):
        both = {**standard(), "webhook-signature": f"v1,AAAA {standard(OTHER)['webhook-signature']} v9,zzz v1"}
        assert await receive_standard(both, secret=[SIGNING, OTHER])
        assert await receive_standard(both, secret=OTHER)
        assert await receive_standard(asymmetric(), secret=[SIGNING, PUBLIC])

    @pytest.mark.parametrize(
        "headers",
        [
            {},
            *({**standard(), missing: ""} for missing in standard()),
            standard(OTHER),
            standard(body=BODY + b" "),
            {**standard(), "webhook-id": "msg_2"},
            {**standard(), "webhook-timestamp": str(int(START.timestamp()) + 1)},
            {**standard(), "webhook-timestamp": "1e9"},
            {**standard(), "webhook-timestamp": "9" * 400},
            {**standard(), "webhook-signature": standard()["webhook-signature"][:-4]},
            {**standard(), "webhook-signature": standard()["webhook-signature"].replace("v1,", "v1a,")},
            {**standard(), "webhook-signature": "v1,é"},
            standard(at=START - timedelta(minutes=6)),
            standard(at=START + timedelta(minutes=6)),
            {**asymmetric(), "webhook-signature": asymmetric()["webhook-signature"].replace("v1a", "v1")},
            asymmetric(body=BODY + b" "),
            asymmetric(at=START - timedelta(minutes=6)),
        ],
    )
    async def test_missing_wrong_changed_and_old_ones_are_unauthorized(self, headers: dict[str, str]):
        with pytest.raises(Unauthorized):
            await receive_standard(headers, secret=[SIGNING, PUBLIC])

    @pytest.mark.parametrize("wrong", ["whsec_", "whsec_!", "whpk_" + "AAAA", "whsk_" + "A" * 44, ""])
    def test_what_is_no_key_is_refused_when_it_is_configured(self, wrong: str):
        with pytest.raises(ValidationError):
            IncomingQuery.model_validate({"scheme": "standard_webhooks", "secret": wrong})

    @pytest.mark.parametrize("off", [-400, -290, 0, 290, 400])
    @pytest.mark.parametrize("change", ["", "webhook-id", "webhook-signature", "body"])
    async def test_it_agrees_with_the_library_of_the_specification(self, off: int, change: str):
        now = datetime.now(UTC)
        headers = standard(at=now + timedelta(seconds=off))
        headers |= {change: headers[change][:-2]} if change in headers else {}
        body = BODY[:-1] + b" }" if change == "body" else BODY
        assert await _accepts(headers, body, now) == _library_accepts(headers, body)


async def _accepts(headers: dict[str, str], body: bytes, now: datetime) -> bool:
    try:
        await receive_standard(headers, body, at=now)
    except Unauthorized:
        return False
    return True


def _library_accepts(headers: dict[str, str], body: bytes) -> bool:
    try:
        Webhook(SIGNING).verify(body, headers)
    except (WebhookVerificationError, ValueError):
        return False
    return True


@pytest.mark.parametrize(
    "query",
    [
        {},
        {"id_field": "order.id"},
        {"algorithm": "sha512", "encoding": "base64", "prefix": "v1=", "header": "X-Sig"},
        {"timestamp_header": "X-Time", "signed": "v0:{timestamp}:{body}"},
        {"scheme": "api_key"},
        {"scheme": "api_key", "header": "Authorization"},
        {"scheme": "basic"},
        {"scheme": "standard_webhooks", "secret": SIGNING},
        {"scheme": "none", "allow_unsigned": True, "secret": []},
        {"format": "cloudevents"},
    ],
    ids=str,
)
async def test_the_sample_of_each_form_is_accepted(query: dict[str, Any]):
    given = IncomingQuery.model_validate({"secret": SECRET, **query})
    first = sample(given, START)
    keys = {await key_of(first, query), await key_of(sample(given, START + timedelta(seconds=1)), query)}
    assert len(keys) == 2
    assert SECRET not in str(first)


async def key_of(one: Sample, query: dict[str, Any]) -> str:
    headers = {name.lower(): basic_or_plain(value) for name, value in one.headers.items()}
    return (await receive(headers, one.body, **query)).key


def basic_or_plain(value: str) -> str:
    return value.replace("Basic $SECRET", basic(f"harken:{SECRET}")["authorization"]).replace("$SECRET", SECRET)


def test_a_public_key_signs_nothing():
    query = IncomingQuery.model_validate({"scheme": "standard_webhooks", "secret": PUBLIC})
    with pytest.raises(Refused, match="public key"):
        sample(query, START)


class TestSchema:
    QUERY: ClassVar[dict[str, Any]] = {"schema": {"properties": {"data": {"required": ["no"]}}}}

    async def test_what_does_not_fit_is_malformed_with_its_place(self):
        signature = {"x-signature-256": digest("sha256").hex()}
        with pytest.raises(Malformed, match=r"data\.no is missing"):
            await receive(signature, **self.QUERY)
        body = BODY.replace(b'"id"', b'"no"')
        assert await receive({"x-signature-256": digest("sha256", body).hex()}, body, **self.QUERY)

    async def test_the_proof_comes_first(self):
        with pytest.raises(Unauthorized):
            await receive({}, **self.QUERY)

    def test_a_schema_that_cannot_be_checked_is_refused(self):
        with pytest.raises(ValidationError, match="pattern"):
            IncomingQuery.model_validate({"secret": SECRET, "schema": {"pattern": "x"}})

    @pytest.mark.parametrize("more", [{}, {"format": "cloudevents"}, {"scheme": "basic"}])
    def test_a_query_is_the_same_after_it_was_stored(self, more: dict[str, Any]):
        query = IncomingQuery.model_validate({"secret": SECRET, **self.QUERY, **more})
        stored = query.model_dump(mode="json") | {"secret": SECRET}
        assert IncomingQuery.model_validate(stored) == query
