"""A laptop that runs workflows for PagerDuty incidents: the whole engine on virtual time, against the fake account."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from harken.operate.load_and_check_configuration import load_directory
from harken.testing import VirtualClock, virtual
from harken.testing.fakes.pagerduty import PagerDuty
from tests.services.trackers import LimitContract, Watched
from tests.services.whole import occurrences, running, write

MAIN = """\
models: {{default: echo}}
integrations:
  pagerduty: {{kind: pagerduty, token: personal-key, base_url: "{url}", allow_private_networks: true}}
"""

TRIAGE = """\
name: triage
description: a first look when I am paged
trigger:
  type: poll
  poll:
    integration: pagerduty
    query: {user_id: "PME", services: ["PSVC1", "PSVC2"], statuses: [triggered, acknowledged]}
    interval: 30s
    input_mapping:
      incident_id: "{{.trigger.event.id}}"
      incident_title: "{{.trigger.event.title}}"
steps:
  - id: look
    action: llm
    model: balanced
    prompt: "I was paged: {{.incident_title}}"
  - id: note
    action: pagerduty.note
    incident: "{{.incident_id}}"
    content: "{{.steps.look.response}}"
"""

TEAM = """\
name: team
trigger:
  type: poll
  poll:
    integration: pagerduty
    query: {services: ["PSVC1"], statuses: [triggered]}
    interval: 60s
steps:
  - {id: sum, action: llm, model: fast, prompt: "{{.trigger.event.title}} {{.trigger.event.assignments}}"}
"""

LIFE = """\
name: life
trigger:
  poll:
    integration: pagerduty
    query: {user_id: PME}
    identity: transition
steps:
  - {id: sum, action: transform, set: {text: "{{.trigger.event.status}}"}}
"""

CLOSED = """\
name: closed
trigger:
  poll:
    integration: pagerduty
    query: {statuses: resolved}
steps:
  - {id: sum, action: transform, set: {text: "{{.trigger.event.resolved_at}}"}}
"""


@virtual
async def test_incidents_of_mine_run_once_each_over_many_polls_sleep_and_restarts(clock: VirtualClock, tmp_path: Path):
    duty = PagerDuty(clock)
    async with duty.serve() as url:
        write(tmp_path, MAIN.format(url=url), triage=TRIAGE)
        before = duty.trigger("from before", age=3600)
        old = duty.trigger("somebody else's", to="POTHER", age=86_400)
        async with running(tmp_path, clock) as app:
            await clock.sleep(120)
            assert await occurrences(app) == []
            page, late = duty.trigger("disk full"), duty.trigger("late", late=75)
            await clock.sleep(600)
            duty.assign(old, "PME")
            duty.acknowledge(page)
            await clock.sleep(600)
        duty.trigger("while the laptop was closed")
        await clock.sleep(9 * 3600)
        async with running(tmp_path, clock) as app:
            await clock.sleep(300)
            duty.assign(page, "POTHER")
            await clock.sleep(300)
            duty.assign(page, "PME")
            await clock.sleep(3600)
            ran = await occurrences(app)
            explained = await app.operator.call("triggers.explain", name="triage", key=old)
        assert Counter(key.partition("@")[0] for key in ran) == {page: 2, late: 1, old: 1, "PINC5": 1}
        assert page in ran
        assert explained["outcome"] == "fired"
        assert duty.incidents[before].notes == []
        assert [len(duty.incidents[name].notes) for name in (page, late, old, "PINC5")] == [2, 1, 1, 1]


@virtual
async def test_250_incidents_at_once_on_a_service_all_run_and_only_those(clock: VirtualClock, tmp_path: Path):
    duty = PagerDuty(clock)
    async with duty.serve() as url:
        write(tmp_path, MAIN.format(url=url), team=TEAM)
        async with running(tmp_path, clock) as app:
            await clock.sleep(90)
            wanted = {duty.trigger() for _ in range(250)}
            duty.trigger(service="PSVC2")
            await clock.sleep(900)
            ran = Counter(await occurrences(app))
        assert ran == Counter(wanted)


@virtual
async def test_every_change_of_status_runs_once_and_one_may_come_back(clock: VirtualClock, tmp_path: Path):
    duty = PagerDuty(clock)
    async with duty.serve() as url:
        write(tmp_path, MAIN.format(url=url), life=LIFE)
        old = duty.trigger(age=86_400)
        async with running(tmp_path, clock) as app:
            await clock.sleep(60)
            for change in (duty.acknowledge, duty.retrigger, duty.acknowledge):
                change(old)
                await clock.sleep(60)
            ran = Counter(await occurrences(app))
        assert ran == Counter([f"{old}@acknowledged#2", f"{old}@triggered#3", f"{old}@acknowledged#4"])


@pytest.mark.parametrize("skew", [-90.0, 90.0])
@virtual
async def test_their_clock_may_be_wrong(clock: VirtualClock, tmp_path: Path, skew: float):
    duty = PagerDuty(clock, skew=skew)
    async with duty.serve() as url:
        write(tmp_path, MAIN.format(url=url), closed=CLOSED)
        async with running(tmp_path, clock) as app:
            await clock.sleep(300)
            made = [duty.trigger() for _ in range(20)]
            for name in made:
                await clock.sleep(45)
                duty.resolve(name)
            await clock.sleep(300)
            ran = Counter(await occurrences(app))
        assert ran == Counter(made)


@virtual
async def test_the_first_incidents_of_a_service_whose_clock_is_behind_run_and_older_ones_do_not(
    clock: VirtualClock, tmp_path: Path
):
    duty = PagerDuty(clock, skew=-300.0)
    async with duty.serve() as url:
        write(tmp_path, MAIN.format(url=url), team=TEAM)
        duty.trigger(age=86_400)
        duty.trigger(age=30)
        async with running(tmp_path, clock) as app:
            made = [duty.trigger()]
            for _ in range(8):
                await clock.sleep(45)
                made.append(duty.trigger())
            await clock.sleep(300)
            ran = Counter(await occurrences(app))
            (feed,) = [state.name for state in await app.store.feeds() if state.name.startswith("pagerduty-")]
            shown = await app.operator.call("feeds.show", name=feed)
            advice = {check["name"]: check for check in (await app.operator.call("doctor"))["items"]}
        assert ran == Counter(made)
        assert shown["clock_skew"] == pytest.approx(-300.0, abs=2)
        assert advice["service clocks"]["state"] == "warn"
        assert "5m" in advice["service clocks"]["message"]
        assert "behind our clock" in advice["service clocks"]["message"]


class TestLimits(LimitContract):
    kind, main, life, secret = "pagerduty", MAIN, TRIAGE, "personal-key"

    def watched(self, clock: VirtualClock) -> Watched:
        duty = PagerDuty(clock)
        return Watched(fake=duty, open=duty.trigger, key=str, limit=duty.limit, revoke=duty.keys.clear)


def test_the_examples_load_with_nothing_but_a_token():
    loaded = load_directory(Path(__file__).parents[2] / "examples" / "pagerduty", {"PAGERDUTY_TOKEN": "not-a-token"})
    assert [str(finding) for finding in loaded.findings] == []
    assert {trigger.name for trigger in loaded.triggers} == {"my-triage", "team-services"}
