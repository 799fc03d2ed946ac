"""Workflows for GitHub issues: the whole engine on virtual time, against the fake."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from harken.operate.load_and_check_configuration import load_directory
from harken.testing import VirtualClock
from harken.testing.fakes.github import GitHub
from tests.services.trackers import ConditionalTrackerContract, Tracker

MAIN = """\
models: {{default: echo}}
integrations:
  github: {{kind: github, token: classic, base_url: "{url}", allow_private_networks: true}}
"""

TRIAGE = """\
name: triage
description: a first look at every bug
trigger:
  type: poll
  poll:
    integration: github
    query: {repos: [acme/shop, acme/search], labels: [bug]}
    interval: 30s
    input_mapping:
      repo: "{{.trigger.event.repo}}"
      number: "{{.trigger.event.number}}"
      title: "{{.trigger.event.title}}"
steps:
  - id: look
    action: llm
    model: balanced
    prompt: "A bug: {{.title}}"
  - id: answer
    action: github.comment
    repo: "{{.repo}}"
    issue: "{{.number}}"
    text: "{{.steps.look.response}}"
  - id: mark
    action: github.label
    repo: "{{.repo}}"
    issue: "{{.number}}"
    label: triaged
"""

LIFE = """\
name: life
trigger:
  poll:
    integration: github
    query: {repos: acme/shop, state: all}
    identity: transition
    interval: 30s
steps:
  - {id: sum, action: transform, set: {text: "{{.trigger.event.state}}"}}
"""


class TestGitHub(ConditionalTrackerContract):
    kind, main, triage, life, secret = "github", MAIN, TRIAGE, LIFE, "classic"

    def watched(self, clock: VirtualClock, skew: float = 0.0) -> Tracker:
        hub = GitHub(clock, skew=skew)
        hub.add_repo("acme/search")
        return Tracker(
            fake=hub,
            open=hub.open,
            open_elsewhere=partial(hub.open, repo="acme/search"),
            key=lambda issue: f"{issue.repo}#{issue.number}",
            label=hub.label,
            unlabel=hub.unlabel,
            labels=lambda issue: issue.labels,
            comment=hub.comment,
            comments=lambda issue: len(issue.comments),
            moves=(hub.close, hub.reopen, hub.close),
            limit=hub.limit,
            revoke=hub.tokens.clear,
        )


def test_the_examples_load_with_nothing_but_a_token():
    loaded = load_directory(Path(__file__).parents[2] / "examples" / "github", {"GITHUB_TOKEN": "not-a-token"})
    assert [str(finding) for finding in loaded.findings] == []
    assert {trigger.name for trigger in loaded.triggers} == {"bug-triage", "my-issues", "review-queue"}
