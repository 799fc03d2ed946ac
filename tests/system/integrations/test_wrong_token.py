"""A token that does not work stops what it is for, says what to do, and is replaced without loss."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from harken.testing import VirtualClock, virtual
from tests.system.integrations.service_scenarios import SCENES
from tests.system.integrations.single_process import Laptop

WRONG = "wrong-wrong-wrong"
TOLD = """\
name: told
trigger: {event: [feed.paused, feed.recovered]}
steps:
  - {id: tell, action: transform, set: {text: "{{.trigger.event.feed}}"}}
"""
BESIDE = {"pagerduty": "slack", "slack": "jira", "jira": "datadog", "datadog": "pagerduty"}


async def told(laptop: Laptop) -> list[Any]:
    """The alerts, oldest first."""
    found: list[Any] = (await laptop.ask("events.list", feed="harken"))["items"]
    return found[::-1]


@pytest.mark.parametrize("kind", SCENES)
@virtual
async def test_a_wrong_token_pauses_its_triggers_alone_and_a_new_one_loses_nothing(
    clock: VirtualClock, tmp_path: Path, kind: str
):
    bad, good = SCENES[kind](clock), SCENES[BESIDE[kind]](clock)
    async with bad.fake.serve(), good.fake.serve():
        laptop = Laptop(tmp_path, clock, bad, good)
        laptop.write(TOLD)
        laptop.write_accounts(bad.account(WRONG), good.account())
        await laptop.up()
        await clock.sleep(120)
        missed, seen = bad.happen(), good.happen()
        asked = len(bad.fake.seen)
        await clock.sleep(400)
        assert len(bad.fake.seen) == asked, "it is not asked again before somebody acts"
        shown = await laptop.ask("triggers.show", name=bad.trigger)
        assert shown["status"] == "paused"
        assert f"harken integrations {kind} configure" in shown["last_error"]
        assert WRONG not in str(shown)
        assert await laptop.ran(good.trigger) == {seen: 1}
        assert [event["type"] for event in await told(laptop)] == ["feed.paused"]
        laptop.write_accounts(bad.account(), good.account())
        await laptop.ask("reload")
        await clock.sleep(120)
        later = bad.happen()
        await clock.sleep(250)
        assert await laptop.ran(bad.trigger) == Counter([missed, later])
        assert await laptop.ran(good.trigger) == {seen: 1}
        assert [event["type"] for event in await told(laptop)] == ["feed.paused", "feed.recovered"]
        await laptop.down()


@pytest.mark.parametrize("kind", SCENES)
@virtual
async def test_a_token_that_is_revoked_and_replaced_between_two_starts_loses_nothing(
    clock: VirtualClock, tmp_path: Path, kind: str
):
    scene = SCENES[kind](clock)
    async with scene.fake.serve():
        laptop = Laptop(tmp_path, clock, scene)
        laptop.write(TOLD)
        await laptop.up()
        await clock.sleep(95)
        first = scene.happen()
        await clock.sleep(120)
        await laptop.down()
        laptop.write_accounts(scene.account(WRONG))
        missed = scene.happen()
        await laptop.up()
        await clock.sleep(250)
        await laptop.die()
        await laptop.up()
        await clock.sleep(250)
        assert await laptop.ran(scene.trigger) == {first: 1}
        assert [event["type"] for event in await told(laptop)] == ["feed.paused"]
        await laptop.down()
        laptop.write_accounts(scene.account())
        await laptop.up()
        await laptop.ask("triggers.resume", name=scene.trigger)
        await clock.sleep(250)
        assert await laptop.ran(scene.trigger) == Counter([first, missed])
        await laptop.down()


@virtual
async def test_the_second_account_of_a_kind_is_named_in_the_command_that_mends_it(clock: VirtualClock, tmp_path: Path):
    scene = SCENES["jira"](clock)
    async with scene.fake.serve():
        laptop = Laptop(tmp_path, clock, scene)
        laptop.write_accounts(scene.account(WRONG).replace("jira:", "jira-eu:", 1))
        laptop.write(scene.workflow.replace("integration: jira", "integration: jira-eu"))
        await laptop.up()
        await clock.sleep(120)
        wanted = "harken integrations jira-eu configure"
        assert wanted in (await laptop.ask("triggers.show", name=scene.trigger))["last_error"]
        assert wanted in (await laptop.ask("integrations.test", name="jira-eu"))["problems"][0]
        await laptop.down()
