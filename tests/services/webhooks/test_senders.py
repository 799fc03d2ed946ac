"""Webhooks of Stripe, PagerDuty, Alertmanager, Grafana and Sentry."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar

import pytest
from pydantic import ValidationError
from stripe import SignatureVerificationError, WebhookSignature

from harken.errors import Malformed, Unauthorized
from harken.match.new_feed_items import recognise
from harken.source import Request
from harken.testing import START
from tests.services.webhooks.contract import OTHER, SECRET, ReceiverContract, SignedContract, TimedContract, source_of

AT = datetime(2026, 3, 1, 10, tzinfo=UTC)


def digest(body: bytes, secret: str = SECRET) -> str:
    return hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


class TestStripe(TimedContract):
    kind = "stripe"
    proof = "stripe-signature"
    message: ClassVar[Mapping[str, Any]] = {
        "id": "evt_1",
        "type": "invoice.paid",
        "created": 1772359200,
        "data": {"object": {"id": "in_7"}},
    }

    def headers(self, body: bytes, secret: str = SECRET, at: datetime = START) -> dict[str, str]:
        stamp = int(at.timestamp())
        return {self.proof: f"t={stamp},v0=00,v1={digest(b'%d.' % stamp + body, secret)}"}

    async def test_it_names_what_happened_to_what_and_when(self):
        (event,) = await self.receive(self.headers(self.body))
        assert (event.type, event.subject, event.key) == ("stripe.invoice.paid", "in_7", "evt_1")
        assert event.occurred_at == AT

    @pytest.mark.parametrize("off", [-400, -290, 0, 200])
    @pytest.mark.parametrize(
        "change", ["", "secret", "truncated", "tampered", "empty", "no time", "v0 only", "two signatures", "rubbish"]
    )
    async def test_the_library_of_stripe_agrees(self, off: int, change: str):
        now = datetime.now(UTC)
        stamp = int(now.timestamp()) + off
        secret = OTHER if change == "secret" else SECRET
        header = WebhookSignature.generate_signature_header(self.body.decode(), secret, stamp)
        changed = {
            "truncated": header[:-3],
            "empty": "",
            "no time": header.partition(",")[2],
            "v0 only": header.replace("v1=", "v0="),
            "two signatures": header.replace("v1=", f"v1={'0' * 64},v1="),
            "rubbish": "t=x,v1=y",
        }
        header = changed.get(change, header)
        body = self.body + b" " if change == "tampered" else self.body
        theirs = ours = True
        try:
            WebhookSignature.verify_header(body, header, SECRET, 300)
        except SignatureVerificationError:
            theirs = False
        try:
            await source_of("stripe").receive(Request(headers={self.proof: header}, body=body, received_at=now))
        except Unauthorized:
            ours = False
        assert ours == theirs == (change in ("", "two signatures") and off > -300)

    async def test_the_tolerance_can_be_set(self):
        old = self.headers(self.body, at=START.replace(hour=START.hour - 1))
        assert await self.receive(old, tolerance=4000)


class TestPagerDuty(SignedContract):
    kind = "pagerduty"
    proof = "x-pagerduty-signature"
    message: ClassVar[Mapping[str, Any]] = {
        "event": {
            "id": "01DEN4HPBQAAAG05V5QQYBRZMF",
            "event_type": "incident.triggered",
            "occurred_at": "2026-03-01T10:00:00Z",
            "data": {"id": "PGR0VU2", "type": "incident"},
        }
    }

    def headers(self, body: bytes, secret: str = SECRET, at: datetime = START) -> dict[str, str]:
        return {self.proof: f"v1={digest(body, secret)}"}

    async def test_it_names_what_happened_to_what_and_when(self):
        (event,) = await self.receive(self.headers(self.body))
        assert (event.type, event.subject) == ("pagerduty.incident.triggered", "PGR0VU2")
        assert (event.key, event.occurred_at) == ("01DEN4HPBQAAAG05V5QQYBRZMF", AT)

    async def test_one_of_several_signatures_is_enough(self):
        assert await self.receive({self.proof: f"v1={digest(self.body, OTHER)}, v1={digest(self.body)}"})
        with pytest.raises(Unauthorized):
            await self.receive({self.proof: f"v2={digest(self.body)}"})

    async def test_a_ping_is_no_event(self):
        body = json.dumps({"event": {"id": "1", "event_type": "pagey.ping"}}).encode()
        assert await self.receive(self.headers(body), body) == []


def alert(status: str = "firing", began: str = "2026-03-01T10:00:00Z", **more: Any) -> dict[str, Any]:
    ended = "2026-03-01T10:00:00Z" if status == "resolved" else "0001-01-01T00:00:00Z"
    labels = {"alertname": "Disk", "host": "a"}
    return {"status": status, "labels": labels, "startsAt": began, "endsAt": ended, "fingerprint": "f1", **more}


GROUP = {"version": "4", "receiver": "harken", "groupKey": "{}", "externalURL": "http://am", "status": "firing"}


class AlertContract(ReceiverContract):
    message: ClassVar[Mapping[str, Any]] = {**GROUP, "alerts": [alert(), alert("resolved", fingerprint="f2")]}

    async def alerts(self, *alerts: Any) -> list[str]:
        body = json.dumps({**GROUP, "alerts": alerts}).encode()
        events = await self.receive(self.headers(body), body)
        return [sighting.event.key for sighting in recognise(events, {}, "change")]

    async def test_each_alert_is_an_event_with_what_is_known_of_its_group(self):
        firing, resolved = await self.receive(self.headers(self.body))
        assert (firing.type, firing.subject, firing.occurred_at) == (f"{self.kind}.firing", "f1", AT)
        assert (resolved.type, resolved.subject, resolved.occurred_at) == (f"{self.kind}.resolved", "f2", AT)
        assert (firing.data["receiver"], firing.data["labels"]["host"]) == ("harken", "a")

    async def test_a_group_that_is_sent_again_has_only_the_alerts_that_changed(self):
        first = await self.alerts(alert())
        again = await self.alerts(alert(), alert("resolved"))
        later = await self.alerts(alert(began="2026-03-01T12:00:00Z"))
        assert first == again[:1]
        assert len({*first, *again, *later}) == 3

    async def test_alerts_without_a_fingerprint_are_told_apart_by_their_labels(self):
        one, other = alert(fingerprint=""), alert(fingerprint="", labels={"alertname": "Disk", "host": "b"})
        assert len(await self.alerts(one, other, one)) == 2

    @pytest.mark.parametrize(
        "wrong", [{}, {"alerts": {}}, {"alerts": [1]}, {"alerts": [{}]}, {"alerts": [{}] * 10_001}]
    )
    async def test_what_is_no_group_is_malformed(self, wrong: Any):
        body = json.dumps(wrong).encode()
        with pytest.raises(Malformed):
            await self.receive(self.headers(body), body)


class TestAlertmanager(AlertContract):
    kind = "alertmanager"
    proof = "authorization"

    def headers(self, body: bytes, secret: str = SECRET, at: datetime = START) -> dict[str, str]:
        return {self.proof: "Bearer " + secret.encode().decode("latin-1")}


class TestGrafana(AlertContract, SignedContract):
    kind = "grafana"
    proof = "x-grafana-alerting-signature"

    def headers(self, body: bytes, secret: str = SECRET, at: datetime = START) -> dict[str, str]:
        return {self.proof: digest(body, secret)}


class TestGrafanaWithTime(AlertContract, TimedContract):
    kind = "grafana"
    proof = "x-grafana-alerting-signature"
    query: ClassVar[Mapping[str, Any]] = {"timestamp_header": "X-Grafana-Alerting-Timestamp"}

    def headers(self, body: bytes, secret: str = SECRET, at: datetime = START) -> dict[str, str]:
        stamp = str(int(at.timestamp()))
        signature = digest(f"{stamp}:".encode() + body, secret)
        return {self.proof: signature, "x-grafana-alerting-timestamp": stamp}

    def test_a_time_that_nothing_signs_is_refused(self):
        with pytest.raises(ValidationError):
            source_of("grafana", scheme="bearer", timestamp_header="X-T")


class TestSentry(SignedContract):
    kind = "sentry"
    proof = "sentry-hook-signature"
    message: ClassVar[Mapping[str, Any]] = {"action": "created", "data": {"issue": {"id": "1170820242"}}}

    def headers(self, body: bytes, secret: str = SECRET, at: datetime = START) -> dict[str, str]:
        told = {"sentry-hook-resource": "issue", "request-id": "r-1", "sentry-hook-timestamp": "1772359200"}
        return {**told, self.proof: digest(body, secret)}

    async def test_it_names_what_happened_to_what_and_when(self):
        (event,) = await self.receive(self.headers(self.body))
        assert (event.type, event.subject, event.key) == ("sentry.issue.created", "1170820242", "r-1")
        assert event.occurred_at == AT
