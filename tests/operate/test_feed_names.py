"""Feeds made from a workflow are named after it wherever a person sees them; what is stored keeps its name."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from harken.errors import NotFound
from harken.testing import VirtualClock, virtual
from harken.testing.fakes import Answer, Listing
from tests.system.hostile.misbehaving_server import write
from tests.system.hostile.world import House, listing

MAIN = "store: harken.db\nintegrations:\n  shop: {kind: json, allow_private_networks: true}\n"
POLL = """\
trigger:
  poll:
    integration: shop
    interval: 60s
    query: {{url: "{url}/all", items_path: items, time_field: created_at}}
"""


@asynccontextmanager
async def watched(directory: Path, clock: VirtualClock, *names: str) -> AsyncIterator[tuple[House, Listing]]:
    """A shop with one item, that workflows of these names watch."""
    async with listing(clock) as shop:
        trigger = POLL.format(url=shop.url)
        write(directory, MAIN, **dict.fromkeys(names, trigger))
        house = House(directory, clock)
        await house.up()
        await clock.sleep(90)
        shop.add("item-1")
        await clock.sleep(90)
        yield house, shop
        await house.down()


def id_of(house: House) -> str:
    [found] = [feed.name for feed in house.app.loaded.feeds if feed.kind == "json"]
    return found


@virtual
async def test_lists_explain_and_status_show_the_workflow_and_json_has_the_id_beside_it(
    tmp_path: Path, clock: VirtualClock
) -> None:
    async with watched(tmp_path, clock, "hello") as (house, _):
        id = id_of(house)
        [trigger] = (await house.ask("triggers.list"))["items"]
        [event] = (await house.ask("events.list"))["items"]
        feeds = (await house.ask("feeds.list"))["items"]
        unseen = await house.ask("triggers.explain", name="hello", key="another")
        integrations = (await house.ask("integrations.list"))["items"]
        budget = (await house.ask("budget.list"))["items"]
        shown = await house.ask("triggers.show", name="hello")
        ran = await house.ask("triggers.run", name="hello")

        assert (trigger["feed"], trigger["feed_id"]) == ("hello", id)
        assert (event["feed"], event["feed_id"]) == ("hello", id)
        assert [(row["name"], row["id"]) for row in feeds if row["kind"] == "json"] == [("hello", id)]
        assert unseen["details"]["feed"] == "hello"
        assert "harken feeds show hello" in " ".join(unseen["advice"])
        assert [row["feeds"] for row in integrations if row["name"] == "shop"] == [["hello"]]
        assert [row["feeds"] for row in budget] == [["hello"]]
        assert (shown["feed"], ran["feed"], ran["feed_id"]) == ("hello", "hello", id)
        answers = json.dumps([trigger, event, unseen, integrations, budget, shown, ran])
        assert answers.count(id) == answers.count(f'"feed_id": "{id}"') == 4


@virtual
async def test_a_person_may_write_the_workflow_the_id_or_any_workflow_that_shares_the_feed(
    tmp_path: Path, clock: VirtualClock
) -> None:
    async with watched(tmp_path, clock, "hello", "urgent") as (house, _):
        id = id_of(house)
        for name in ("hello", "urgent", id):
            assert [row["key"] for row in (await house.ask("events.list", feed=name))["items"]] == ["item-1"]
            found = await house.ask("feeds.show", name=name)
            assert (found["name"], found["id"], found["triggers"]) == ("hello", id, ["hello", "urgent"])
        with pytest.raises(NotFound) as caught:
            await house.ask("feeds.show", name="helo")
        assert caught.value.fix == "Did you mean hello?"


@virtual
async def test_renaming_the_workflow_keeps_every_stored_row_of_its_feed(tmp_path: Path, clock: VirtualClock) -> None:
    async with watched(tmp_path, clock, "hello") as (house, shop):
        id = id_of(house)
        # reads that found nothing are written now and then, and with a reload
        await house.app.intake.idle_reads.write()
        before = await house.app.store.state(id)
        (tmp_path / "workflows" / "hello.yaml").unlink()
        write(tmp_path, MAIN, hallo=POLL.format(url=shop.url))
        source = house.app.intake.feeds[id].source
        plan = await house.ask("reload")
        after = await house.app.store.state(id)

        assert "hallo: the feed that was shown as hello; its cursor and memory stay" in plan["notes"]
        kept = ("name", "cursor", "watermark", "memory", "reads", "baselined", "created_at", "coverage", "seen")
        assert {name: getattr(after, name) for name in kept} == {name: getattr(before, name) for name in kept}
        assert house.app.intake.feeds[id].source is source, "and it is read on undisturbed"
        [event] = (await house.ask("events.list", feed="hallo"))["items"]
        assert (event["feed"], event["key"]) == ("hallo", "item-1")
        shop.add("item-2")
        await clock.sleep(90)
        assert await house.fired("hallo") == ["item-2"], "nothing is read as new again"


@virtual
async def test_a_feed_that_left_the_configuration_is_shown_by_its_id(tmp_path: Path, clock: VirtualClock) -> None:
    async with watched(tmp_path, clock, "hello") as (house, shop):
        id = id_of(house)
        write(tmp_path, MAIN, hello=POLL.format(url=shop.url).replace("60s", "60s\n    lookback: 1h"))
        await house.ask("reload")

        [event] = (await house.ask("events.list"))["items"]
        assert event["feed"] == event["feed_id"] == id
        assert [row["key"] for row in (await house.ask("events.list", feed=id))["items"]] == ["item-1"]
        assert (await house.ask("events.list", feed="hello"))["items"] == []


@virtual
async def test_trouble_names_the_workflow_in_logs_health_doctor_and_alerts(
    tmp_path: Path, clock: VirtualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    async with watched(tmp_path, clock, "hello") as (house, shop):
        id = id_of(house)
        capsys.readouterr()
        shop.answers.append(Answer(status=401))
        await clock.sleep(150)
        [trigger] = (await house.ask("triggers.list"))["items"]
        doctor = {check["name"]: check["message"] for check in (await house.ask("doctor"))["items"]}
        alert = await _alert(house)
        logged = [line for line in capsys.readouterr().out.splitlines() if "feed.paused" in line]

        assert trigger["reason"].startswith("its feed hello stopped: ")
        assert doctor["feeds"].startswith("1 feed failing; hello: ")
        assert (alert["feed"], alert["feed_id"]) == ("hello", id)
        assert alert["text"].startswith("hello (json) has stopped")
        assert house.app._telemetry.health()["subsystems"][1]["reason"] == "hello is paused"
        assert logged and all("hello" in line and id not in line for line in logged)


async def _alert(house: House) -> dict[str, Any]:
    found = (await house.ask("events.list", feed="harken"))["items"]
    [data] = [event["data"] for event in found if event["type"] == "feed.paused"]
    return dict(data)
