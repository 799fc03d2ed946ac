"""Workflows as people paste them load as they are, and run once for each thing that happens: hours of polling,
sleep and restarts included."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from harken.operate.load_and_check_configuration import load_directory
from harken.testing import VirtualClock, virtual
from tests.system.integrations.service_scenarios import (
    ALERTS,
    ASSIGNED,
    MENTIONS,
    TRIAGE,
    Alerts,
    Duty,
    Mentions,
    Tickets,
)
from tests.system.integrations.single_process import Laptop, name_of

HOUR = 3600.0
AWAKE = HOUR / 4
PERSONAL = """\
name: personal-triage
description: only what is assigned to me
trigger:
  type: poll
  poll:
    integration: pagerduty
    query:
      user_id: "PUSER123"
      statuses: [triggered, acknowledged]
    interval: 30s
steps:
  - id: triage
    action: llm
    model: balanced
    prompt: |
      {{.trigger.event.title}} {{.trigger.event.service.name}} {{.trigger.event.urgency}} {{.trigger.event.html_url}}
"""
TEAM = """\
name: team-service-monitor
description: whatever breaks on the services of the team
trigger:
  type: poll
  poll:
    integration: pagerduty
    query:
      services: ["PSVC1", "PSVC2", "PSVC3"]
      statuses: [triggered]
    interval: 60s
steps:
  - id: summarize
    action: llm
    model: fast
    prompt: |
      {{.trigger.event.title}} on {{.trigger.event.service.name}}, with {{.trigger.event.assignments}}
"""
STARTUP = """\
name: {name}
trigger:
  type: poll
  poll:
    integration: pagerduty
    query: {{services: ["PSVC1"], statuses: [triggered]}}
    interval: 60s
    {startup}
steps:
  - {{id: sum, action: llm, model: fast, prompt: "{{{{.trigger.event.title}}}}"}}
"""
MODES = {
    "since-last": "startup: since_last",
    "only-new": "startup: ignore_historical",
    "four-hours": "startup: backfill\n    backfill: 4h",
}
ENVIRONMENT = {
    "PAGERDUTY_TOKEN": "not-a-token",
    "SLACK_BOT_TOKEN": "xoxb-not-a-token",
    "JIRA_BASE_URL": "https://acme.example",
    "JIRA_EMAIL": "me@example.com",
    "JIRA_API_TOKEN": "not-a-token",
    "DATADOG_API_KEY": "a" * 32,
    "DATADOG_APP_KEY": "b" * 40,
}


@asynccontextmanager
async def after_a_night(laptop: Laptop) -> AsyncIterator[None]:
    """It is opened in the morning and catches up; at the end of the block it is closed again."""
    await laptop.clock.sleep(9 * HOUR)
    await laptop.up()
    await laptop.clock.sleep(AWAKE)
    yield
    await laptop.down()


@pytest.mark.parametrize("workflow", [TRIAGE, PERSONAL, TEAM, MENTIONS, ASSIGNED, ALERTS], ids=name_of)
def test_each_loads_with_nothing_but_the_token_in_the_environment(tmp_path: Path, workflow: str):
    (tmp_path / "workflows").mkdir()
    (tmp_path / "workflows" / "pasted.yaml").write_text(workflow, "utf-8")
    (tmp_path / "harken.yaml").write_text("models: {default: echo}\n", "utf-8")

    loaded = load_directory(tmp_path, ENVIRONMENT)

    assert [str(finding) for finding in loaded.findings] == []
    assert [trigger.name for trigger in loaded.triggers] == [name_of(workflow)]


@virtual
async def test_pagerduty_mine_and_the_teams(clock: VirtualClock, tmp_path: Path):
    scene = Duty(clock)
    duty = scene.fake
    async with duty.serve():
        laptop = Laptop(tmp_path, clock, scene)
        laptop.write(TEAM)
        duty.trigger("From before", age=HOUR)
        others = duty.trigger("Somebody else's", to="POTHER", age=HOUR)
        await laptop.up()
        await clock.sleep(AWAKE)
        mine, late = duty.trigger("Disk full", urgency="low"), duty.trigger("Late", late=70)
        team = duty.trigger("Not mine", to="POTHER", service="PSVC2")
        duty.trigger("Another service", to="POTHER", service="PSVC9")
        await clock.sleep(AWAKE)
        duty.acknowledge(mine, team)
        duty.assign(others, "PME")
        await clock.sleep(AWAKE)
        await laptop.down()
        asleep = duty.trigger("While it was closed")
        async with after_a_night(laptop):
            ran, said = await laptop.ran(scene.trigger), await laptop.said(scene.trigger)
            of_team = await laptop.ran("team-service-monitor")
            told = await laptop.said("team-service-monitor")

    assert set(ran.values()) == {1}
    assert {key.partition("@")[0] for key in ran} == {mine, late, others, asleep}
    assert of_team == Counter([mine, late, team, asleep])
    assert f'{mine} "Disk full" (low) on Checkout\nhttps://acme.pagerduty.com/incidents/{mine}' in said[mine]
    assert 'Not mine on Search, with [{"id":"POTHER"' in told[team]


@virtual
async def test_slack_mentions_in_channels_and_old_threads(clock: VirtualClock, tmp_path: Path):
    scene = Mentions(clock)
    slack = scene.fake
    old = slack.say("C1", "an old question", age=5 * 24 * HOUR)
    slack.say("C1", "<@U1> from before", user="U2", age=HOUR)
    async with slack.serve():
        laptop = Laptop(tmp_path, clock, scene)
        await laptop.up()
        await clock.sleep(AWAKE)
        asked = [scene.happen(), scene.happen(late=60)]
        slack.say("C2", "<@U2> not for me", user="U1")
        slack.say("C2", "<@U1> from a bot", user="", bot_id="B9", subtype="bot_message")
        await clock.sleep(AWAKE)
        asked.append(f"C1:{slack.say('C1', '<@U1> and now?', user='U2', thread=old)}")
        slack.edit("C1", asked[0].partition(":")[2], "<@U1> put otherwise")
        await clock.sleep(AWAKE)
        await laptop.down()
        asked.append(scene.happen())
        async with after_a_night(laptop):
            ran, said = await laptop.ran(scene.trigger), await laptop.said(scene.trigger)

    assert ran == Counter(asked)
    assert "Bob wrote in #engineering:\n@Jo and now?" in said[asked[2]]


@virtual
async def test_jira_tickets_that_are_mine_or_become_mine(clock: VirtualClock, tmp_path: Path):
    scene = Tickets(clock)
    jira = scene.fake
    jira.user("bob")
    before, others = jira.create("MYTEAM", assignee="jsmith"), jira.create("MYTEAM", assignee="bob")
    await clock.sleep(HOUR)
    async with jira.serve():
        laptop = Laptop(tmp_path, clock, scene)
        await laptop.up()
        await clock.sleep(AWAKE)
        made = [scene.happen(), scene.happen(late=200)]
        jira.create("TEAM", assignee="jsmith")
        jira.edit(before, "edited since")
        await clock.sleep(AWAKE)
        jira.assign(others, "jsmith")
        await clock.sleep(AWAKE)
        await laptop.down()
        made.append(scene.happen())
        jira.edit(others, "edited since")
        async with after_a_night(laptop):
            ran, said = await laptop.ran(scene.trigger), await laptop.said(scene.trigger)

    assert set(ran.values()) == {1}
    assert {key.partition("#")[0] for key in ran} == {others, *(key.partition("#")[0] for key in made)}
    text = f"{made[0].partition('#')[0]} Printer on fire\nTask, Medium, from Mia Me\nIt burns."
    assert text in said[made[0]]


@virtual
async def test_datadog_changes_of_monitors_and_their_groups(clock: VirtualClock, tmp_path: Path):
    scene = Alerts(clock)
    datadog = scene.fake
    wide = datadog.monitor("host:a", "host:b", name="Errors", tags=["service:api"])
    before, others = datadog.monitor(tags=["team:platform"]), datadog.monitor(tags=["team:mobile"])
    datadog.change(before, "Alert")
    await clock.sleep(HOUR)
    async with datadog.serve():
        laptop = Laptop(tmp_path, clock, scene)
        await laptop.up()
        await clock.sleep(AWAKE)
        changed = [scene.happen(), scene.happen(late=70)]
        datadog.change(others, "Alert")
        for status, word in (("Warn", "warn"), ("Alert", "triggered"), ("OK", ""), ("Alert", "triggered")):
            datadog.change(wide, status, "host:a")
            changed += [f"{wide}:host:a@{word}@{scene.at()}"] if word else []
            await clock.sleep(300)
        datadog.remind(wide, "host:a")
        await clock.sleep(AWAKE)
        await laptop.down()
        changed.append(scene.happen())
        async with after_a_night(laptop):
            ran, said = await laptop.ran(scene.trigger), await laptop.said(scene.trigger)

    assert ran == Counter(changed)
    assert 'Errors is warn\n["service:api"]\nThe load is high. @team' in said[changed[2]]


@virtual
async def test_the_three_ways_to_start(clock: VirtualClock, tmp_path: Path):
    scene = Duty(clock)
    duty = scene.fake
    async with duty.serve():
        laptop = Laptop(tmp_path, clock, scene)
        for name, startup in MODES.items():
            laptop.write(STARTUP.format(name=name, startup=startup))
        recent, ancient = duty.trigger(age=2 * HOUR), duty.trigger(age=6 * HOUR)
        await laptop.up()
        await clock.sleep(300)
        new = duty.trigger()
        await clock.sleep(300)
        await laptop.down()
        asleep = duty.trigger()
        await clock.sleep(AWAKE)
        await laptop.up()
        await clock.sleep(300)
        awake = duty.trigger()
        await clock.sleep(300)
        ran = {name: await laptop.ran(name) for name in MODES}
        await laptop.down()

    assert ran["since-last"] == Counter([new, asleep, awake])
    assert ran["only-new"] == Counter([new, awake])
    assert ran["four-hours"] == Counter([recent, new, asleep, awake])
    assert ancient not in ran["four-hours"]
