"""Webhooks of Jira that start runs: those of an administrator, on Cloud and Data Center.

https://developer.atlassian.com/cloud/jira/platform/webhooks/
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from harken.errors import Malformed
from harken.event import Event
from harken.kit.values_from_payload import instant, text_of
from harken.kit.webhook_receiver import Sent, make_receiver, make_sample
from harken.kit.webhook_signatures import check_basic, check_hub_signature, hex_signature
from harken.source import Request

__all__ = ["receiver", "sample"]

_SIGNATURE = "x-hub-signature"
_WITH_ID = ("version", "sprint", "board", "project", "worklog", "issueLink")


def verify(request: Request, secret: str) -> None:
    """Data Center before version 10 signs nothing; the address can then have a user and the secret as password."""
    if _SIGNATURE not in request.headers and "authorization" in request.headers:
        check_basic(request, secret)
    else:
        check_hub_signature(request, _SIGNATURE, secret)


def translate(sent: Sent) -> list[Event]:
    name = text_of(sent.data, "webhookEvent")
    if not name:
        raise Malformed("there is no webhookEvent in it")
    # the same for every attempt to deliver it
    key = sent.header("x-atlassian-webhook-identifier") or sent.digest
    type = f"jira.{name.removeprefix('jira:')}"
    return [sent.event(type=type, key=key, subject=_subject(sent), at=instant(sent.data.get("timestamp")))]


def _subject(sent: Sent) -> str:
    if issue := text_of(sent.data, "issue.id"):
        return issue
    found = (
        (about, text_of(sent.data, f"{about}.id") or text_of(sent.data, f"{about}.accountId")) for about in _WITH_ID
    )
    return next((f"{about}/{id}" for about, id in found if id), "")


receiver = make_receiver(verify, translate)


def _sign(secret: str, body: bytes, now: datetime) -> Mapping[str, str]:
    return {"X-Hub-Signature": f"sha256={hex_signature(secret, body)}", "X-Atlassian-Webhook-Identifier": "$ID"}


sample = make_sample({"webhookEvent": "jira:issue_created", "issue": {"id": "1", "key": "SAMPLE-1"}}, _sign)
