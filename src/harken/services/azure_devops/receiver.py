"""Service hooks of Azure DevOps that start runs: work items, pull requests, builds, releases.

https://learn.microsoft.com/en-us/azure/devops/service-hooks/events
"""

from __future__ import annotations

from harken.errors import Malformed
from harken.event import Event
from harken.kit.values_from_payload import instant, text_of
from harken.kit.webhook_receiver import Sent, make_receiver, make_sample
from harken.kit.webhook_signatures import BASIC_SAMPLE, check_basic
from harken.source import Request

__all__ = ["receiver", "sample"]

# where a resource has its id: of an update, `id` is the number of the update
_IDS = (
    "workItemId",
    "pullRequest.pullRequestId",
    "pullRequestId",
    "pushId",
    "release.id",
    "environment.releaseId",
    "id",
)


def verify(request: Request, secret: str) -> None:
    check_basic(request, secret)


def translate(sent: Sent) -> list[Event]:
    kind, key = text_of(sent.data, "eventType"), text_of(sent.data, "id")
    if not kind or not key:
        raise Malformed("there is no eventType or no id in it")
    ids = (text_of(sent.data, f"resource.{name}") for name in _IDS)
    id = next((id for id in ids if id), None)
    subject = f"{kind.rpartition('.')[0] or kind}/{id}" if id else ""
    at = instant(text_of(sent.data, "createdDate"))
    return [sent.event(type=f"azure_devops.{kind}", key=key, subject=subject, at=at)]


receiver = make_receiver(verify, translate)


sample = make_sample(
    {"id": "$ID", "eventType": "workitem.created", "resource": {"id": 1}}, lambda secret, body, now: BASIC_SAMPLE
)
