"""`harken trackers test` tells whether the platforms have webhooks to us, and whether those are alive."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harken.app import App
from harken.cli.tickets import _print_registered
from harken.operate.output_rows import plain
from harken.operate.webhook_registration_check import Registered, judge_webhooks
from harken.testing import VirtualClock, virtual
from harken.ticket import Topic, Webhook
from tests.app.test_ticket_webhooks import Platforms, at_work

OURS = "https://bot.example.com"
ALL: tuple[Topic, ...] = ("new tickets", "changes", "comments")


async def registered(app: App, tracker: str) -> tuple[bool, Any]:
    answer = await app.operator.call("trackers.test", name=tracker)
    [place] = answer["locations"]
    return answer["ok"], place["webhooks"]


def register(them: Platforms) -> None:
    """A webhook to us on each platform, beside one that leads elsewhere."""
    for url in (f"{OURS}/proxy/webhooks/github/hub?token=s3cret", "https://elsewhere.example/webhooks/github/other"):
        them.hub.add_hook(url, "issues", "issue_comment")
    them.lab.add_hook("https://user:s3cret@bot.example.com:8443/webhooks/gitlab/lab/")
    for event in ("workitem.created", "workitem.updated", "workitem.commented", "git.push"):
        them.board.subscribe(f"{OURS}/webhooks/azure_devops/board", event)
    events = ["jira:issue_created", "jira:issue_updated", "comment_created", "jira:issue_deleted"]
    them.desk.webhooks.append({"url": f"{OURS}/webhooks/jira/desk", "events": events, "enabled": True})


@virtual
async def test_webhooks_to_us_are_found_on_every_platform_and_no_secret_is_shown(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with at_work(tmp_path, clock) as (app, them):
        register(them)
        them.hub.seen.clear()
        found = {}
        for tracker in ("hub", "lab", "board", "desk"):
            ok, webhooks = await registered(app, tracker)
            assert (ok, webhooks["problem"], webhooks["note"]) == (True, "", ""), tracker
            assert {hook["state"] for hook in webhooks["hooks"]} == {"active"}
            assert sorted({topic for hook in webhooks["hooks"] for topic in hook["tells"]}) == sorted(ALL)
            found[tracker] = {hook["url"] for hook in webhooks["hooks"]}
        assert found == {
            "hub": {f"{OURS}/proxy/webhooks/github/hub"},
            "lab": {"https://bot.example.com:8443/webhooks/gitlab/lab/"},
            "board": {f"{OURS}/webhooks/azure_devops/board"},
            "desk": {f"{OURS}/webhooks/jira/desk"},
        }
        assert {seen.method for seen in them.hub.seen} == {"GET"}


@virtual
async def test_a_platform_without_a_webhook_to_us_is_told(clock: VirtualClock, tmp_path: Path) -> None:
    async with at_work(tmp_path, clock) as (app, _):
        for tracker, path in (("hub", "github/hub"), ("lab", "gitlab/lab"), ("desk", "jira/desk")):
            ok, webhooks = await registered(app, tracker)
            assert not ok
            assert webhooks["problem"].startswith(f"no webhook to /webhooks/{path} is registered at ")
            assert f"https://OUR-HOST/webhooks/{path}" in webhooks["fix"]


@virtual
async def test_webhooks_that_are_off_or_on_probation_are_told_with_the_reason(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with at_work(tmp_path, clock) as (app, them):
        register(them)
        them.hub.repos["acme/shop"].hooks[0]["last_response"] = {"code": 502, "status": "invalid", "message": "?"}
        them.lab.hooks[0] |= {"alert_status": "temporarily_disabled", "disabled_until": "2026-01-05T10:00:00Z"}
        them.board.subscriptions[1]["status"] = "onProbation"
        them.desk.webhooks[0]["enabled"] = False
        told = {}
        for tracker in ("hub", "lab", "board", "desk"):
            ok, webhooks = await registered(app, tracker)
            assert not ok
            assert webhooks["fix"]
            told[tracker] = webhooks["problem"]
        assert told["hub"].endswith("fails: the last delivery was answered 502")
        assert "is on probation: GitLab sends nothing until 2026-01-05T10:00:00Z" in told["lab"]
        assert "is on probation: a delivery has failed" in told["board"]
        assert told["desk"].endswith("/webhooks/jira/desk is switched off")
        them.hub.repos["acme/shop"].hooks[0]["active"] = False
        them.lab.hooks[0]["alert_status"] = "disabled"
        them.board.subscriptions[1]["status"] = "disabledBySystem"
        for tracker in ("hub", "lab", "board"):
            assert "is switched off" in (await registered(app, tracker))[1]["problem"]


@virtual
async def test_webhooks_that_the_token_may_not_see_are_no_error(clock: VirtualClock, tmp_path: Path) -> None:
    async with at_work(tmp_path, clock) as (app, them):
        register(them)
        them.hub.triage.add("classic")
        them.lab.members["mia"] = 30
        them.board.may_see_subscriptions = False
        them.desk.admin = False
        for tracker, location in (("hub", "acme/shop"), ("lab", "acme/web/shop"), ("board", "Shop"), ("desk", "TEAM")):
            ok, webhooks = await registered(app, tracker)
            assert ok, tracker
            assert webhooks["note"] == f"the webhooks of {location} cannot be read with this token"
            assert (webhooks["hooks"], webhooks["problem"]) == ([], "")


@virtual
async def test_only_what_a_platform_has_stopped_by_itself_is_revived(clock: VirtualClock, tmp_path: Path) -> None:
    async with at_work(tmp_path, clock) as (app, them):
        register(them)
        url = "https://bot.example.com/x/webhooks/gitlab/lab"
        them.lab.hooks[0]["alert_status"] = "disabled"
        them.lab.add_hook(url, alert_status="temporarily_disabled")
        them.lab.add_hook("https://elsewhere.example/hook", alert_status="disabled")
        them.lab.unreachable.add(url)
        fixed = await app.operator.call("trackers.fix", name="lab")
        assert fixed["revived"] == {"acme/web/shop": ["https://bot.example.com:8443/webhooks/gitlab/lab/"]}
        assert [hook["alert_status"] for hook in them.lab.hooks] == ["executable", "temporarily_disabled", "disabled"]
        them.hub.repos["acme/shop"].hooks[0]["active"] = False
        them.board.subscriptions[1]["status"] = "onProbation"
        them.desk.webhooks[0]["enabled"] = False
        for tracker in ("hub", "board", "desk"):
            assert list((await app.operator.call("trackers.fix", name=tracker))["revived"].values()) == [[]]
            assert not (await registered(app, tracker))[0]


@virtual
async def test_the_webhook_of_an_organization_counts(clock: VirtualClock, tmp_path: Path) -> None:
    async with at_work(tmp_path, clock) as (app, them):
        them.hub.tokens["classic"] = "repo, admin:org_hook"
        them.hub.add_hook(f"{OURS}/webhooks/github/hub", "*", org="acme")
        ok, webhooks = await registered(app, "hub")
        assert (ok, webhooks["problem"]) == (True, "")


@virtual
async def test_a_subscription_of_another_project_does_not_count(clock: VirtualClock, tmp_path: Path) -> None:
    async with at_work(tmp_path, clock) as (app, them):
        for event in ("workitem.created", "workitem.updated"):
            them.board.subscribe(f"{OURS}/webhooks/azure_devops/board", event, project="Search")
        assert not (await registered(app, "board"))[0]
        for event in ("workitem.created", "workitem.updated"):
            them.board.subscribe(f"{OURS}/webhooks/azure_devops/board", event)
        ok, webhooks = await registered(app, "board")
        assert ok
        assert webhooks["note"].endswith("tells of comments")


def test_the_terminal_shows_each_webhook_and_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    _print_registered(plain(judge_webhooks([hook("disabled")], "/webhooks/github/hub", "acme/shop", heard=0)))
    _print_registered(plain(judge_webhooks(None, "/webhooks/github/hub", "acme/shop", heard=0)))
    assert capsys.readouterr().out.splitlines() == [
        f"Webhook to {OURS}/webhooks/github/hub: disabled, tells of new tickets, changes, comments",
        f"  the webhook to {OURS}/webhooks/github/hub is switched off. Switch it on in the settings of the platform, "
        "after looking at why its deliveries failed",
        "  the webhooks of acme/shop cannot be read with this token",
    ]


def hook(state: Any = "active", *tells: Topic, path: str = "/webhooks/github/hub") -> Webhook:
    return Webhook(url=f"{OURS}{path}", state=state, tells=tells or ALL)


@pytest.mark.parametrize(
    ("found", "heard", "problem", "note"),
    [
        (None, 0, "", "cannot be read with this token"),
        ([], 0, "no webhook to /webhooks/github/hub is registered", ""),
        ([], 3, "", "but some arrive"),
        ([hook(path="/webhooks/github/hub2")], 0, "no webhook to", ""),
        ([hook(path="/webhooks/github/%68ub/")], 0, "", ""),
        ([hook()], 0, "", ""),
        ([hook(), hook("disabled")], 0, "is switched off", ""),
        ([hook("active", "comments")], 0, "tells of new tickets and changes", ""),
        ([hook("active", "changes"), hook("active", "new tickets")], 0, "", "tells of comments"),
    ],
)
def test_what_is_said_of_registered_webhooks(found: list[Webhook] | None, heard: int, problem: str, note: str) -> None:
    said: Registered = judge_webhooks(found, "/webhooks/github/hub", "acme/shop", heard=heard)
    assert problem in said.problem
    assert bool(problem) == bool(said.problem) == bool(said.fix)
    assert note in said.note
    assert bool(note) == bool(said.note)
