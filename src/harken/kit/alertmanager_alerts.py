"""Groups of alerts as Alertmanager and Grafana send them: one event for each alert that began or ended.

A group is sent again every few hours, and whenever one of its alerts changes: an alert with the same beginning and
status is the same occurrence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harken.errors import Malformed
from harken.event import Event
from harken.kit.digest import digest_of_json
from harken.kit.values_from_payload import instant, text_of
from harken.kit.webhook_receiver import Sent, short_name

__all__ = ["SAMPLE_GROUP", "alert_events"]

MAX_ALERTS = 10_000
# what every alert is told of its group; labels and annotations in common are in each alert already
_OF_GROUP = ("receiver", "externalURL", "groupKey")
_LONGEST = 2_000

SAMPLE_GROUP = {
    "receiver": "harken",
    "alerts": [{"status": "firing", "labels": {"alertname": "Sample"}, "fingerprint": "$ID"}],
}


def alert_events(sent: Sent, kind: str) -> list[Event]:
    """The alerts of a group; Malformed if it is none."""
    alerts = sent.data.get("alerts")
    if not isinstance(alerts, list):
        raise Malformed("there is no list of alerts in it")
    if len(alerts) > MAX_ALERTS:
        raise Malformed(f"there are more than {MAX_ALERTS:,} alerts in one group")
    group = {name: text[:_LONGEST] for name in _OF_GROUP if (text := text_of(sent.data, name))}
    return [_event(alert, group, kind) for alert in alerts]


def _event(alert: Any, group: Mapping[str, str], kind: str) -> Event:
    status = text_of(alert, "status")
    if not isinstance(alert, dict) or status is None:
        raise Malformed("there is an alert without a status in it")
    # old versions send no fingerprint, and an alert is its labels
    fingerprint = text_of(alert, "fingerprint") or digest_of_json(alert.get("labels"))
    began, ended = text_of(alert, "startsAt") or "", text_of(alert, "endsAt") or ""
    key = short_name(f"{fingerprint}@{status}@{began}")
    return Event(
        subject=short_name(fingerprint),
        state=key,
        type=short_name(f"{kind}.{status}"),
        data={**alert, **group},
        key=key,
        occurred_at=instant(ended if status == "resolved" else began),
    )
