"""Webhooks about issues and the comments on them, verified and translated.

A webhook names the author of an issue only by number, and cuts its times to seconds, so no notice shows the ticket
whole. Four failed deliveries in a row switch a webhook off for a time, forty for good.
https://docs.gitlab.com/user/project/integrations/webhook_events/#work-item-events
https://docs.gitlab.com/user/project/integrations/webhooks/#validate-payloads-by-using-a-signing-token
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from harken.clock import Clock
from harken.kit.standard_webhooks import SIGNING_TOKEN, check_standard_webhook
from harken.kit.values_from_payload import instant, text_of
from harken.kit.webhook_body import object_in
from harken.kit.webhook_signatures import check_token
from harken.services.gitlab.api import Account, check_project
from harken.services.gitlab.tracker import actor_of
from harken.source import Request
from harken.ticket import Comment, Notice

__all__ = ["GitLabNotices"]

# a task or an incident is a work item too
_ISSUES = ("issue", "work_item")
_LARGEST = 10**18


class GitLabNotices:
    """The webhooks of a project or group. A secret that begins with whsec_ is a signing token, any other a token.

    To a signing token the plain X-Gitlab-Token is no proof, even if it says the same.
    """

    def __init__(self, secret: str, account: Account | None, clock: Clock) -> None:
        self._secret = secret
        self._clock = clock

    def read(self, request: Request) -> Sequence[Notice]:
        if self._secret.startswith(SIGNING_TOKEN):
            check_standard_webhook(request, self._secret, self._clock.now())
        else:
            check_token(request, "x-gitlab-token", self._secret)
        told = object_in(request)
        notice = None if told is None else _notice(told)
        return () if notice is None else [notice]


def _notice(told: Mapping[str, Any]) -> Notice | None:
    kind, about = text_of(told, "object_kind"), told.get("object_attributes")
    if not isinstance(about, dict):
        return None
    if kind in _ISSUES:
        # the button "Test" sends an issue to which nothing happened
        notice = _of_issue(told, about) if text_of(about, "action") else None
        return notice and replace(notice, sent_at=_time(about.get("updated_at")))
    if kind == "note" and text_of(about, "noteable_type") in ("Issue", "WorkItem"):
        comment = _comment(about, told.get("user"))
        notice = _of_issue(told, told.get("issue") or told.get("work_item"))
        at = comment.created_at if comment else _time(about.get("updated_at"))
        return notice and replace(notice, commented=comment is not None, comment=comment, sent_at=at)
    return None


def _of_issue(told: Mapping[str, Any], issue: Any) -> Notice | None:
    project, number = (issue.get(name) if isinstance(issue, dict) else None for name in ("project_id", "iid"))
    location = _project(told)
    if not location or not all(type(one) is int and 0 < one < _LARGEST for one in (project, number)):
        return None
    return Notice(location=location, aliases=(str(project),), id=f"{project}#{number}")


def _project(told: Mapping[str, Any]) -> str:
    try:
        return check_project(text_of(told, "project.path_with_namespace") or "")
    except ValueError:
        return ""


def _comment(note: Mapping[str, Any], user: Any) -> Comment | None:
    """The comment, if it is a new one of a person; servers before 16.11 do not tell edited ones apart."""
    id = text_of(note, "id")
    if id is None or note.get("system") is True or (text_of(note, "action") or "create") != "create":
        return None
    return Comment(
        id=id,
        text=text_of(note, "note") or "",
        author=actor_of(user) if isinstance(user, dict) else None,
        created_at=_time(note.get("created_at")),
        url=text_of(note, "url") or "",
    )


def _time(value: Any) -> datetime | None:
    """Old servers and comments have `2015-05-17 17:06:40 UTC`."""
    return instant(value.replace(" UTC", "Z")) if isinstance(value, str) else None
