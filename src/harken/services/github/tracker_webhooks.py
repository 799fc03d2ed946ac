"""Webhooks about issues and their comments, verified and translated.

GitHub never sends a webhook again by itself, and whoever opens an issue with labels causes `opened` and then `labeled`.
https://docs.github.com/en/webhooks/webhook-events-and-payloads#issues
https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harken.clock import Clock
from harken.kit.values_from_payload import instant, text_of
from harken.kit.webhook_body import object_in
from harken.kit.webhook_signatures import check_hub_signature
from harken.services.github.api import Account, repo_name
from harken.services.github.events_from_issue_history import is_pull
from harken.services.github.issue_to_ticket import comment_of, label_names, ticket_of
from harken.source import Request
from harken.ticket import Comment, Notice

__all__ = ["GitHubNotices"]

_EVENTS = ("issues", "issue_comment")
# what the webhook shows is not in this repository any more
_GONE = ("deleted", "transferred")
_LARGEST = 10**18


class GitHubNotices:
    """The webhooks of a repository, an organization or an app; the signature is X-Hub-Signature-256."""

    def __init__(self, secret: str, account: Account | None, clock: Clock) -> None:
        self._secret = secret

    def read(self, request: Request) -> Sequence[Notice]:
        check_hub_signature(request, "x-hub-signature-256", self._secret)
        event = request.headers.get("x-github-event", "")
        told = object_in(request, form_field="payload") if event in _EVENTS else None
        return () if told is None else _notices(event, told)


def _notices(event: str, told: Mapping[str, Any]) -> Sequence[Notice]:
    issue: Any = told.get("issue")
    repo, action = _repo(told), text_of(told, "action") or ""
    if not _is_issue(issue) or not repo:
        return ()
    ticket, gone = ticket_of(issue, repo), event == "issues" and action in _GONE
    commented = (event, action) == ("issue_comment", "created")
    comment = _comment(told) if commented else None
    return [
        Notice(
            location=repo,
            id=ticket.id,
            ticket=ticket if _is_whole(issue) and not gone else None,
            commented=commented,
            comment=comment,
            # GitHub does not say when it sent a webhook, and a deleted issue is not changed by that
            sent_at=comment.created_at if comment else None if gone else ticket.updated_at,
        )
    ]


def _is_whole(issue: Mapping[str, Any]) -> bool:
    """Whether it can be trusted that what is not there is not there: a ticket without its labels would be withdrawn."""
    labels = issue.get("labels")
    named = isinstance(labels, list) and len(label_names(labels)) == len(labels)
    return named and issue.get("state") in ("open", "closed") and instant(issue.get("updated_at")) is not None


def _is_issue(issue: Any) -> bool:
    if not isinstance(issue, dict) or is_pull(issue):
        return False
    return all(type(issue.get(name)) is int and 0 < issue[name] < _LARGEST for name in ("number", "id"))


def _repo(told: Mapping[str, Any]) -> str:
    try:
        return repo_name(text_of(told, "repository.full_name") or "")
    except ValueError:
        return ""


def _comment(told: Mapping[str, Any]) -> Comment | None:
    comment = told.get("comment")
    return comment_of(comment) if isinstance(comment, dict) and text_of(comment, "id") else None
