"""Workflows for GitLab issues: the whole engine on virtual time, against the fake."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from harken.operate.load_and_check_configuration import load_directory
from harken.testing import VirtualClock
from harken.testing.fakes.gitlab import GitLab
from tests.services.trackers import ConditionalTrackerContract, Tracker

MAIN = """\
models: {{default: echo}}
integrations:
  gitlab: {{kind: gitlab, token: glpat-full, base_url: "{url}", allow_private_networks: true}}
"""

TRIAGE = """\
name: triage
description: a first look at every bug
trigger:
  type: poll
  poll:
    integration: gitlab
    query: {projects: [acme/web/shop, acme/search], labels: [bug]}
    interval: 30s
    input_mapping:
      project: "{{.trigger.event.project}}"
      number: "{{.trigger.event.iid}}"
      title: "{{.trigger.event.title}}"
steps:
  - id: look
    action: llm
    model: balanced
    prompt: "A bug: {{.title}}"
  - id: answer
    action: gitlab.note
    project: "{{.project}}"
    issue: "{{.number}}"
    text: "{{.steps.look.response}}"
  - id: mark
    action: gitlab.label
    project: "{{.project}}"
    issue: "{{.number}}"
    label: triaged
"""

LIFE = """\
name: life
trigger:
  poll:
    integration: gitlab
    query: {projects: acme/web/shop, state: all}
    identity: transition
    interval: 30s
steps:
  - {id: sum, action: transform, set: {text: "{{.trigger.event.state}}"}}
"""


class TestGitLab(ConditionalTrackerContract):
    kind, main, triage, life, secret = "gitlab", MAIN, TRIAGE, LIFE, "glpat-full"

    def watched(self, clock: VirtualClock, skew: float = 0.0) -> Tracker:
        lab = GitLab(clock, skew=skew)
        lab.projects["acme/search"] = {}
        return Tracker(
            fake=lab,
            open=lab.open,
            open_elsewhere=partial(lab.open, project="acme/search"),
            key=lambda issue: f"{issue.project}#{issue.iid}",
            label=lab.label,
            unlabel=lab.unlabel,
            labels=lambda issue: issue.labels,
            comment=lab.comment,
            comments=lambda issue: sum(not note["system"] for note in issue.happened["notes"]),
            moves=(lab.close, lab.reopen, lab.close),
            limit=lab.limit,
            revoke=lab.tokens.clear,
        )


def test_the_examples_load_with_nothing_but_a_token():
    loaded = load_directory(Path(__file__).parents[2] / "examples" / "gitlab", {"GITLAB_TOKEN": "not-a-token"})
    assert [str(finding) for finding in loaded.findings] == []
    assert {trigger.name for trigger in loaded.triggers} == {"bug-notes", "my-gitlab-issues"}
