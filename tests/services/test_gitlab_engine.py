"""Workflows for GitLab issues: the whole engine on virtual time, against the fake."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from harken.app import App
from harken.operate.check import load_directory
from harken.testing import VirtualClock, virtual
from harken.testing.fakes.gitlab import GitLab
from tests.services.whole import running

pytestmark = pytest.mark.usefixtures("long_naps")

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


def write(directory: Path, lab: GitLab, **workflows: str) -> None:
    (directory / "workflows").mkdir(exist_ok=True)
    (directory / "harken.yaml").write_text(MAIN.format(url=lab.url))
    for name, text in workflows.items():
        (directory / "workflows" / f"{name}.yaml").write_text(text)


async def fired(app: App, trigger: str) -> Counter[str]:
    """How often the trigger ran for each issue, all runs being done."""
    runs: list[Any] = (await app.operator.call("runs.list", trigger=trigger, limit=500))["items"]
    assert {run["status"] for run in runs} <= {"done"}, [run["error"] for run in runs]
    return Counter(key.partition("@")[0] for run in runs for key in run["event_keys"])


@virtual
async def test_every_bug_runs_once_over_many_polls_comments_and_restarts(clock: VirtualClock, tmp_path: Path):
    lab = GitLab(clock)
    lab.projects["acme/search"] = {}
    async with lab.serve():
        write(tmp_path, lab, triage=TRIAGE)
        before, old = lab.open("bug", age=3600), lab.open(age=86_400)
        async with running(tmp_path, clock) as app:
            await clock.sleep(120)
            assert await fired(app, "triage") == {}
            new, late = lab.open("bug"), lab.open("bug", project="acme/search", late=300)
            await clock.sleep(600)
            lab.label(old, "bug")
            lab.comment(before)
            lab.comment(new)
            await clock.sleep(600)
            lab.unlabel(new, "bug")
            await clock.sleep(60)
            lab.label(new, "bug")
            await clock.sleep(600)
        lab.open("bug", project="acme/search")
        await clock.sleep(9 * 3600)
        async with running(tmp_path, clock) as app:
            await clock.sleep(900)
            lab.comment(old)
            await clock.sleep(900)
            ran = await fired(app, "triage")
            explained = await app.operator.call("triggers.explain", name="triage", key="acme/web/shop#2")
        assert ran == {"acme/web/shop#2": 1, "acme/web/shop#3": 1, "acme/search#1": 1, "acme/search#2": 1}
        assert explained["outcome"] == "fired"
        assert [sum(not note["system"] for note in issue.happened["notes"]) for issue in (before, old, new, late)] == [
            1,
            2,
            2,
            1,
        ]
        assert "triaged" in late.labels
        assert "triaged" not in before.labels


@virtual
async def test_a_quiet_night_costs_next_to_nothing(clock: VirtualClock, tmp_path: Path):
    lab = GitLab(clock)
    async with lab.serve():
        write(tmp_path, lab, life=LIFE)
        async with running(tmp_path, clock):
            await clock.sleep(60)
            lab.open()
            await clock.sleep(8 * 3600)
        answers = Counter(seen.status for seen in lab.seen)
        assert answers[304] > 800
        assert answers[200] < 40


@virtual
async def test_250_issues_at_once_all_run(clock: VirtualClock, tmp_path: Path):
    lab = GitLab(clock)
    async with lab.serve():
        write(tmp_path, lab, life=LIFE)
        async with running(tmp_path, clock) as app:
            await clock.sleep(90)
            for _ in range(250):
                lab.open()
            await clock.sleep(900)
            ran = await fired(app, "life")
        assert (len(ran), set(ran.values())) == (250, {1})


@pytest.mark.parametrize("skew", [-90.0, 90.0])
@virtual
async def test_their_clock_may_be_wrong_and_states_may_come_back(clock: VirtualClock, tmp_path: Path, skew: float):
    lab = GitLab(clock, skew=skew)
    async with lab.serve():
        write(tmp_path, lab, life=LIFE)
        old = lab.open(age=86_400)
        async with running(tmp_path, clock) as app:
            await clock.sleep(300)
            for change in (lab.close, lab.reopen, lab.close):
                change(old)
                await clock.sleep(45)
            made = [lab.open() for _ in range(5)]
            await clock.sleep(300)
            ran = await fired(app, "life")
        assert ran == {"acme/web/shop#1": 3} | {f"acme/web/shop#{issue.iid}": 1 for issue in made}


@virtual
async def test_a_limit_is_waited_for_and_a_revoked_token_pauses_and_says_why(clock: VirtualClock, tmp_path: Path):
    lab = GitLab(clock)
    async with lab.serve():
        write(tmp_path, lab, life=LIFE)
        async with running(tmp_path, clock) as app:
            await clock.sleep(60)
            lab.limit(700)
            limited_at = clock.time()
            lab.open()
            await clock.sleep(1500)
            asked = [sent.at - limited_at for sent in lab.seen if sent.at > limited_at]
            assert (await fired(app, "life")) == {"acme/web/shop#1": 1}
            assert sum(after < 700 for after in asked) == 1, "the one that met the limit"
            lab.tokens.clear()
            await clock.sleep(120)
            asked_before = len(lab.seen)
            await clock.sleep(600)
            (feed,) = [state for state in await app.store.feeds() if state.name.startswith("gitlab-")]
        assert len(lab.seen) == asked_before
        assert feed.health.state == "paused"
        assert "harken integrations gitlab configure" in feed.health.message


def test_the_examples_load_with_nothing_but_a_token():
    loaded = load_directory(Path(__file__).parents[2] / "examples" / "gitlab", {"GITLAB_TOKEN": "not-a-token"})
    assert [str(finding) for finding in loaded.findings] == []
    assert {trigger.name for trigger in loaded.triggers} == {"bug-notes", "my-gitlab-issues"}
