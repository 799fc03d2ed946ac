"""What our comments on a ticket say. Texts of tickets, agents and errors are strangers': they are shown and never act.

On platforms with Markdown such a text is put into code, where mentions, HTML and Markdown mean nothing. Jira has two
formats, and which one is used is the service's matter, so there the characters that could act are taken apart.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec

from harken.runs import Run, StepRecord
from harken.ticket import Actor
from harken.tickets.comment_marks import NOTE
from harken.tickets.question_in_run_journal import asking_step, is_approval, prompt_of

__all__ = [
    "UNKNOWN_ACCOUNT",
    "Markup",
    "Report",
    "asked_in",
    "fight_text",
    "markup_of",
    "notice_of",
    "notice_text",
    "pull_request_of",
    "repair_text",
    "report_of",
    "sticky_text",
    "trusted_labeller",
]

Notice = Literal["", "waiting", "failed", "pull_request"]

UNKNOWN_ACCOUNT = "an account that could not be found out (perhaps another program uses ours)"
LONGEST_LINE, MOST_LINES, LONGEST_PROSE = 200, 15, 1000
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f]"
)
_OUR_MARKS = re.compile("harken-(?=receipt|notice|note)")
_ACTING = re.compile(r"([\[\]{}@!|*_^~+?\\#<>&`]|:(?=//)|-(?=-))")
_APART = "\u200b"
_ADDRESS = re.compile(r"https?://[\w.:%/?&=#+-]{1,500}", re.ASCII)
_LOGIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
_JIRA_CLOUD_ID = re.compile(r"(?:[0-9]+:)?[0-9a-f-]{24,100}")
_OUTPUTS = ("tail", "stdout", "output", "summary", "text")

_HEADS: Mapping[str, str] = {
    "gathering": "Waiting to start",
    "ready": "Waiting to start",
    "blocked": "Waiting to start",
    "held": "Held",
    "waiting": "Waiting",
    "running": "In progress",
    "done": "Done",
    "failed": "Failed",
    "dead": "Failed",
    "cancelled": "Cancelled",
}


class Markup(msgspec.Struct, frozen=True, kw_only=True):
    """How a platform writes: `code` if its comments are Markdown, and how it mentions an account."""

    kind: str
    code: bool = True

    def quote(self, text: str, longest: int = LONGEST_LINE) -> str:
        """A stranger's text within a line."""
        line = _cut(" ".join(_clean(text).split()), longest)
        if not line:
            return ""
        if not self.code:
            return _take_apart(line)
        ticks = _ticks(line, 1)
        # a space apart: a text may begin or end with a backtick
        return f"{ticks} {line} {ticks}" if "`" in line else f"{ticks}{line}{ticks}"

    def block(self, lines: Sequence[str], longest: int = LONGEST_LINE) -> str:
        """Lines of a stranger's text."""
        shown = [_cut(_clean(line), longest) for line in lines]
        if not self.code:
            return "\n".join(f"> {_take_apart(line)}" for line in shown)
        fence = _ticks("\n".join(shown), 3)
        return "\n".join([f"{fence}text", *shown, fence])

    def mark(self, line: str) -> str:
        """A line of ours that programs read."""
        return f"`{line}`" if self.code else line

    def strong(self, text: str) -> str:
        return f"**{text}**" if self.code else text

    def mention(self, actor: Actor | None) -> str:
        """How the platform tells this account of a comment; empty for programs and for names that could do more."""
        if actor is None or actor.bot or actor.form:
            return ""
        if self.kind == "jira":
            named = f"accountid:{actor.id}" if _JIRA_CLOUD_ID.fullmatch(actor.id) else actor.login
            return f"[~{named}]" if _LOGIN.fullmatch(named.removeprefix("accountid:").replace(":", "-")) else ""
        if self.kind == "azure_devops":
            return f"@<{actor.id}>" if _LOGIN.fullmatch(actor.id) else ""
        return f"@{actor.login}" if _LOGIN.fullmatch(actor.login) else ""


def markup_of(kind: str) -> Markup:
    return Markup(kind=kind, code=kind != "jira")


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What the sticky comment says about a run. All texts but `run` are strangers'. `approval`: yes or no is asked."""

    run: str
    status: str
    pipeline: str
    asked_by: Actor | None = None
    label: str = ""
    error: str = ""
    question: str = ""
    approval: bool = False
    pull_request: str = ""
    tokens: int = 0
    usd: float = 0.0
    lines: tuple[str, ...] = ()
    finished_at: datetime | None = None


def report_of(run: Run, pipeline: str, label: str, asked_by: Actor | None) -> Report:
    """Sum up a run."""
    asking = asking_step(run)
    return Report(
        run=run.id,
        status=run.status,
        pipeline=pipeline,
        asked_by=asked_by,
        label=label,
        error=run.error if run.status in ("failed", "dead", "cancelled") else "",
        question=asked_in(run),
        approval=asking is not None and is_approval(asking),
        pull_request=pull_request_of(run),
        tokens=sum(record.tokens for record in run.journal),
        usd=sum(record.usd for record in run.journal),
        lines=_last_lines(run.journal),
        finished_at=run.finished_at,
    )


def sticky_text(report: Report, receipt: str, markup: Markup, *, notice: str = "", at: datetime) -> str:
    """The whole comment. `notice` is the text for a person that it begins with, where it is new."""
    asked = markup.quote(report.asked_by.login) if report.asked_by else ""
    label = markup.quote(report.label)
    facts = [
        f"{markup.strong(_HEADS.get(report.status, report.status))} · pipeline {markup.quote(report.pipeline)}",
        f"Asked for by {asked}{f' with the label {label}' if label else ''}" if asked else "",
        f"Cost so far: {_cost(report)}" if report.tokens or report.usd else "",
        f"Pull request: {report.pull_request}" if report.pull_request else "",
        f"Question: {markup.quote(report.question, LONGEST_PROSE)}" if report.question and not notice else "",
        f"Reason: {markup.quote(report.error, LONGEST_PROSE)}" if report.error and not notice else "",
    ]
    parts = [
        notice,
        "\n".join(f"{fact}{'  ' if markup.code else ''}" for fact in facts if fact),
        markup.block(report.lines) if report.lines else "",
        markup.mark(receipt),
        f"Written by Harken at {at:%Y-%m-%d %H:%M} UTC for run {markup.quote(report.run)}. "
        "It is kept up to date; what others write into it is overwritten.",
    ]
    return "\n\n".join(part for part in parts if part)


def notice_text(kind: Notice, report: Report, markup: Markup, line: str) -> str:
    """A text for the person who asked for the run."""
    mention = markup.mention(report.asked_by)
    said = {
        "waiting": f"this run waits for you: {_question(report, markup)}\n\n"
        f"Answer with a comment{': approve or reject' if report.approval else ''}.",
        "failed": f"this run failed: {markup.quote(report.error or 'no reason was given', LONGEST_PROSE)}\n\n"
        "Take the lifecycle label off to try it again.",
        "pull_request": f"a pull request is ready: {report.pull_request}",
    }[kind]
    words = f"{mention} {said}" if mention else said[0].upper() + said[1:]
    return f"{words}\n\n{markup.mark(line)}"


def _question(report: Report, markup: Markup) -> str:
    lines = [line for line in report.question.splitlines() if line.strip()][:MOST_LINES]
    if len(lines) > 1:
        return f"\n\n{markup.block(lines, LONGEST_PROSE)}"
    return markup.quote(report.question, LONGEST_PROSE)


def repair_text(label: str, trigger: str, markup: Markup) -> str:
    """Said when our label was put back."""
    how = f"take off {markup.quote(trigger)}" if trigger else "close the ticket"
    return (
        f"The label {markup.quote(label)} was put back: this ticket has a run that is not over. To end the run, {how}; "
        f"to run it again, take the label off after it ended.\n\n{markup.mark(NOTE)}\n\nWritten by Harken."
    )


def fight_text(label: str, accounts: Sequence[str], repairs: int, markup: Markup) -> str:
    """Said when our label is not put back any more."""
    who = ", ".join(markup.quote(account) for account in accounts) or UNKNOWN_ACCOUNT
    return (
        f"The label {markup.quote(label)} was changed {repairs} times within an hour by {who}. It is left alone "
        f"for the rest of this run, which goes on. Keep that account from changing labels of Harken.\n\n"
        f"{markup.mark(NOTE)}\n\nWritten by Harken."
    )


def notice_of(run: Run) -> Notice:
    """What of this run wants a person. A step that wrote its question on the ticket itself needs no second comment."""
    if run.status in ("failed", "dead"):
        return "failed"
    asking = asking_step(run)
    if asking is not None and not _field(asking.output, "comment"):
        return "waiting"
    return "pull_request" if run.status == "done" and pull_request_of(run) else ""


def asked_in(run: Run) -> str:
    """The question that the run waits for an answer to; empty if it waits for none."""
    asking = asking_step(run)
    return "" if asking is None else prompt_of(asking)


def pull_request_of(run: Run) -> str:
    """The address of the newest pull request that a step of the run reported."""
    for record in reversed(run.journal):
        for name in ("pr_url", "pull_request", "url") if "pull_request" in record.action else ("pr_url",):
            if _ADDRESS.fullmatch(address := _field(record.output, name)):
                return address
    return ""


def trusted_labeller(run: Run) -> Actor | None:
    """Who put the trigger label on, as the look that let the run begin has noted it."""
    for record in reversed(run.journal):
        id, login = (_field(record.output, name) for name in ("labelled_by_id", "labelled_by"))
        if record.action == "ticket.preflight" and record.status == "ok" and id and login:
            return Actor(id=id, login=login, bot=login.endswith("[bot]"))
    return None


def _last_lines(journal: Sequence[StepRecord]) -> tuple[str, ...]:
    for record in reversed(journal):
        texts = (
            [record.output] if isinstance(record.output, str) else [_field(record.output, name) for name in _OUTPUTS]
        )
        text = next((text for text in texts if text.strip()), "")
        if text:
            return tuple(line for line in text.splitlines() if line.strip())[-MOST_LINES:]
    return ()


def _field(value: Any, name: str) -> str:
    found = value.get(name) if isinstance(value, Mapping) else None
    return found if isinstance(found, str) else ""


def _cost(report: Report) -> str:
    tokens = f"{report.tokens:,} tokens" if report.tokens else ""
    usd = f"{report.usd:.2f} USD" if report.usd else ""
    return ", ".join(part for part in (usd, tokens) if part)


def _clean(text: str) -> str:
    """Without what cannot be seen, and without our own marks."""
    return _OUR_MARKS.sub("harken\u2011", _INVISIBLE.sub("", text[: LONGEST_PROSE * 4]))


def _take_apart(text: str) -> str:
    return _ACTING.sub(rf"\1{_APART}", text)


def _ticks(text: str, fewest: int) -> str:
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    return "`" * max(fewest, longest + 1)


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"
