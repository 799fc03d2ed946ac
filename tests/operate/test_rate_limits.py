"""What `harken budget` says: one row for each credential, from the configuration and what the servers told."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from harken.config.loaded import Account, Loaded
from harken.feed import Feed
from harken.operate.rate_limits import rows
from harken.outgoing_rate_limit import Level
from harken.schedule import Every
from harken.testing import START
from tests.operate.operator_world import POLLED, Office

NOW = START.timestamp()
JIRA = Account(name="jira-eu", kind="jira", credential="jira:abc", rate_limit=2.0)
FEEDS = (
    Feed(name="mine", kind="jira", integration="jira-eu", schedule=Every(seconds=60)),
    Feed(name="ours", kind="jira", integration="jira-eu", schedule=Every(seconds=30)),
    Feed(name="news", kind="json", integration="json", query={"url": "https://news.example/x"}),
    Feed(name="hook", kind="webhook", integration="webhook", way="push"),
    Feed(name="daily", kind="cron", integration="cron", schedule=Every(seconds=60)),
)
LOADED = Loaded(directory=Path(), integrations={"jira-eu": JIRA}, feeds=FEEDS)


def test_feeds_that_share_a_credential_are_one_row() -> None:
    level = Level(limit=100, remaining=40, resets_at=NOW + 60, rate=2.0, waiting={"mine": 2, "ours": 1})
    jira, news = rows(LOADED, {"jira:abc": level}, START)
    assert jira == {
        "credential": "jira:abc",
        "integrations": ["jira-eu"],
        "feeds": ["mine", "ours"],
        "limit": 100,
        "remaining": 40,
        "resets_at": "2026-01-05T09:01:00Z",
        "blocked_until": None,
        "reason": "",
        "waiting": 3,
        "rate_limit": 2.0,
        "reads_per_hour": 180.0,
    }
    assert (news["credential"], news["limit"], news["waiting"]) == ("json:news.example", None, 0)


def test_a_block_says_why_and_when_it_ends() -> None:
    asked, used = Level(blocked_until=NOW + 700, why="asked"), Level(blocked_until=NOW + 90, why="used up")
    jira, news = rows(LOADED, {"jira:abc": asked, "json:news.example": used}, START)
    assert (jira["blocked_until"], "429" in jira["reason"], "in 12 min" in jira["reason"]) == (
        "2026-01-05T09:11:40Z",
        True,
        True,
    )
    assert "used up" in news["reason"]


def test_a_credential_that_left_the_configuration_is_shown_while_it_is_blocked() -> None:
    gone = {"old:1": Level(limit=5), "old:2": Level(blocked_until=NOW + 5, why="asked")}
    assert [row["credential"] for row in rows(replace(LOADED, feeds=()), gone, START)] == ["jira:abc", "old:2"]


def test_a_limit_that_was_overdrawn_is_nothing_and_not_less() -> None:
    jira, _ = rows(LOADED, {"jira:abc": Level(limit=5, remaining=-3.0)}, START)
    assert jira["remaining"] == 0


async def test_a_trigger_shows_the_budget_of_its_feed(office: Office) -> None:
    until = office.clock.time() + 700
    office.engine.levels = {"json:company/incidents": Level(blocked_until=until, why="asked", remaining=0.0)}
    shown = await office.ask("triggers.show", name="oncall")
    assert shown["blocked_until"] == (office.clock.now() + timedelta(seconds=700)).isoformat().replace("+00:00", "Z")
    assert shown["calls_left"] == 0
    assert (await office.ask("budget.list"))["items"][0]["feeds"] == [POLLED.name]
