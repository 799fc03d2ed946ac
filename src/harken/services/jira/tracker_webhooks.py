"""Webhooks about issues and their comments, verified and translated.

Cloud and Data Center sign with X-Hub-Signature where a webhook has a secret; Data Center may use HTTP Basic instead.
Both show the description as wiki text, which Cloud's API shows as a document.
https://developer.atlassian.com/cloud/jira/platform/webhooks/#secure-admin-webhooks
https://confluence.atlassian.com/adminjiraserver/managing-webhooks-938846912.html
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from harken.clock import Clock
from harken.kit.values_from_payload import instant, text_of
from harken.kit.webhook_body import object_in
from harken.kit.webhook_signatures import check_basic, check_hub_signature
from harken.services.jira.api import Account
from harken.services.jira.issue_to_ticket import FIELDS, comment_of, ticket_of
from harken.source import Request
from harken.ticket import Comment, Notice

__all__ = ["JiraNotices"]

_SIGNATURE = "x-hub-signature"
_ISSUE_EVENTS, _COMMENT_EVENTS = "jira:issue_", "comment_"
_DELETED = "jira:issue_deleted"
_ID = re.compile(r"[0-9]{1,18}", re.ASCII)
_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,254}-[0-9]{1,18}", re.ASCII)
_ISSUE_IN_ADDRESS = re.compile(r"/issue/([0-9]{1,18})/comment/", re.ASCII)


class JiraNotices:
    """The webhooks of an administrator, and those of Data Center."""

    def __init__(self, secret: str, account: Account | None, clock: Clock) -> None:
        self._secret = secret
        self._web_url = account.base_url if account else ""

    def read(self, request: Request) -> Sequence[Notice]:
        if _SIGNATURE not in request.headers and "authorization" in request.headers:
            check_basic(request, self._secret)
        else:
            check_hub_signature(request, _SIGNATURE, self._secret)
        told = object_in(request)
        event = text_of(told, "webhookEvent") or ""
        if told is None or not event.startswith((_ISSUE_EVENTS, _COMMENT_EVENTS)):
            return ()
        issue = told.get("issue")
        if isinstance(issue, dict):
            return self._of_issue(event, told, issue)
        return _of_comment(event, told)

    def _of_issue(self, event: str, told: Mapping[str, Any], issue: Mapping[str, Any]) -> Sequence[Notice]:
        id, key = text_of(issue, "id") or "", text_of(issue, "key") or ""
        if not _ID.fullmatch(id) or not _KEY.fullmatch(key):
            return ()
        page = f"{self._site(issue)}/browse/{key}"
        ticket = ticket_of(issue, page) if _is_whole(issue) and event != _DELETED else None
        location = text_of(issue, "fields.project.key") or key.rpartition("-")[0]
        commented = _is_commented(event, told)
        comment = _comment(told, page) if commented else None
        return [
            Notice(
                location=location, id=id, ticket=ticket, commented=commented, comment=comment, sent_at=_sent_at(told)
            )
        ]

    def _site(self, issue: Mapping[str, Any]) -> str:
        """The address of this Jira as it calls itself, which may be another than that of the API."""
        site, rest, _ = (text_of(issue, "self") or "").partition("/rest/api/")
        return site if rest and site.startswith(("https://", "http://")) else self._web_url


def _of_comment(event: str, told: Mapping[str, Any]) -> Sequence[Notice]:
    """Data Center tells about a comment without its issue, whose id is only in an address, and its project nowhere."""
    found = _ISSUE_IN_ADDRESS.search(text_of(told, "comment.self") or "")
    if found is None:
        return ()
    return [Notice(location="", id=found[1], commented=_is_commented(event, told), sent_at=_sent_at(told))]


def _is_whole(issue: Mapping[str, Any]) -> bool:
    """Whether all is there that a ticket is made of: webhooks about comments show a part."""
    fields = issue.get("fields")
    if not isinstance(fields, dict) or not all(name in fields for name in FIELDS):
        return False
    labels, status = fields["labels"], fields["status"]
    named = isinstance(labels, list) and all(isinstance(label, str) for label in labels)
    return named and text_of(status, "statusCategory.key") is not None and instant(fields["updated"]) is not None


def _is_commented(event: str, told: Mapping[str, Any]) -> bool:
    """Whether it is about a new comment. Data Center tells about it as a change of the issue too."""
    return event == "comment_created" or text_of(told, "issue_event_type_name") == "issue_commented"


def _comment(told: Mapping[str, Any], page: str) -> Comment | None:
    comment = told.get("comment")
    return comment_of(comment, page) if isinstance(comment, dict) else None


def _sent_at(told: Mapping[str, Any]) -> datetime | None:
    return instant(told.get("timestamp"))
