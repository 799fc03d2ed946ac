"""A laptop that runs workflows for Jira issues: the whole engine on virtual time, against the fake Jira."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from harken.operate.load_and_check_configuration import load_directory
from harken.testing import VirtualClock, virtual
from harken.testing.fakes.jira import TOKEN, Jira
from tests.services.trackers import LimitContract, Watched
from tests.services.whole import fired, running, write
from tests.timings import LONG_NAPS

MAIN = """\
models: {{default: echo}}
integrations:
  jira: {{kind: jira, base_url: "{url}", SIGNED, allow_private_networks: true}}
"""
SERVER = MAIN.replace("SIGNED", f"token: {TOKEN}")
CLOUD = MAIN.replace("SIGNED", f"email: me@example.com, token: {TOKEN}")

ASSIGNED = """\
name: assigned
description: a summary of each ticket that becomes mine
trigger:
  type: poll
  poll:
    integration: jira
    query: {assignee: "me", project: TEAM}
    interval: 5m
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
    interval: 5m
steps:
  - {id: note, action: transform, set: {text: "{{.trigger.event.key}}"}}
"""


@pytest.mark.parametrize(("cloud", "main"), [(True, CLOUD), (False, SERVER)], ids=["cloud", "server"])
@virtual
async def test_a_ticket_runs_once_each_time_it_becomes_mine_over_edits_sleep_and_restarts(
    clock: VirtualClock, tmp_path: Path, cloud: bool, main: str
):
    jira = Jira(clock, cloud=cloud)
    jira.user("bob")
    async with jira.serve() as url:
        write(tmp_path, main.format(url=url), assigned=ASSIGNED)
        before, others = jira.create(assignee="me"), jira.create(assignee="bob")
        await clock.sleep(86_400)
        async with running(tmp_path, clock, timings=LONG_NAPS) as app:
            await clock.sleep(120)
            jira.edit(before, "edited after the start")
            new = jira.create(assignee="me", summary="Printer on fire")
            jira.late = 200
            late = jira.create(assignee="me")
            jira.late = 0
            await clock.sleep(600)
            jira.assign(others, "me")
            jira.edit(new, "Printer still on fire")
            await clock.sleep(26 * 3600)
            jira.edit(new, "Printer out")
            await clock.sleep(600)
        asleep = jira.create(assignee="me")
        jira.edit(before, "edited again")
        await clock.sleep(9 * 3600)
        async with running(tmp_path, clock, timings=LONG_NAPS) as app:
            await clock.sleep(900)
            jira.assign(new, "bob")
            await clock.sleep(900)
            jira.assign(new, "me")
            await clock.sleep(3600)
            assert await fired(app, "#") == {new: 2, late: 1, others: 1, asleep: 1}
            hint = await app.operator.call("triggers.explain", name="assigned", key=others)
            assert f"{others}#h" in str(hint), "the key of the occurrence is found by that of the issue"
        comments = {key: len(jira.issue(key).comments) for key in (before, new, late, others, asleep)}
        assert comments == {before: 0, new: 2, late: 1, others: 1, asleep: 1}


@virtual
async def test_250_tickets_at_once_all_run(clock: VirtualClock, tmp_path: Path):
    jira = Jira(clock, cloud=True)
    async with jira.serve() as url:
        write(tmp_path, CLOUD.format(url=url), assigned=ASSIGNED.partition("  - id: tell")[0])
        async with running(tmp_path, clock, timings=LONG_NAPS) as app:
            await clock.sleep(90)
            wanted = [jira.create(assignee="me") for _ in range(250)]
            await clock.sleep(900)
            assert await fired(app, "#") == Counter(wanted)


@virtual
async def test_the_first_tickets_of_a_jira_whose_clock_is_behind_run_and_older_ones_do_not(
    clock: VirtualClock, tmp_path: Path
):
    jira = Jira(clock, cloud=True)
    jira.skew = -300.0
    async with jira.serve() as url:
        write(tmp_path, CLOUD.format(url=url), assigned=ASSIGNED.partition("  - id: tell")[0])
        jira.create(assignee="me")
        await clock.sleep(30)
        async with running(tmp_path, clock, timings=LONG_NAPS) as app:
            made = [jira.create(assignee="me")]
            for _ in range(8):
                await clock.sleep(45)
                made.append(jira.create(assignee="me"))
            await clock.sleep(300)
            assert await fired(app, "#") == Counter(made)


@virtual
async def test_every_change_of_status_runs_also_of_an_old_ticket_and_back(clock: VirtualClock, tmp_path: Path):
    jira = Jira(clock, cloud=False)
    async with jira.serve() as url:
        write(tmp_path, SERVER.format(url=url), moves=MOVES)
        old = jira.create(assignee="me")
        await clock.sleep(86_400)
        async with running(tmp_path, clock, timings=LONG_NAPS) as app:
            await clock.sleep(60)
            for status in ("In Progress", "To Do", "In Progress"):
                jira.move(old, status)
                jira.edit(old, "beside it")
                await clock.sleep(7)
            await clock.sleep(7200)
            assert await fired(app, "#") == {old: 3}


@virtual
async def test_raw_jql_runs_for_what_it_finds_newly_and_is_quiet_about_the_rest(clock: VirtualClock, tmp_path: Path):
    jira = Jira(clock, cloud=True)
    async with jira.serve() as url:
        write(tmp_path, CLOUD.format(url=url), urgent=URGENT)
        old = jira.create(priority="Highest")
        raised = jira.create(priority="Low")
        async with running(tmp_path, clock, timings=LONG_NAPS) as app:
            await clock.sleep(900)
            jira.edit(old, "edited")
            jira.prioritise(raised, "Highest")
            await clock.sleep(40 * 3600)
            assert await fired(app, "#") == {raised: 1}


class TestLimits(LimitContract):
    kind, main, life, secret = "jira", CLOUD, ASSIGNED, TOKEN
    mark = "#"

    def watched(self, clock: VirtualClock) -> Watched:
        jira = Jira(clock, cloud=True)
        return Watched(
            fake=jira,
            open=partial(jira.create, assignee="me"),
            key=str,
            limit=jira.limit,
            revoke=partial(setattr, jira, "login", "anonymous"),
        )


def test_the_examples_load_with_nothing_but_the_environment():
    environment = {"JIRA_BASE_URL": "https://x.atlassian.net", "JIRA_EMAIL": "a@b.c", "JIRA_API_TOKEN": "not-a-token"}
    loaded = load_directory(Path(__file__).parents[2] / "examples" / "jira", environment)
    assert [str(finding) for finding in loaded.findings] == []
    assert {trigger.name for trigger in loaded.triggers} == {"ticket-summary", "mention-answer", "review-started"}
