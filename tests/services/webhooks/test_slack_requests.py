"""Requests of Slack: its events, buttons, forms and commands."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar
from urllib.parse import urlencode

import pytest
from slack_sdk.signature import SignatureVerifier

from harken.errors import Malformed, Unauthorized
from harken.source import Handshake, Request
from harken.testing import START
from tests.services.webhooks.contract import OTHER, SECRET, TimedContract, source_of

FORM = {"content-type": "application/x-www-form-urlencoded"}


def form(**fields: str) -> bytes:
    return urlencode(fields).encode()


class TestSlack(TimedContract):
    kind = "slack"
    proof = "x-slack-signature"
    message: ClassVar[Mapping[str, Any]] = {
        "token": "old-proof",
        "type": "event_callback",
        "event_id": "Ev08MFMKH6",
        "event_time": 1772359200,
        "event": {"type": "message", "channel": "C1", "ts": "1772359200.000100", "text": "hello"},
    }

    def headers(self, body: bytes, secret: str = SECRET, at: datetime = START) -> dict[str, str]:
        stamp = str(int(at.timestamp()))
        # the library signs text
        signature = SignatureVerifier(secret).generate_signature(timestamp=stamp, body=body.decode("utf-8", "replace"))
        assert signature is not None
        return {self.proof: signature, "x-slack-request-timestamp": stamp}

    async def survives(self, body: bytes) -> None:
        try:
            await super().survives(body)
        except Unauthorized:
            # the library can sign no body that is not UTF-8
            assert b"\xff" in body

    async def test_it_names_what_happened_to_what_and_when(self):
        (event,) = await self.receive(self.headers(self.body))
        assert (event.type, event.subject, event.key) == ("slack.message", "C1/1772359200.000100", "Ev08MFMKH6")
        assert event.occurred_at == datetime(2026, 3, 1, 10, tzinfo=UTC)

    async def test_the_old_token_is_not_stored(self):
        (event,) = await self.receive(self.headers(self.body))
        assert b"old-proof" not in event.payload()

    async def test_a_retry_is_the_same_event(self):
        retry = {"x-slack-retry-num": "1", "x-slack-retry-reason": "http_timeout"}
        (event,) = await self.receive({**self.headers(self.body), **retry})
        assert event.key == "Ev08MFMKH6"

    async def test_the_challenge_of_a_new_address_is_answered_to_slack_alone(self):
        body = json.dumps({"type": "url_verification", "challenge": "3eZbrw", "token": "x"}).encode()
        with pytest.raises(Handshake) as caught:
            await self.receive(self.headers(body), body)
        assert caught.value.answer == {"challenge": "3eZbrw"}
        with pytest.raises(Unauthorized):
            await self.receive(self.headers(body, OTHER), body)

    async def test_a_button_is_an_event(self):
        payload = {"type": "block_actions", "trigger_id": "t-1", "channel": {"id": "C1"}, "message": {"ts": "17.1"}}
        body = form(payload=json.dumps({**payload, "token": "old-proof"}))
        (event,) = await self.receive({**self.headers(body), **FORM}, body)
        assert (event.type, event.subject, event.key) == ("slack.block_actions", "C1/17.1", "t-1")
        assert event.data == payload

    async def test_a_form_is_an_event_about_its_view(self):
        body = form(payload=json.dumps({"type": "view_submission", "trigger_id": "t-2", "view": {"id": "V1"}}))
        (event,) = await self.receive({**self.headers(body), **FORM}, body)
        assert (event.type, event.subject) == ("slack.view_submission", "V1")

    async def test_a_slash_command_is_an_event(self):
        body = form(command="/deploy", text="shop now", channel_id="C1", trigger_id="t-3", token="old-proof")
        (event,) = await self.receive({**self.headers(body), **FORM}, body)
        assert (event.type, event.subject, event.key) == ("slack.command", "C1//deploy", "t-3")
        assert event.data["text"] == "shop now"

    async def test_a_look_whether_tls_works_is_no_event(self):
        body = form(ssl_check="1", token="x")
        assert await self.receive({**self.headers(body), **FORM}, body) == []

    @pytest.mark.parametrize("body", [b"", form(payload="x"), form(payload="[1]"), b"%ff=%fe", form(other="x")])
    async def test_other_forms_are_malformed(self, body: bytes):
        with pytest.raises(Malformed):
            await self.receive({**self.headers(body), **FORM}, body)

    @pytest.mark.parametrize("off", [-400, -290, 0, 290, 400])
    @pytest.mark.parametrize("change", ["", "secret", "truncated", "tampered", "empty", "sha", "time"])
    async def test_the_library_of_slack_agrees(self, off: int, change: str):
        now = datetime.now(UTC)
        headers = self.headers(
            self.body, OTHER if change == "secret" else SECRET, datetime.fromtimestamp(now.timestamp() + off, UTC)
        )
        value = headers[self.proof]
        changed = {"truncated": value[:-2], "empty": "", "sha": value.removeprefix("v0=")}
        headers[self.proof] = changed.get(change, value)
        headers["x-slack-request-timestamp"] += "1" if change == "time" else ""
        body = self.body + b" " if change == "tampered" else self.body
        ours = True
        try:
            await source_of("slack").receive(Request(headers=headers, body=body, received_at=now))
        except Unauthorized:
            ours = False
        assert ours == SignatureVerifier(SECRET).is_valid_request(body, headers) == (change == "" and abs(off) < 300)

    def test_people_are_shown_no_answer(self):
        assert getattr(source_of("slack"), "empty_answer", False)
