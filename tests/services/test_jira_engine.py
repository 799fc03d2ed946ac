"""A laptop that runs workflows for Jira issues: the whole engine on virtual time, against the fake Jira."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from harken.app import App
from harken.operate.check import load_directory
from harken.testing import VirtualClock, virtual
from harken.testing.fakes.jira import TOKEN, Jira
from tests.services.whole import running

pytestmark = pytest.mark.usefixtures("long_naps")

MAIN = """\
models: {{default: echo}}
integrations:
  jira: {{kind: jira, base_url: "{url}", {signed}, allow_private_networks: true}}
"""

ASSIGNED = """\
name: assigned
description: a summary of each ticket that becomes mine
trigger:
  type: poll
  poll:
    integration: jira
    query: {assignee: "me", project: TEAM}
    interval: 60s
    input_mapping:
      key: "{{.trigger.event.key}}"
steps:
  - id: summarize
    action: llm
    model: balanced
    prompt: "{{.key}}: {{.trigger.event.summary}} {{.trigger.event.description}}"
  - id: tell
    action: jira.comment
    issue: "{{.key}}"
    text: "{{.steps.summarize.response}}"
"""

MOVES = """\
name: moves
trigger:
  poll:
    integration: jira
    query: {assignee: me}
    identity: transition
steps:
  - {id: note, action: transform, set: {text: "{{.trigger.event.previous_status}} to {{.trigger.event.status}}"}}
"""

URGENT = """\
name: urgent
trigger:
  poll:
    integration: jira
    query: {jql: "priority = Highest", allow_jql: true}
steps:
  - {id: note, action: transform, set: {text: "{{.trigger.event.key}}"}}
"""


def write(directory: Path, jira: Jira, **workflows: str) -> None:
    (directory / "workflows").mkdir(exist_ok=True)
    signed = f"email: me@example.com, token: {TOKEN}" if jira.cloud else f"token: {TOKEN}"
    (directory / "harken.yaml").write_text(MAIN.format(url=jira.url, signed=signed))
    for name, text in workflows.items():
        (directory / "workflows" / f"{name}.yaml").write_text(text)


async def fired(app: App, trigger: str) -> Counter[str]:
    """How often the trigger ran for the issues of each key, all runs being done."""
    runs: list[Any] = (await app.operator.call("runs.list", trigger=trigger, limit=500))["items"]
    assert {run["status"] for run in runs} <= {"done"}, [run["error"] for run in runs]
    keys = Counter(key for run in runs for key in run["event_keys"])
    assert set(keys.values()) <= {1}, "each occurrence once"
    return Counter(key.partition("#")[0] for key in keys)


@pytest.mark.parametrize("cloud", [True, False], ids=["cloud", "server"])
@virtual
async def test_a_ticket_runs_once_each_time_it_becomes_mine_over_edits_sleep_and_restarts(
    clock: VirtualClock, tmp_path: Path, cloud: bool
):
    jira = Jira(clock, cloud=cloud)
    jira.user("bob")
    async with jira.serve():
        write(tmp_path, jira, assigned=ASSIGNED)
        before, others = jira.create(assignee="me"), jira.create(assignee="bob")
        await clock.sleep(86_400)
        async with running(tmp_path, clock) as app:
            await clock.sleep(120)
            jira.edit(before, "edited after the start")
            new = jira.create(assignee="me", summary="Printer on fire")
            jira.late = 200
            late = jira.create(assignee="me")
            jira.late = 0
            await clock.sleep(600)
            jira.assign(others, "me")
            jira.edit(new, "Printer still on fire")
            await clock.sleep(36 * 3600)
            jira.edit(new, "Printer out")
            await clock.sleep(600)
        asleep = jira.create(assignee="me")
        jira.edit(before, "edited again")
        await clock.sleep(9 * 3600)
        async with running(tmp_path, clock) as app:
            await clock.sleep(300)
            jira.assign(new, "bob")
            await clock.sleep(300)
            jira.assign(new, "me")
            await clock.sleep(3600)
            assert await fired(app, "assigned") == {new: 2, late: 1, others: 1, asleep: 1}
            hint = await app.operator.call("triggers.explain", name="assigned", key=others)
            assert f"{others}#h" in str(hint), "the key of the occurrence is found by that of the issue"
        comments = {key: len(jira.issue(key).comments) for key in (before, new, late, others, asleep)}
        assert comments == {before: 0, new: 2, late: 1, others: 1, asleep: 1}


@virtual
async def test_250_tickets_at_once_all_run(clock: VirtualClock, tmp_path: Path):
    jira = Jira(clock, cloud=True)
    async with jira.serve():
        write(tmp_path, jira, assigned=ASSIGNED.partition("  - id: tell")[0])
        async with running(tmp_path, clock) as app:
            await clock.sleep(90)
            wanted = [jira.create(assignee="me") for _ in range(250)]
            await clock.sleep(900)
            assert await fired(app, "assigned") == Counter(wanted)


@virtual
async def test_every_change_of_status_runs_also_of_an_old_ticket_and_back(clock: VirtualClock, tmp_path: Path):
    jira = Jira(clock, cloud=False)
    async with jira.serve():
        write(tmp_path, jira, moves=MOVES)
        old = jira.create(assignee="me")
        await clock.sleep(86_400)
        async with running(tmp_path, clock) as app:
            await clock.sleep(60)
            for status in ("In Progress", "To Do", "In Progress"):
                jira.move(old, status)
                jira.edit(old, "beside it")
                await clock.sleep(7)
            await clock.sleep(7200)
            assert await fired(app, "moves") == {old: 3}


@virtual
async def test_raw_jql_runs_for_what_it_finds_newly_and_is_quiet_about_the_rest(clock: VirtualClock, tmp_path: Path):
    jira = Jira(clock, cloud=True)
    async with jira.serve():
        write(tmp_path, jira, urgent=URGENT)
        old = jira.create(priority="Highest")
        raised = jira.create(priority="Low")
        async with running(tmp_path, clock) as app:
            await clock.sleep(300)
            jira.edit(old, "edited")
            jira.prioritise(raised, "Highest")
            await clock.sleep(40 * 3600)
            assert await fired(app, "urgent") == {raised: 1}


@virtual
async def test_a_limit_is_waited_for_and_a_revoked_token_pauses_and_says_why(clock: VirtualClock, tmp_path: Path):
    jira = Jira(clock, cloud=True)
    async with jira.serve():
        write(tmp_path, jira, assigned=ASSIGNED)
        async with running(tmp_path, clock) as app:
            await clock.sleep(100)
            jira.limit(700)
            limited_at = clock.time()
            made = jira.create(assignee="me")
            await clock.sleep(1500)
            asked = [sent.at - limited_at for sent in jira.seen if sent.at > limited_at]
            assert await fired(app, "assigned") == {made: 1}
            assert sum(after < 700 for after in asked) == 1, "the one that met the limit"
            jira.login = "anonymous"
            await clock.sleep(120)
            asked_before = len(jira.seen)
            await clock.sleep(600)
            (feed,) = [state for state in await app.store.feeds() if state.name.startswith("jira-")]
        assert len(jira.seen) == asked_before
        assert feed.health.state == "paused"
        assert "harken integrations jira configure" in feed.health.message
        assert TOKEN not in feed.health.message


def test_the_examples_load_with_nothing_but_the_environment():
    environment = {"JIRA_BASE_URL": "https://x.atlassian.net", "JIRA_EMAIL": "a@b.c", "JIRA_API_TOKEN": "not-a-token"}
    loaded = load_directory(Path(__file__).parents[2] / "examples" / "jira", environment)
    assert [str(finding) for finding in loaded.findings] == []
    assert {trigger.name for trigger in loaded.triggers} == {"ticket-summary", "mention-answer", "review-started"}
