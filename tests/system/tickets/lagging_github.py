"""A GitHub whose copies are behind: lists, single reads and histories show a change only after a while.

It enforces the limits of the real one: 80 writes a minute, 500 an hour, 5,000 requests an hour. That writes are a
second apart it only asks for, so `hurried` counts those that are not.
"""

from __future__ import annotations

import json
from collections import deque
from datetime import timedelta
from random import Random
from typing import Any

from aiohttp import web

from harken.clock import Clock
from harken.testing.fakes.github import ALLOWED, GitHub, Issue
from harken.testing.fakes.server import Handler

__all__ = ["LaggingGitHub", "lifecycle_of", "writes_by_ticket"]

WRITES_AN_HOUR = 500
GAP = 1.0
LAGS = (0.0, 0.0, 0.5, 2.0, 8.0)


class LaggingGitHub(GitHub):
    """Leo may write, and labels; all tokens are mia's. `lags` are the seconds by which copies are behind."""

    def __init__(self, clock: Clock, random: Random, lags: tuple[float, ...] = LAGS) -> None:
        super().__init__(clock)
        self.repos["acme/shop"].roles["leo"] = "write"
        self.refused_writes = 0
        self.hurried = 0
        self.writes = 0
        self._wrote_at: deque[float] = deque()
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
        while self._wrote_at and now - self._wrote_at[0] >= timedelta(hours=1).total_seconds():
            self._wrote_at.popleft()
        refused = super()._too_many_writes() or len(self._wrote_at) >= WRITES_AN_HOUR
        if refused:
            self.refused_writes += 1
            return True
        # times are sums of fractions
        self.hurried += bool(self._wrote_at) and now - self._wrote_at[-1] < GAP - 1e-6
        self.writes += 1
        self._wrote_at.append(now)
        return False


def writes_by_ticket(hub: LaggingGitHub, repo: str = "acme/shop") -> dict[int, int]:
    """How many requests changed each ticket, by its number. What was refused changed nothing."""
    issues = hub.repos[repo].issues.values()
    places = {f"/issues/comments/{comment['id']}": issue.number for issue in issues for comment in issue.comments}
    nodes = {issue.to_json()["node_id"]: issue.number for issue in issues}
    counted = dict.fromkeys((issue.number for issue in issues), 0)
    for seen in hub.seen:
        if seen.method == "GET" or seen.status >= 400:
            continue
        path = seen.path.removeprefix(f"/repos/{repo}")
        if path == "/labels":
            # the label of a repository is made once
            continue
        if path == "/graphql":
            counted[nodes[json.loads(seen.body)["variables"]["issue"]]] += 1
        else:
            counted[places[path] if path in places else int(path.split("/")[2])] += 1
    return counted


def lifecycle_of(issue: Issue) -> list[str]:
    return [label for label in issue.labels if label.startswith("harken:")]
