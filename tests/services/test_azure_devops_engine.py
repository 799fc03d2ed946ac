"""Workflows for Azure DevOps work items: the whole engine on virtual time, against the fake."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from harken.app import App
from harken.operate.check import load_directory
from harken.testing import VirtualClock, virtual
from harken.testing.fakes.azure_devops import AzureDevOps
from tests.services.whole import running

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


def write(directory: Path, board: AzureDevOps, **workflows: str) -> None:
    (directory / "workflows").mkdir(exist_ok=True)
    (directory / "harken.yaml").write_text(MAIN.format(url=board.url))
    for name, text in workflows.items():
        (directory / "workflows" / f"{name}.yaml").write_text(text)


async def fired(app: App, trigger: str) -> Counter[str]:
    """How often the trigger ran for each work item, all runs being done."""
    runs: list[Any] = (await app.operator.call("runs.list", trigger=trigger, limit=500))["items"]
    assert {run["status"] for run in runs} <= {"done"}, [run["error"] for run in runs]
    return Counter(key.partition("@")[0] for run in runs for key in run["event_keys"])


@virtual
async def test_every_urgent_bug_runs_once_over_many_polls_comments_and_restarts(clock: VirtualClock, tmp_path: Path):
    board = AzureDevOps(clock)
    async with board.serve():
        write(tmp_path, board, triage=TRIAGE)
        before, old = board.create("urgent", age=3600), board.create(age=86_400)
        async with running(tmp_path, clock) as app:
            await clock.sleep(120)
            assert await fired(app, "triage") == {}
            new, late = board.create("urgent"), board.create("urgent", project="Search", late=300)
            await clock.sleep(600)
            board.tag(old, "urgent")
            board.comment(before)
            board.comment(new)
            await clock.sleep(600)
            board.untag(new, "urgent")
            await clock.sleep(60)
            board.tag(new, "urgent")
            await clock.sleep(600)
        board.create("urgent", project="Search")
        await clock.sleep(9 * 3600)
        async with running(tmp_path, clock) as app:
            await clock.sleep(900)
            board.comment(old)
            await clock.sleep(900)
            ran = await fired(app, "triage")
            explained = await app.operator.call("triggers.explain", name="triage", key="2")
        assert ran == {"2": 1, "3": 1, "4": 1, "5": 1}
        assert explained["outcome"] == "fired"
        assert [len(board.said(item)) for item in (before, old, new, late)] == [1, 2, 2, 1]
        assert "triaged" in late.fields["System.Tags"]
        assert "triaged" not in before.fields["System.Tags"]


@virtual
async def test_450_work_items_at_once_all_run(clock: VirtualClock, tmp_path: Path):
    board = AzureDevOps(clock)
    async with board.serve():
        write(tmp_path, board, life=LIFE)
        async with running(tmp_path, clock) as app:
            await clock.sleep(90)
            for _ in range(450):
                board.create()
            await clock.sleep(900)
            ran = await fired(app, "life")
        assert (len(ran), set(ran.values())) == (450, {1})


@pytest.mark.parametrize("skew", [-90.0, 90.0])
@virtual
async def test_their_clock_may_be_wrong_and_states_may_come_back(clock: VirtualClock, tmp_path: Path, skew: float):
    board = AzureDevOps(clock, skew=skew)
    async with board.serve():
        write(tmp_path, board, life=LIFE)
        old = board.create(age=86_400)
        async with running(tmp_path, clock) as app:
            await clock.sleep(300)
            for state in ("Active", "New", "Active"):
                board.move(old, state)
                await clock.sleep(45)
            made = [board.create() for _ in range(5)]
            await clock.sleep(300)
            ran = await fired(app, "life")
        assert ran == {"1": 3} | {str(item.id): 1 for item in made}


@virtual
async def test_a_limit_is_waited_for_and_a_revoked_token_pauses_and_says_why(clock: VirtualClock, tmp_path: Path):
    board = AzureDevOps(clock)
    async with board.serve():
        write(tmp_path, board, life=LIFE)
        async with running(tmp_path, clock) as app:
            await clock.sleep(60)
            board.limit(700)
            limited_at = clock.time()
            board.create()
            await clock.sleep(1500)
            asked = [sent.at - limited_at for sent in board.seen if sent.at > limited_at]
            assert (await fired(app, "life")) == {"1": 1}
            assert sum(after < 690 for after in asked) == 1, "the one that met the limit"
            board.tokens.clear()
            await clock.sleep(120)
            asked_before = len(board.seen)
            await clock.sleep(600)
            (feed,) = [state for state in await app.store.feeds() if state.name.startswith("azure_devops-")]
        assert len(board.seen) == asked_before
        assert feed.health.state == "paused"
        assert "harken integrations azure_devops configure" in feed.health.message


def test_the_examples_load_with_nothing_but_an_account():
    given = {"AZURE_DEVOPS_ORGANIZATION": "acme", "AZURE_DEVOPS_TOKEN": "not-a-token"}
    loaded = load_directory(Path(__file__).parents[2] / "examples" / "azure_devops", given)
    assert [str(finding) for finding in loaded.findings] == []
    assert {trigger.name for trigger in loaded.triggers} == {"urgent-bugs", "my-work-items"}
