"""From what GitHub answers about an issue to a ticket, its comments and who put which label on.

A ticket's id is `number@id`: both never change while the issue is in its repository, whatever the repository is called,
and together they say what to ask for and whether the answer is still the same issue. An issue that is transferred is
made anew by GitHub, with another number and id.
https://docs.github.com/en/rest/using-the-rest-api/issue-event-types
https://docs.github.com/en/communities/using-templates-to-encourage-useful-issues-and-pull-requests/syntax-for-issue-forms
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from harken.errors import RetryLater
from harken.kit.values_from_payload import folded_text, instant, text_of
from harken.services.github.events_from_issue_history import issue_of
from harken.ticket import Access, Actor, Comment, LabelChange, Ticket

__all__ = [
    "access_in",
    "actor_at",
    "by_form",
    "change_of",
    "comes_from",
    "comment_of",
    "label_names",
    "may_be_of_a_form",
    "ticket_of",
]

# a form labels its issue right after it is opened, sometimes in the next second
FORM_SECONDS = 10
# stands in for accounts that were deleted
GHOST = "ghost"
_ACCESS = {
    "admin": Access.WRITE,
    "maintain": Access.WRITE,
    "write": Access.WRITE,
    "read": Access.READ,
    "none": Access.NONE,
}


def ticket_of(item: Any, repo: str) -> Ticket:
    """The version is the time of the last change, in whole seconds: GitHub has no other."""
    issue = issue_of(item, repo)
    if issue.number is None or issue.data["id"] is None:
        raise RetryLater(f"GitHub answered with an issue of {repo} that has no number or id")
    return Ticket(
        id=f"{issue.number}@{issue.id}",
        ref=f"{repo}#{issue.number}",
        number=str(issue.number),
        title=issue.data["title"],
        text=issue.data["body"],
        url=issue.data["html_url"],
        status=issue.state,
        closed=issue.state == "closed",
        labels=tuple(issue.data["labels"]),
        repo=repo,
        author=issue.data["author"]["login"],
        created_at=issue.created_at,
        updated_at=issue.updated_at,
        version=issue.data["updated_at"] or "",
        handle=text_of(item, "node_id") or "",
    )


def label_names(labels: Iterable[Any]) -> list[str]:
    return [name for label in labels if (name := text_of(label, "name"))]


def comment_of(item: Any) -> Comment:
    return Comment(
        id=text_of(item, "id") or "",
        text=text_of(item, "body") or "",
        author=actor_at(item, "user."),
        created_at=instant(text_of(item, "created_at")),
        url=text_of(item, "html_url") or "",
    )


def actor_at(data: Any, path: str = "") -> Actor | None:
    """The account at this path; None if it was deleted."""
    id, login = text_of(data, f"{path}id"), text_of(data, f"{path}login") or ""
    if id is None or login.casefold() == GHOST:
        return None
    return Actor(id=id, login=login, bot=folded_text(data, f"{path}type") == "bot" or login.endswith("[bot]"))


def access_in(answer: Any) -> Access:
    """What the answer about the permission of an account grants."""
    access = _ACCESS.get(folded_text(answer, "permission"), Access.UNKNOWN)
    # the old field says read for triage, and for roles that an organization makes from it
    triage = folded_text(answer, "role_name") == "triage" or text_of(answer, "user.permissions.triage") == "true"
    return max(access, Access.TRIAGE) if triage else access


def change_of(entry: Any) -> LabelChange | None:
    """The change of a label that an entry of the history is; None for any other entry."""
    kind, label = text_of(entry, "event"), text_of(entry, "label.name")
    if kind not in ("labeled", "unlabeled") or label is None:
        return None
    at = instant(text_of(entry, "created_at"))
    return LabelChange(label=label, added=kind == "labeled", actor=actor_at(entry, "actor."), at=at)


def may_be_of_a_form(change: LabelChange, ticket: Ticket) -> bool:
    """Whether the author put it on while opening the issue: without triage access, only a form or template can."""
    actor = change.actor
    if not change.added or actor is None or actor.bot or actor.login.casefold() != ticket.author.casefold():
        return False
    if change.at is None or ticket.created_at is None:
        return True
    return change.at - ticket.created_at <= timedelta(seconds=FORM_SECONDS)


def by_form(change: LabelChange, access: Access) -> LabelChange:
    assert change.actor is not None
    return replace(change, actor=replace(change.actor, form=True, access=access))


def comes_from(pull: Any, head: str) -> bool:
    """Whether a pull request is from this branch of its own repository, or from `owner:branch` of a fork."""
    owner, _, branch = head.rpartition(":")
    if text_of(pull, "head.ref") != branch:
        return False
    if owner:
        return folded_text(pull, "head.user.login") == owner.casefold()
    return text_of(pull, "head.repo.id") == text_of(pull, "base.repo.id")
