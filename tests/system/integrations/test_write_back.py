"""What a workflow writes into a service is there once, though the process dies after the service has accepted it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from harken.testing import VirtualClock, virtual
from tests.system.integrations.service_scenarios import SCENES
from tests.system.integrations.single_process import Laptop

# the step, and what of its requests is the one that changes something
STEPS = {
    "pagerduty.note": (
        '{id: act, action: pagerduty.note, incident: "{{.trigger.event.id}}", content: seen}',
        ("POST", "/notes"),
    ),
    "pagerduty.acknowledge": (
        '{id: act, action: pagerduty.acknowledge, incident: "{{.trigger.event.id}}"}',
        ("PUT", "/incidents/PINC1"),
    ),
    "slack.post": (
        '{id: act, action: slack.post, channel: "{{.trigger.event.channel.id}}",'
        ' thread_ts: "{{.trigger.event.thread_ts}}", text: seen}',
        ("POST", "/chat.postMessage"),
    ),
    "jira.comment": (
        '{id: act, action: jira.comment, issue: "{{.trigger.event.key}}", text: seen}',
        ("POST", "/comment"),
    ),
    "jira.transition": (
        '{id: act, action: jira.transition, issue: "{{.trigger.event.key}}", to: In Progress}',
        ("POST", "/transitions"),
    ),
    "datadog.mute": (
        '{id: act, action: datadog.mute, monitor: "{{.trigger.event.id}}", for: 2h}',
        ("POST", "/api/v2/downtime"),
    ),
}


@pytest.mark.parametrize("action", STEPS)
@virtual
async def test_a_write_that_was_accepted_before_a_crash_is_not_written_again(
    clock: VirtualClock, tmp_path: Path, action: str
):
    step, write = STEPS[action]
    scene = SCENES[action.partition(".")[0]](clock)
    scene.workflow = f"{scene.workflow}  - {step}\n"
    fake = scene.fake
    fake.hold(*write)
    async with fake.serve():
        laptop = Laptop(tmp_path, clock, scene)
        await laptop.up()
        await clock.sleep(95)
        key = scene.happen()
        async with asyncio.timeout(300):
            await fake.accepted.wait()
        await laptop.die()
        await laptop.up()
        await clock.sleep(180)
        assert await laptop.ran(scene.trigger) == {key: 1}
        await laptop.down()

    again = [seen.path for seen in fake.seen if fake.writes(seen.method, seen.path)]
    assert again == []
