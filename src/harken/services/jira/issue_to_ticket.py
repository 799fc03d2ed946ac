"""From an issue or comment as Jira shows it, in answers and in webhooks, to a ticket or comment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harken.kit.values_from_payload import instant, rfc3339, text_of
from harken.services.jira.label_history import actor_of, labels_of
from harken.services.jira.text import text_in
from harken.ticket import Comment, Ticket

__all__ = ["FIELDS", "comment_of", "ticket_of"]

FIELDS = ("summary", "description", "status", "labels", "project", "creator", "created", "updated")
"""What a ticket is made of."""


def ticket_of(issue: Mapping[str, Any], url: str) -> Ticket | None:
    """None if the issue has no id, key or fields."""
    id, key, fields = text_of(issue, "id"), text_of(issue, "key"), issue.get("fields")
    if not id or not key or not isinstance(fields, Mapping):
        return None
    author, updated = actor_of(fields.get("creator")), instant(fields.get("updated"))
    return Ticket(
        id=id,
        ref=key,
        number=key,
        title=text_of(fields, "summary") or "",
        url=url,
        status=text_of(fields, "status.name") or "",
        # the names of categories are translated, their keys are not
        closed=text_of(fields, "status.statusCategory.key") == "done",
        text=text_in(fields.get("description")),
        labels=labels_of(fields),
        author=author.login if author else "",
        created_at=instant(fields.get("created")),
        updated_at=updated,
        # in UTC, because Jira writes times in the time zone of the account's profile
        version=rfc3339(updated, "milliseconds") or "",
    )


def comment_of(comment: Mapping[str, Any], page: str) -> Comment | None:
    """None if the comment has no id. `page` is the web page of its issue."""
    id = text_of(comment, "id")
    if not id:
        return None
    return Comment(
        id=id,
        text=text_in(comment.get("body")),
        author=actor_of(comment.get("author")),
        created_at=instant(comment.get("created")),
        url=f"{page}?focusedCommentId={id}",
    )
