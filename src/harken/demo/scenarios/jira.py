"""The scenario of `harken demo jira`: tickets are mine or become mine later, go into review, and are talked about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from random import Random
from typing import Any

from aiohttp import web

from harken.clock import Clock
from harken.demo.scenario import Scenario
from harken.demo.scenarios.vendor_scenario_base import Busy, Truth, VendorScenario
from harken.event import Recorded
from harken.testing.fakes.jira import TOKEN, Issue, Jira

__all__ = ["Board", "make"]

ME, BOB = "me", "bob"
MINE, REVIEW, MENTION = "ticket-summary", "review-started", "mention-answer"
TEAM, SUPPORT = "MYTEAM", "SUPPORT"
WISHES = ("Printer on fire", "Invoices without a date", "Search finds nothing", "Log in twice", "Mails in Latin")
YOUNG = 40


class Site(Busy, Jira):
    """The fake Jira, which records what each trigger was shown."""

    truth: Truth

    def is_read(self, request: web.Request) -> bool:
        return request.path.endswith("/search/jql")

    async def record_shown(self, request: web.Request, answer: Any) -> None:
        if self.is_read(request):
            jql = (await request.json())["jql"]
            trigger = MINE if "assignee" in jql else REVIEW if "status" in jql else MENTION
            self.truth.shown(trigger, [issue["id"] for issue in answer["issues"]])


class Board:
    """Tickets of two projects. The index of the search learns of some of them two seconds late."""

    account: Mapping[str, str] = {"email": "me@example.com", "token": TOKEN}

    def __init__(self, clock: Clock, random: Random) -> None:
        self._random = random
        self.truth = Truth(clock, MINE, REVIEW, MENTION)
        self.fake = Site(clock, cap=20)
        self.fake.truth = self.truth
        self.fake.user(BOB, email="bob@example.com", name="Bob")
        self.fake.project(TEAM)
        self.fake.project(SUPPORT)
        for number in range(30):
            self.fake.create(TEAM, f"From before {number}", assignee=random.choice((ME, BOB)))

    def moment(self) -> None:
        for _ in range(self._random.choice((0, 0, 1, 1, 3))):
            self._create()
        young = list(self.fake.issues.values())[-YOUNG:]
        ready = [issue for issue in young if self.truth.may_change(issue.id)]
        for issue in self._random.sample(ready, min(len(ready), 2)):
            self.truth.touch(issue.id)
            self._change(issue)
        if self._random.random() < 0.3:
            self._mention(self._random.choice(young))

    def _create(self) -> None:
        who, project = self._random.choice((ME, BOB, None)), self._random.choice((TEAM, TEAM, SUPPORT))
        self._lag()
        key = self.fake.create(project, self._random.choice(WISHES), assignee=who, description="It was fine on Monday.")
        issue = self.fake.issue(key)
        self.truth.touch(issue.id)
        if who == ME and project == TEAM:
            self.truth.expect(MINE, _name(issue.id, issue.created), issue.id)

    def _change(self, issue: Issue) -> None:
        """Hand it on or back, or move it; nothing is expected of what leaves."""
        self.fake.late = 0.0
        team = issue.fields["project"] == TEAM
        if self._random.random() < 0.5:
            mine = issue.fields["assignee"] != ME
            self.fake.assign(issue.key, ME if mine else BOB)
            expected = MINE if mine and team else None
        else:
            review = issue.fields["status"] != "In Review"
            self.fake.move(issue.key, "In Review" if review else "In Progress")
            expected = REVIEW if review and team else None
        if expected:
            self.truth.expect(expected, _name(issue.id, issue.updated), issue.id)

    def _mention(self, issue: Issue) -> None:
        self._lag()
        comment = self.fake.comment(issue.key, f"[~{ME}] can you have a look?", author=BOB)
        # comments are permanent, so they need not wait until a read has shown them
        self.truth.expect(MENTION, _name(issue.id, issue.comments[-1]["created"]), f"comment {comment}")

    def _lag(self) -> None:
        self.fake.late = self._random.choice((0.0, 0.0, 2.0))
        self.truth.late += self.fake.late > 0

    def occurrence(self, event: Recorded) -> str:
        return _name(event.data["id"], event.occurred_at) if event.occurred_at else event.key

    def written_back(self) -> Iterable[tuple[str, str]]:
        for issue in self.fake.issues.values():
            for comment, properties in issue.properties.items():
                yield str(properties["harken"]["key"]), comment


def _name(issue: str, at: datetime) -> str:
    """What happened to an issue is known by its instant, which Jira tells in milliseconds."""
    return f"{issue} at {at.astimezone(UTC):%H:%M:%S}.{at.microsecond // 1000:03d}"


def make(clock: Clock, random: Random) -> Scenario:
    return VendorScenario("jira", Board(clock, random), clock)
