"""Webhooks as platforms have them registered: what each of them calls alive, and where they lead."""

from __future__ import annotations

from typing import Any

import pytest

from harken.kit.url_without_secrets import bare_address
from harken.services.azure_devops.registered_webhook_status import webhook_of as azure_devops_hook
from harken.services.github.registered_webhook_status import webhook_of as github_hook
from harken.services.github.tracker import GitHubTracker
from harken.services.gitlab.registered_webhook_status import webhook_of as gitlab_hook
from harken.services.jira.registered_webhook_status import webhook_of as jira_hook
from harken.services.jira.tracker import Tracker as JiraTracker
from harken.source import Host
from harken.testing import HandClock
from harken.testing.fakes.github import GitHub
from harken.testing.fakes.github_app import InstalledApp
from harken.ticket import Webhook
from tests.services.github import SHOP
from tests.services.jira import account as jira_account
from tests.services.jira import serving
from tests.services.test_github_app import app_account

URL = "https://bot.example.com/webhooks/x"


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (URL, URL),
        ("https://user:pass@bot.example.com:8443/a?token=1#x", "https://bot.example.com:8443/a"),
        ("http://[::1]:80/a", "http://[::1]:80/a"),
        ("ftp://bot.example.com/a", ""),
        ("https://bot.example.com:port/a", ""),
        ("https://", ""),
        ("", ""),
        (None, ""),
        (7, ""),
    ],
)
def test_an_address_is_shown_without_what_may_be_secret(given: object, shown: str) -> None:
    assert bare_address(given) == shown


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({}, "active"),
        ({"last_response": {"code": 202, "status": "active", "message": "OK"}}, "active"),
        ({"last_response": None}, "active"),
        ({"last_response": {"code": 401, "status": "invalid", "message": "?"}}, "failing"),
        ({"last_response": {"code": None, "status": "timeout", "message": "?"}}, "failing"),
        ({"active": False}, "disabled"),
    ],
)
def test_a_webhook_of_github_is_judged_by_its_last_answer(fields: dict[str, Any], state: str) -> None:
    hook = {"active": True, "events": ["issues", 7], "config": {"url": URL}} | fields
    assert github_hook(hook).state == state
    assert github_hook(hook).tells == ("new tickets", "changes")


@pytest.mark.parametrize("read", [github_hook, gitlab_hook, jira_hook])
@pytest.mark.parametrize("odd", [{}, [], None, "x", {"events": 1, "url": {}, "config": []}])
def test_an_odd_webhook_leads_nowhere(read: Any, odd: Any) -> None:
    found: Webhook = read(odd)
    assert (found.url, found.tells) == ("", ())


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("enabled", "active"),
        ("onProbation", "probation"),
        ("disabledByUser", "disabled"),
        ("disabledByInactiveIdentity", "disabled"),
        ("somethingNew", "disabled"),
    ],
)
def test_a_subscription_of_azure_devops_is_what_its_status_says(status: str, state: str) -> None:
    given = {"eventType": "workitem.updated", "status": status, "consumerInputs": {"url": URL}}
    found = azure_devops_hook(given)
    assert found is not None
    assert (found.state, found.tells, bool(found.reason)) == (state, ("changes",), state != "active")
    assert azure_devops_hook(given | {"eventType": "git.push"}) is None
    assert azure_devops_hook(given | {"consumerInputs": {}}) is None


async def test_the_webhook_of_an_app_counts_for_its_repositories(hub: GitHub, host: Host) -> None:
    hub.app = InstalledApp(SHOP)
    tracker = GitHubTracker(SHOP, app_account(hub), host)
    assert await tracker.webhooks() is None
    hub.app.hook_url = f"{URL}?secret=1"
    assert await tracker.webhooks() == [Webhook(url=URL, tells=("new tickets", "changes", "comments"))]


async def test_newer_servers_of_jira_have_their_webhooks_elsewhere(clock: HandClock, host: Host) -> None:
    async with serving(clock, cloud=False, webhooks_path="/rest/jira-webhook/1.0/webhooks") as jira:
        jira.webhooks.append({"url": URL, "active": False, "events": ["jira:issue_updated"]})
        tracker = JiraTracker("TEAM", jira_account(jira), host)
        assert await tracker.webhooks() == [Webhook(url=URL, state="disabled", tells=("changes",))]
        jira.admin = False
        assert await tracker.webhooks() is None
