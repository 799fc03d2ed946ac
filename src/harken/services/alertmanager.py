"""Prometheus Alertmanager: its webhooks, one event for each alert.

https://prometheus.io/docs/alerting/latest/configuration/#webhook_config
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from harken.kit.alertmanager_alerts import SAMPLE_GROUP, alert_events
from harken.kit.webhook_receiver import Receiver, ReceiverQuery, make_sample
from harken.kit.webhook_signatures import BASIC_SAMPLE, BEARER_SAMPLE, check_basic, check_bearer
from harken.source import Host, Plugin, Sample

__all__ = ["AlertmanagerQuery", "plugin"]

_SCHEMES = {"bearer": check_bearer, "basic": check_basic}


class AlertmanagerQuery(ReceiverQuery):
    """Alertmanager signs nothing: it sends a token or a password, as its http_config says."""

    scheme: Literal["bearer", "basic"] = Field("bearer", description="`authorization` or `basic_auth` of http_config")


def _receiver(query: AlertmanagerQuery, account: object, host: Host) -> Receiver:
    return Receiver(query, _SCHEMES[query.scheme], lambda sent: alert_events(sent, "alertmanager"))


def sample(query: AlertmanagerQuery, now: datetime) -> Sample:
    proof = BEARER_SAMPLE if query.scheme == "bearer" else BASIC_SAMPLE
    return make_sample(SAMPLE_GROUP, lambda secret, body, at: proof)(query, now)


plugin = Plugin(
    kind="alertmanager",
    summary="Alerts of Prometheus Alertmanager",
    docs="reference/services/alertmanager.md",
    webhook_query=AlertmanagerQuery,
    webhook=_receiver,
    webhook_sample=sample,
    identity="change",
    first="deliver",
)
