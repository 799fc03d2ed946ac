"""A GitHub whose copies are behind: lists, single reads and histories show a change only after a while.

It enforces the limits of the real one: 80 writes a minute, 500 an hour, 5,000 requests an hour.
"""

from __future__ import annotations

from datetime import timedelta
from random import Random
from typing import Any

from aiohttp import web

from harken.clock import Clock
from harken.testing.fakes.github import ALLOWED, GitHub, Issue
from harken.testing.fakes.server import Handler, Seen

__all__ = ["LaggingGitHub", "lifecycle_of", "writes_to"]

WRITES_AN_HOUR = 500
LAGS = (0.0, 0.0, 0.5, 2.0, 8.0)


class LaggingGitHub(GitHub):
    """Leo may write, and labels; all tokens are mia's. `lags` are the seconds by which copies are behind."""

    def __init__(self, clock: Clock, random: Random, lags: tuple[float, ...] = LAGS) -> None:
        super().__init__(clock)
        self.repos["acme/shop"].roles["leo"] = "write"
        self.refused_writes = 0
        self.wrote_at: list[float] = []
        self._random = random
        self._lags = lags
        self._hour = 0.0

    def label(self, issue: Issue, name: str, by: str = "mia") -> None:
        self._fall_behind(issue)
        super().label(issue, name, by)

    def unlabel(self, issue: Issue, name: str, by: str = "mia") -> None:
        self._fall_behind(issue)
        super().unlabel(issue, name, by)

    def close(self, issue: Issue) -> None:
        self._fall_behind(issue)
        super().close(issue)

    def comment(self, issue: Issue, body: str = "hm", by: str = "mia") -> dict[str, Any]:
        self._fall_behind(issue)
        return super().comment(issue, body, by)

    def _fall_behind(self, issue: Issue) -> None:
        now = self.clock.time()
        issue.visible_at = max(issue.visible_at, now + self._random.choice(self._lags))
        issue.history_visible_at = max(issue.history_visible_at, now + self._random.choice(self._lags))
        if now >= issue.older_until:
            self.lag(issue, self._random.choice(self._lags))

    async def handle(self, request: web.Request, view: Handler) -> web.Response:
        if self.clock.time() - self._hour >= timedelta(hours=1).total_seconds():
            self._hour, self.remaining = self.clock.time(), ALLOWED
        if self.remaining <= 0:
            self.limit(self._hour + timedelta(hours=1).total_seconds() - self.clock.time())
        return await super().handle(request, view)

    def _too_many_writes(self) -> bool:
        now = self.clock.time()
        recent = [at for at in self.wrote_at if now - at < timedelta(hours=1).total_seconds()]
        refused = super()._too_many_writes() or len(recent) >= WRITES_AN_HOUR
        if refused:
            self.refused_writes += 1
        else:
            self.wrote_at.append(now)
        return refused


def writes_to(seen: list[Seen], issue: Issue) -> int:
    """How many writes changed this ticket. What was refused changed nothing."""
    own = {f"/issues/comments/{comment['id']}" for comment in issue.comments}
    return sum(
        one.method != "GET"
        and one.status < 400
        and (f"/issues/{issue.number}/" in f"{one.path}/" or any(one.path.endswith(path) for path in own))
        for one in seen
    )


def lifecycle_of(issue: Issue) -> list[str]:
    return [label for label in issue.labels if label.startswith("harken:")]
