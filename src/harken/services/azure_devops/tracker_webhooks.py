"""Service hooks about work items, verified and translated.

What they send differs between documentation and life and may be minimal, and only a read tells whether a state means
closed: so no notice shows the ticket whole. Any failure but 408, 502, 503 and 504 puts a subscription on probation.
https://learn.microsoft.com/en-us/azure/devops/service-hooks/events#work-item-updated
https://learn.microsoft.com/en-us/azure/devops/service-hooks/services/webhooks
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from harken.clock import Clock
from harken.kit.values_from_payload import instant, text_of, whole_number
from harken.kit.webhook_body import object_in
from harken.kit.webhook_signatures import check_basic
from harken.services.azure_devops.api import Account, check_name
from harken.services.azure_devops.events_from_work_item_history import new_value
from harken.services.azure_devops.text import plain_text
from harken.services.azure_devops.tracker import LARGEST_NUMBER, actor_of
from harken.source import Request
from harken.ticket import Comment, Notice

__all__ = ["WorkItemNotices"]

_EVENT = "workitem."
_IN_ADDRESS = re.compile(r"/workitems/(\d{1,10})(?:/|$)", re.IGNORECASE | re.ASCII)


class WorkItemNotices:
    """Service hooks of a project: the password of HTTP Basic is the secret."""

    def __init__(self, secret: str, account: Account | None, clock: Clock) -> None:
        self._secret = secret

    def read(self, request: Request) -> Sequence[Notice]:
        check_basic(request, self._secret)
        told = object_in(request)
        kind = (text_of(told, "eventType") or "").casefold()
        resource = told.get("resource") if told else None
        if told is None or not kind.startswith(_EVENT) or not isinstance(resource, dict):
            return ()
        number = _number(resource, kind)
        if number is None:
            return ()
        commented = kind == "workitem.commented"
        return [
            Notice(
                location=_project(resource),
                id=str(number),
                commented=commented,
                comment=_comment(resource) if commented else None,
                sent_at=instant(told.get("createdDate")),
            )
        ]


def _number(resource: Mapping[str, Any], kind: str) -> int | None:
    """The number of the work item. The `id` of a change counts the changes, and its `workItemId` may be 0."""
    address = _IN_ADDRESS.search(text_of(resource, "url") or "")
    told = [_revision(resource).get("id"), resource.get("workItemId"), int(address[1]) if address else None]
    if kind != "workitem.updated" and "workItemId" not in resource:
        told.append(resource.get("id"))
    numbers = (whole_number(one) for one in told)
    return next((number for number in numbers if number is not None and 0 < number <= LARGEST_NUMBER), None)


def _project(resource: Mapping[str, Any]) -> str:
    """The project; empty where the hook names it only by an id."""
    for fields in (_revision(resource).get("fields"), resource.get("fields")):
        name = fields.get("System.TeamProject") if isinstance(fields, dict) else None
        try:
            return check_name(name if isinstance(name, str) else "")
        except ValueError:
            continue
    return ""


def _revision(resource: Mapping[str, Any]) -> Mapping[str, Any]:
    revision = resource.get("revision")
    return revision if isinstance(revision, dict) else {}


def _comment(resource: Mapping[str, Any]) -> Comment | None:
    """The comment; None if the hook does not say which it is or whose, as documented ones do not."""
    reference, fields = resource.get("commentVersionRef"), resource.get("fields")
    fields = fields if isinstance(fields, dict) else {}
    id, author = text_of(reference, "commentId"), actor_of(resource.get("revisedBy"))
    text = new_value(fields, "System.History") or fields.get("System.History")
    if id is None or author is None or not isinstance(text, str):
        return None
    at = instant(new_value(fields, "System.ChangedDate"))
    return Comment(id=id, text=plain_text(text), author=author, created_at=at)
