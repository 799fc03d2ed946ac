"""What every sender of webhooks is held to. Each provider subclasses it, with a message and how it is signed:

class TestStripe(ReceiverContract):
    kind, body = "stripe", b"..."

    def headers(self, body: bytes, secret: str, at: datetime) -> dict[str, str]: ...
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from harken.errors import Malformed, Unauthorized
from harken.event import Event
from harken.services import registry
from harken.source import Handshake, PushSource, Request, Sample
from harken.testing import START
from tests.services.notice_contract import FUZZ, RUBBISH, VALUES, paths, replaced

__all__ = ["OTHER", "SECRET", "ReceiverContract", "SignedContract", "TimedContract", "filled", "source_of"]

SECRET, OTHER = "it's a secret: größe", "another one"


def source_of(kind: str, **query: Any) -> PushSource:
    plugin = registry()[kind]
    assert plugin.webhook is not None
    assert plugin.webhook_query is not None
    nobody: Any = None
    return plugin.webhook(plugin.webhook_query.model_validate({"secret": SECRET, **query}), None, nobody)


class ReceiverContract:
    """`message` is what it sends, `proof` the header that proves it."""

    kind: ClassVar[str]
    message: ClassVar[Mapping[str, Any]]
    proof: ClassVar[str]
    query: ClassVar[Mapping[str, Any]] = {}

    def headers(self, body: bytes, secret: str = SECRET, at: datetime = START) -> dict[str, str]:
        raise NotImplementedError

    @property
    def body(self) -> bytes:
        return json.dumps(self.message).encode()

    async def receive(self, headers: Mapping[str, str], body: bytes | None = None, **query: Any) -> list[Event]:
        sent = self.body if body is None else body
        source = source_of(self.kind, **{**self.query, **query})
        return await source.receive(Request(headers=headers, body=sent, received_at=START))

    async def test_a_message_that_is_sent_again_is_the_same_event(self):
        first, again = await self.receive(self.headers(self.body)), await self.receive(self.headers(self.body))
        assert first
        assert [event.key for event in first] == [event.key for event in again]
        assert [event.subject for event in first] == [event.subject for event in again]
        assert all(event.type.startswith(f"{self.kind}.") for event in first)

    async def test_what_is_stored_is_json_that_says_what_the_event_says(self):
        for event in await self.receive(self.headers(self.body)):
            assert json.loads(event.payload()) == event.data

    async def test_a_missing_proof_is_unauthorized(self):
        headers = {name: value for name, value in self.headers(self.body).items() if name != self.proof}
        for without in ({}, headers, {**headers, self.proof: ""}):
            with pytest.raises(Unauthorized):
                await self.receive(without)

    async def test_a_wrong_truncated_or_padded_proof_is_unauthorized(self):
        right = self.headers(self.body)
        value = right[self.proof]
        for wrong in (value[:-1], value[:-8], value + "00", value[1:], "é" * 71, "=" * 50, ",".join(["x"] * 500)):
            with pytest.raises(Unauthorized):
                await self.receive({**right, self.proof: wrong})
        with pytest.raises(Unauthorized):
            await self.receive(self.headers(self.body, OTHER))

    async def test_both_secrets_count_while_one_replaces_the_other(self):
        for secret in (SECRET, OTHER):
            assert await self.receive(self.headers(self.body, secret), secret=[SECRET, OTHER])
        with pytest.raises(Unauthorized):
            await self.receive(self.headers(self.body, "older"), secret=[SECRET, OTHER])

    async def test_a_line_end_after_the_secret_does_not_count(self):
        assert await self.receive(self.headers(self.body), secret=SECRET + "\n")

    @pytest.mark.parametrize("wrong", ["", "  ", [], ["good", ""]])
    def test_an_empty_secret_is_refused(self, wrong: Any):
        with pytest.raises(ValidationError):
            source_of(self.kind, **{**self.query, "secret": wrong})

    async def test_no_error_holds_the_secret_or_the_proof(self):
        wrong = self.headers(self.body, OTHER)
        with pytest.raises(Unauthorized) as caught:
            await self.receive(wrong)
        assert SECRET not in str(caught.value)
        assert wrong[self.proof] not in str(caught.value)

    @pytest.mark.parametrize("body", RUBBISH.values(), ids=RUBBISH.keys())
    async def test_rubbish_is_malformed_or_an_event_and_never_a_crash(self, body: bytes):
        await self.survives(body)

    @FUZZ
    @given(data=st.data())
    async def test_a_message_of_any_shape_does_not_crash_it(self, data: st.DataObject):
        at = data.draw(st.sampled_from(paths(self.message)))
        changed = replaced(self.message, at, data.draw(VALUES))
        await self.survives(json.dumps(changed).encode("utf-8", "surrogatepass"))

    async def survives(self, body: bytes) -> None:
        try:
            events = await self.receive(self.headers(body), body)
        except (Malformed, Handshake):
            return
        for event in events:
            assert event.key
            assert event.subject
            assert len(event.key) < 1_000
            json.loads(event.payload())

    async def test_a_body_that_is_too_large_is_malformed(self):
        with pytest.raises(Malformed, match="larger"):
            await self.receive(self.headers(self.body), max_bytes=10)

    async def test_what_does_not_fit_its_schema_is_malformed(self):
        with pytest.raises(Malformed, match="wanted is missing"):
            await self.receive(self.headers(self.body), schema={"required": ["wanted"]})

    async def test_its_sample_is_accepted_and_is_another_event_each_time(self):
        plugin = registry()[self.kind]
        assert plugin.webhook_sample is not None
        assert plugin.webhook_query is not None
        query = plugin.webhook_query.model_validate({"secret": SECRET, **self.query})
        first, second = (plugin.webhook_sample(query, START + timedelta(seconds=off)) for off in (0, 1))
        events = [(await self.receive(filled(sample), sample.body))[0] for sample in (first, second)]
        assert events[0].key != events[1].key
        assert SECRET not in str(first)


def filled(sample: Sample) -> dict[str, str]:
    """The headers of a sample as they arrive, with the secret in its place."""
    basic = "Basic " + base64.b64encode(f"harken:{SECRET}".encode()).decode()
    headers = {name: value.replace("Basic $SECRET", basic) for name, value in sample.headers.items()}
    arrives = SECRET.encode().decode("latin-1")
    return {name.lower(): value.replace("$SECRET", arrives) for name, value in headers.items()}


class SignedContract(ReceiverContract):
    """Of those whose proof is a signature of the body."""

    async def test_a_message_that_was_changed_is_unauthorized(self):
        with pytest.raises(Unauthorized):
            await self.receive(self.headers(self.body), self.body + b" ")


class TimedContract(SignedContract):
    """Of those who sign the time as well."""

    @pytest.mark.parametrize("off", [-301, 301, -86_400])
    async def test_an_old_message_is_unauthorized(self, off: int):
        with pytest.raises(Unauthorized):
            await self.receive(self.headers(self.body, at=START + timedelta(seconds=off)))

    async def test_a_message_within_the_tolerance_is_accepted(self):
        assert await self.receive(self.headers(self.body, at=START - timedelta(seconds=299)))
