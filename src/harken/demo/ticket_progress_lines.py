"""What people would see on the tickets of `harken demo tickets`, told one line at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from harken.demo.fake_github_with_real_git import BOT, Shop
from harken.testing.fakes.github import Issue

__all__ = ["TicketWatch"]

OURS = "harken:"
_MARKS = ("`harken-", "```")


class TicketWatch:
    """Compares the tickets, pull requests and outputs of agents with what they were at the last look."""

    def __init__(self, shop: Shop, outputs: Callable[[], Iterator[Path]], now: Callable[[], datetime]) -> None:
        self._shop = shop
        self._outputs = outputs
        self._now = now
        self._shown: dict[int, str] = {}
        self._comments: dict[int, str] = {}
        self._pulls: set[int] = set()
        self._progress: dict[str, str] = {}
        self._at_work: set[int] = set()
        self._said: list[str] = []

    def is_at_work(self, ticket: Issue) -> bool:
        """Whether an agent has said something about it."""
        return ticket.number in self._at_work

    def say(self, about: Issue, text: str) -> None:
        self._said.append(f"{self._now().astimezone():%H:%M:%S} #{about.number} {text}")

    def look(self) -> list[str]:
        """Everything new since the last look."""
        for path in self._outputs():
            self._look_at_output(path)
        for pull in self._shop.pulls:
            if pull.number not in self._pulls:
                self._pulls.add(pull.number)
                self.say(pull, f"is a new pull request: {pull.head} into {pull.base}")
        for ticket in self._shop.tickets:
            self._look_at(ticket)
        said, self._said = self._said, []
        return said

    def _look_at(self, ticket: Issue) -> None:
        # a label is put on before the one of earlier is taken off
        shown = (lifecycle_of(ticket) or [""])[-1]
        before = self._shown.get(ticket.number, "")
        if shown != before:
            self._shown[ticket.number] = shown
            self.say(ticket, f"shows the label {shown}" if shown else f"does not show {before} any more")
        for comment in comments_of(ticket):
            line = first_words(comment["body"])
            if self._comments.get(comment["id"]) != line:
                self._comments[comment["id"]] = line
                self.say(ticket, f"has a comment: {line}")

    def _look_at_output(self, path: Path) -> None:
        told = _last_progress(path)
        if told is not None and self._progress.get(path.as_posix()) != told.step:
            self._progress[path.as_posix()] = told.step
            about = next((one for one in self._shop.tickets if str(one.number) == told.ticket), None)
            if about is not None:
                self._at_work.add(about.number)
                self.say(about, f"has an agent at work in its worktree: {told.step}")


class _Progress(msgspec.Struct, frozen=True, tag="progress"):
    ticket: str
    step: str


def lifecycle_of(ticket: Issue) -> list[str]:
    """Our labels on it, in the order in which they were put on."""
    return [label for label in ticket.labels if label.startswith(OURS)]


def comments_of(ticket: Issue) -> list[dict[str, Any]]:
    return [comment for comment in ticket.comments if comment["user"]["login"] == BOT]


def first_words(body: str) -> str:
    """What a comment of ours says first, and the reason if it has one; without its marks and its stars."""
    lines = [line.strip() for line in body.splitlines()]
    words = [line for line in lines if line and not line.startswith(_MARKS)]
    reasons = [line for line in words[1:] if line.startswith("Reason:")]
    return ". ".join([*words[:1], *reasons]).replace("**", "").replace("`", "")


def _last_progress(path: Path) -> _Progress | None:
    for line in reversed(path.read_bytes().splitlines()):
        try:
            return msgspec.json.decode(line, type=_Progress)
        except msgspec.MsgspecError:
            # the agent says other things too
            continue
    return None
