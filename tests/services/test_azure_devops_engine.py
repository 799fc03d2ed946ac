"""Workflows for Azure DevOps work items: the whole engine on virtual time, against the fake."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from harken.operate.load_and_check_configuration import load_directory
from harken.testing import VirtualClock
from harken.testing.fakes.azure_devops import AzureDevOps
from tests.services.trackers import Tracker, TrackerContract

MAIN = """\
models: {{default: echo}}
integrations:
  azure_devops:
    kind: azure_devops
    organization: acme
    token: writer
    base_url: "{url}"
    allow_private_networks: true
"""

TRIAGE = """\
name: triage
description: a first look at every urgent bug
trigger:
  type: poll
  poll:
    integration: azure_devops
    query: {projects: [Shop, Search], tags: [urgent], states: [New, Active]}
    interval: 30s
    input_mapping:
      number: "{{.trigger.event.id}}"
      title: "{{.trigger.event.title}}"
steps:
  - id: look
    action: llm
    model: balanced
    prompt: "A bug: {{.title}}"
  - id: answer
    action: azure_devops.comment
    work_item: "{{.number}}"
    text: "{{.steps.look.response}}"
  - id: mark
    action: azure_devops.add_tag
    work_item: "{{.number}}"
    tag: triaged
"""

LIFE = """\
name: life
trigger:
  poll:
    integration: azure_devops
    query: {projects: Shop}
    identity: transition
    interval: 30s
steps:
  - {id: sum, action: transform, set: {text: "{{.trigger.event.state}}"}}
"""


class TestAzureDevOps(TrackerContract):
    kind, main, triage, life, secret = "azure_devops", MAIN, TRIAGE, LIFE, "writer"
    bug = "urgent"
    many = 450
    # its Retry-After is in whole seconds, rounded down
    waits = 699.0

    def watched(self, clock: VirtualClock, skew: float = 0.0) -> Tracker:
        board = AzureDevOps(clock, skew=skew)
        return Tracker(
            fake=board,
            open=board.create,
            open_elsewhere=partial(board.create, project="Search"),
            key=lambda item: str(item.id),
            label=board.tag,
            unlabel=board.untag,
            labels=lambda item: item.fields["System.Tags"],
            comment=board.comment,
            comments=lambda item: len(board.comments(item)),
            moves=tuple(partial(board.move, state=state) for state in ("Active", "New", "Active")),
            limit=board.limit,
            revoke=board.tokens.clear,
        )


def test_the_examples_load_with_nothing_but_an_account():
    given = {"AZURE_DEVOPS_ORGANIZATION": "acme", "AZURE_DEVOPS_TOKEN": "not-a-token"}
    loaded = load_directory(Path(__file__).parents[2] / "examples" / "azure_devops", given)
    assert [str(finding) for finding in loaded.findings] == []
    assert {trigger.name for trigger in loaded.triggers} == {"urgent-bugs", "my-work-items"}
