"""Which comment on a ticket answers the question of its run. The first one of a person who may answer wins."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from harken.runs import Run
from harken.ticket import Actor, Comment
from harken.tickets.comment_marks import is_ours, notice_line
from harken.tickets.question_in_run_journal import asking_step, is_approval
from harken.tickets.ticket_writer import stage_of

__all__ = ["Question", "answer_in", "approval_in", "question_of", "replies_to"]

LONGEST_ANSWER, LONGEST_REASON = 20_000, 200
CLOCKS_APART = timedelta(minutes=15)
"""So far the clock of a platform may be behind ours."""

_DECISION = re.compile(r"\W*(approved?|reject(?:ed)?)\b", re.IGNORECASE)


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A question of a run that waits. `step` is where it waits; `approval`: the answer is yes or no.

    On the ticket it is the comment with this id, or the comment of ours with this line.
    """

    step: str
    asked_at: datetime
    comment: str = ""
    line: str = ""
    approval: bool = False


def question_of(run: Run) -> Question | None:
    """The question that a waiting run has asked last; None if it waits for something else."""
    last = asking_step(run)
    if last is None:
        return None
    noted: Mapping[str, Any] = last.output
    at = datetime.fromisoformat(noted["asked_at"]) if isinstance(noted.get("asked_at"), str) else last.started_at
    comment = str(noted.get("comment") or "")
    if at is None:
        return None
    return Question(
        step=last.path,
        asked_at=at if comment else at - CLOCKS_APART,
        comment=comment,
        line="" if comment else notice_line(stage_of(run)),
        approval=is_approval(last),
    )


def replies_to(question: Question, comments: Sequence[Comment], own: Actor) -> list[Comment]:
    """The comments that may answer, oldest first: those of others after the question."""
    after = _after(question, comments, own)
    known = [one for one in after if one.created_at is None or one.created_at >= question.asked_at]
    return [one for one in known if not _is_by_us(one, own)]


def _after(question: Question, comments: Sequence[Comment], own: Actor) -> Sequence[Comment]:
    for at, comment in enumerate(comments):
        shown = bool(question.line) and question.line in comment.text and _is_by_us(comment, own)
        if shown or comment.id == question.comment:
            return comments[at + 1 :]
    # a question that was deleted was there; one that is not shown yet cannot be answered
    return comments if question.comment else ()


def _is_by_us(comment: Comment, own: Actor) -> bool:
    """By its account, or by the line that all our comments have: several of our accounts may share a tracker."""
    return (comment.author is not None and comment.author.id == own.id) or is_ours(comment)


def answer_in(reply: Comment, question: Question) -> dict[str, Any] | None:
    """What the waiting step gets; None if the comment does not answer this kind of question."""
    by = reply.author.login if reply.author is not None else ""
    about = {"step": question.step, "by": by, "url": reply.url}
    if not question.approval:
        return {**about, "answer": reply.text[:LONGEST_ANSWER]} if reply.text.strip() else None
    approved = approval_in(reply.text)
    return None if approved is None else {**about, "approved": approved, "comment": reply.text[:LONGEST_REASON]}


def approval_in(text: str) -> bool | None:
    """Whether the comment approves or rejects; None if it does neither. What is quoted in it does not count."""
    said = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith(">")]
    found = _DECISION.match(said[0]) if said else None
    return None if found is None else found[1].lower().startswith("approve")
