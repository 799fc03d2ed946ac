"""Configurations in the shape that users of the older design know load unchanged, and do what they say."""

from __future__ import annotations

from pathlib import Path

import pytest

from harken.config.feed_sources import credential_of
from harken.config.loaded import Loaded
from harken.schedule import Every
from harken.tickets import LifecycleLabels, Routes
from tests.config.trackers.makers import TOKENS, found, read

MINIMAL = """
projects:
  my-api:
    source:
      type: GitHub
      url: https://github.com/org/my-api
    tickets:
      type: GitHub
      url: https://github.com/org/my-api
      auth: token
    pipeline: fix-bug

    polling:
      enabled: true            # default: false
"""

FULL = """
projects:
  my-api:
    source:
      type: GitHub
      url: https://github.com/org/my-api
    tickets:
      type: GitHub
      url: https://github.com/org/my-api
      auth: token

    pipeline: fix-bug

    github_trigger:
      default_pipeline: fix-bug
      pipeline_from_label:
        agent-smith: fix-bug
        security-review: security-scan

    polling:
      enabled: true
      interval_seconds: 30
      jitter_percent: 15

agent:
  queue:
    max_parallel_jobs: 4       # consumer-side backpressure
    consume_block_seconds: 5
    shutdown_grace_seconds: 30
"""

MIXED = """
trackers:
  acme-github: # webhooks
    type: github
    organization: acme-org
    webhook_secret: ${GITHUB_WEBHOOK_SECRET}
  acme-jira-onprem: # polling
    type: jira
    url: https://jira.acme-internal.com
    project: TL
    polling: { enabled: true, interval_seconds: 90 }
  acme-platform:
    type: azure_devops
    organization: acme
    project: Platform
    auth: pat
    polling:
      enabled: true
      interval_seconds: 60 # how often to ask
      jitter_percent: 10 # randomize ±10% to avoid thundering herds
projects:
  web:
    tracker: acme-github
    source: {type: GitHub, url: "https://github.com/acme-org/web.git", default_branch: main}
    github_trigger: {pipeline_from_label: {fix: fix-bug}}
  docs:
    tracker: acme-github
    resolution: {repo: docs}
    pipeline: fix-bug
  tl:
    tracker: acme-jira-onprem
    jira_trigger: {trigger_statuses: [Open, Active], done_status: In Review, pipeline_from_label: {bug: fix-bug}}
  platform:
    tracker: acme-platform
    resolution: {area_path: 'Platform\\Web'}
    azuredevops_trigger: {default_pipeline: fix-bug}
"""


@pytest.fixture
def mixed(tmp_path: Path) -> Loaded:
    return read(tmp_path, MIXED)


def test_the_smallest_configuration_needs_a_token_and_nothing_else(tmp_path: Path) -> None:
    loaded = read(tmp_path, MINIMAL)
    assert found(loaded) == []
    tracker = loaded.trackers["my-api"]
    assert (tracker.kind, tracker.locations, tracker.polled) == ("github", ("org/my-api",), True)
    assert (tracker.interval, tracker.jitter, tracker.webhook) == (60.0, 0.1, False)
    assert tracker.projects[0].routes == Routes(default="fix-bug")
    assert tracker.projects[0].repository == "https://github.com/org/my-api"
    assert loaded.integrations[tracker.account].origin == "environment"


def test_without_a_token_the_project_is_refused_with_what_to_do(tmp_path: Path) -> None:
    loaded = read(tmp_path, MINIMAL, environ={})
    assert list(loaded.refused) == ["project:my-api"]
    assert [str(one) for one in loaded.refused["project:my-api"]] == [
        "harken.yaml:7:13: projects.my-api.tickets.type: github has no account. "
        "Run: harken integrations github configure; or set GITHUB_TOKEN"
    ]
    assert not loaded.trackers
    assert not loaded.triggers


def test_the_full_configuration_says_how_often_and_which_pipeline(tmp_path: Path) -> None:
    loaded = read(tmp_path, FULL)
    assert found(loaded) == []
    tracker = loaded.trackers["my-api"]
    assert (tracker.interval, tracker.jitter) == (30.0, 0.15)
    routes = tracker.projects[0].routes
    assert list(routes.by_label.items()) == [("agent-smith", "fix-bug"), ("security-review", "security-scan")]
    assert routes.default == "fix-bug"
    queue = loaded.settings.agent.queue
    assert (queue.max_parallel_jobs, queue.consume_block_seconds, queue.shutdown_grace_seconds) == (4, 5.0, 30.0)


def test_one_feed_reads_a_tracker_and_each_project_has_a_trigger(tmp_path: Path) -> None:
    loaded = read(tmp_path, FULL)
    [feed] = [one for one in loaded.feeds if one.way == "poll"]
    assert (feed.name, feed.kind, feed.identity, feed.first) == ("tracker/my-api", "github", "transition", "all")
    assert (feed.schedule, feed.jitter, feed.path) == (Every(seconds=30.0), 0.15, "")
    [trigger] = loaded.triggers
    revisions = {name: loaded.workflows[name].rev for name in ("fix-bug", "security-scan")}
    assert (trigger.name, trigger.feed, trigger.routes) == ("my-api/my-api", feed.name, revisions)
    assert (trigger.types, trigger.condition) == (("ticket.ready",), 'event.project == "my-api"')
    assert (trigger.overlap, trigger.concurrency_key) == ("skip", "{{.trigger.subject}}")


def test_webhooks_and_polling_are_mixed_in_one_configuration(mixed: Loaded) -> None:
    assert not mixed.refused
    ways = {name: (tracker.polled, tracker.interval, tracker.webhook) for name, tracker in mixed.trackers.items()}
    assert ways == {
        "acme-github": (False, 60.0, True),
        "acme-jira-onprem": (True, 90.0, False),
        "acme-platform": (True, 60.0, False),
    }


def test_a_tracker_that_is_not_polled_is_swept_every_15_minutes(mixed: Loaded) -> None:
    feeds = {feed.name: feed for feed in mixed.feeds}
    assert feeds["tracker/acme-github"].schedule == Every(seconds=900.0)
    assert feeds["tracker/acme-github"].path == "github/acme-github"
    assert feeds["tracker/acme-jira-onprem"].schedule == Every(seconds=90.0)


def test_an_organization_takes_the_repositories_of_its_projects(mixed: Loaded) -> None:
    tracker = mixed.trackers["acme-github"]
    assert tracker.locations == ("acme-org/web", "acme-org/docs")
    assert [(one.location, one.scope.repo) for one in tracker.projects] == [
        ("acme-org/web", "acme-org/web"),
        ("acme-org/docs", "acme-org/docs"),
    ]
    assert (tracker.projects[0].repository, tracker.projects[0].base) == ("https://github.com/acme-org/web.git", "main")


def test_statuses_of_a_trigger_block_are_those_of_the_tracker(mixed: Loaded) -> None:
    tracker = mixed.trackers["acme-jira-onprem"]
    assert tracker.trigger_statuses == {"open", "active"}
    assert tracker.done_status == "In Review"


def test_open_states_of_azure_devops_have_their_default(mixed: Loaded) -> None:
    tracker = mixed.trackers["acme-platform"]
    assert tracker.open_states == {"new", "active", "committed"}
    assert tracker.projects[0].scope.area_path == "Platform\\Web"


def test_a_server_of_ones_own_may_be_in_a_private_network(mixed: Loaded) -> None:
    jira = mixed.integrations["tracker/acme-jira-onprem"]
    assert (jira.base_url, jira.allow_private) == ("https://jira.acme-internal.com", True)
    assert not mixed.integrations["tracker/acme-platform"].allow_private


def test_trackers_with_one_token_spend_from_one_quota(tmp_path: Path) -> None:
    text = """
    trackers:
      a: {type: github, url: 'https://github.com/org/a', polling: {enabled: true}}
      b: {type: github, organization: org, polling: {enabled: true}}
    projects:
      one: {tracker: a, pipeline: fix-bug}
      two: {tracker: b, resolution: {repo: b}, pipeline: fix-bug}
    """
    loaded = read(tmp_path, text)
    assert len({credential_of(feed, loaded) for feed in loaded.feeds if feed.way == "poll"}) == 1


def test_the_prefix_of_our_labels_can_be_that_of_the_older_design(tmp_path: Path) -> None:
    loaded = read(tmp_path, FULL + "label_prefix: agent-smith\n")
    assert loaded.trackers["my-api"].lifecycle == LifecycleLabels("agent-smith")
    own = read(tmp_path, FULL.replace("      auth: token", "      auth: token\n      label_prefix: 'ours:'"))
    assert own.trackers["my-api"].lifecycle == LifecycleLabels("ours")


def test_no_secret_is_in_what_is_stored_or_shown(mixed: Loaded) -> None:
    shown = f"{mixed!r}{mixed.feeds}{mixed.triggers}{found(mixed)}"
    assert [name for name, value in TOKENS.items() if value in shown and name != "JIRA_EMAIL"] == []
    assert {TOKENS["GITHUB_WEBHOOK_SECRET"], TOKENS["AZURE_DEVOPS_TOKEN"]} <= mixed.secrets
