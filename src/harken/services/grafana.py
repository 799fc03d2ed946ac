"""Grafana Alerting: the webhooks of a contact point, one event for each alert.

https://grafana.com/docs/grafana/latest/alerting/configure-notifications/manage-contact-points/integrations/webhook-notifier/
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Literal

from pydantic import Field, model_validator

from harken.kit.alertmanager_alerts import SAMPLE_GROUP, alert_events
from harken.kit.webhook_receiver import Receiver, ReceiverQuery, Verify, make_sample
from harken.kit.webhook_signatures import (
    BASIC_SAMPLE,
    BEARER_SAMPLE,
    TOLERANCE,
    check_age,
    check_basic,
    check_bearer,
    check_hex_signature,
    hex_signature,
)
from harken.source import Host, Plugin, Request, Sample

__all__ = ["GrafanaQuery", "plugin"]


class GrafanaQuery(ReceiverQuery):
    """The secret of the contact point's HMAC signature, or its token or password."""

    scheme: Literal["hmac", "bearer", "basic"] = Field("hmac", description="how the contact point proves itself")
    header: str = Field("X-Grafana-Alerting-Signature", min_length=1, description="header of the signature (hmac)")
    timestamp_header: str = Field("", description="header of the signed time (hmac), if the contact point has one")
    tolerance: float = Field(TOLERANCE, gt=0, description="seconds that the signed time may be off")

    @model_validator(mode="after")
    def _signs_the_time(self) -> GrafanaQuery:
        if self.timestamp_header and self.scheme != "hmac":
            raise ValueError("timestamp_header works only with scheme: hmac, which signs it")
        return self


def _verify_signature(query: GrafanaQuery) -> Verify:
    header, stamped = query.header.lower(), query.timestamp_header.lower()

    def verify(request: Request, secret: str) -> None:
        signed = request.body
        if stamped:
            stamp = request.headers.get(stamped, "")
            check_age(stamp, stamped, request.received_at, query.tolerance)
            signed = stamp.encode() + b":" + signed
        check_hex_signature(request, header, secret, signed=signed)

    return verify


def _receiver(query: GrafanaQuery, account: object, host: Host) -> Receiver:
    schemes: dict[str, Verify] = {"hmac": _verify_signature(query), "bearer": check_bearer, "basic": check_basic}
    return Receiver(query, schemes[query.scheme], lambda sent: alert_events(sent, "grafana"))


def sample(query: GrafanaQuery, now: datetime) -> Sample:
    def sign(secret: str, body: bytes, at: datetime) -> Mapping[str, str]:
        if query.scheme != "hmac":
            return BEARER_SAMPLE if query.scheme == "bearer" else BASIC_SAMPLE
        stamp = str(int(at.timestamp()))
        timed = {query.timestamp_header: stamp} if query.timestamp_header else {}
        signed = f"{stamp}:".encode() + body if timed else body
        return {**timed, query.header: hex_signature(secret, signed)}

    return make_sample(SAMPLE_GROUP, sign)(query, now)


plugin = Plugin(
    kind="grafana",
    summary="Alerts of Grafana",
    docs="reference/services/grafana.md",
    webhook_query=GrafanaQuery,
    webhook=_receiver,
    webhook_sample=sample,
    identity="change",
    first="deliver",
)
