"""Metrics of what becomes of events: runs by outcome, dead letters, held runs, webhooks by result, deliveries."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from harken.app import App
from harken.errors import StoreUnavailable
from harken.testing import VirtualClock, virtual
from harken.testing.fakes import Answer, Listing
from tests.system.hostile.misbehaving_server import HOOK
from tests.system.hostile.world import House, listing

SERIES = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
MAIN = """\
store: harken.db
integrations:
  pager: {kind: webhook, allow_private_networks: true}
feeds:
  items:
    integration: json
    interval: 60s
    query: {url: "URL/all", items_path: items, time_field: created_at, allow_private_networks: true}
"""
TELL = "{id: tell, action: notify, channel: pager, to: 'URL/all', text: hi}"
NOTE = "{id: note, action: transform, set: {text: seen}}"
STOP = "{id: stop, action: filter, condition: 'false'}"
ITEMS = "trigger: {feed: items, max_attempts: 2}\n"


def write(directory: Path, url: str, **workflows: tuple[str, str]) -> None:
    (directory / "workflows").mkdir(exist_ok=True)
    (directory / "harken.yaml").write_text(MAIN.replace("URL", url))
    for name, (trigger, step) in workflows.items():
        text = f"name: {name}\n{trigger}steps:\n  - {step}\n".replace("URL", url)
        (directory / "workflows" / f"{name}.yaml").write_text(text)


async def series(app: App, name: str) -> dict[str, float]:
    """Values above zero of one metric, by its labels in the order of the page."""
    page = (await app._telemetry.scrape()).decode()
    return {labels: float(value) for found, labels, value in SERIES.findall(page) if found == name and float(value)}


async def new_item(clock: VirtualClock, shop: Listing, house: House, id: str) -> None:
    shop.add(id)
    await house.ask("triggers.run", name=next(iter(house.app.loaded.workflows)))
    await clock.sleep(5)


async def post(house: House, body: bytes, path: str = "/webhooks/generic/hook") -> int:
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"method": "POST", "path": path, "headers": [], "query_string": b"", "client": ("203.0.113.7", 9)}
    await house.app.intake.webhooks(scope, receive, send)
    return int(sent[0]["status"])


@virtual
async def test_runs_are_counted_by_workflow_and_outcome(tmp_path: Path, clock: VirtualClock) -> None:
    async with listing(clock) as shop:
        write(tmp_path, shop.url, plain=(ITEMS, NOTE), choosy=(ITEMS, STOP))
        house = House(tmp_path, clock)
        await house.up()
        await clock.sleep(30)
        page = (await house.app._telemetry.scrape()).decode()
        await new_item(clock, shop, house, "one")
        await house.ask("workflows.run", name="plain")
        await clock.sleep(5)

        assert 'harken_runs_total{workflow="plain",outcome="dead"} 0\n' in page, "there from the start"
        assert await series(house.app, "harken_runs_total") == {
            'workflow="plain",outcome="done"': 2,
            'workflow="choosy",outcome="filtered"': 1,
        }
        await house.down()


@virtual
async def test_deliveries_are_counted_by_channel_and_result_and_dead_runs_are_shown(
    tmp_path: Path, clock: VirtualClock
) -> None:
    async with listing(clock) as shop:
        write(tmp_path, shop.url, teller=(ITEMS, TELL))
        house = House(tmp_path, clock)
        await house.up()
        await clock.sleep(30)
        page = (await house.app._telemetry.scrape()).decode()
        await new_item(clock, shop, house, "good")
        # one answer for the read that finds the item, then those of the delivery
        shop.after[len(shop.seen) + 1] = lambda: shop.answers.extend([Answer(status=429), Answer(status=401)])
        await new_item(clock, shop, house, "bad")
        await clock.sleep(3_600)

        assert 'harken_deliveries_total{channel="pager",result="failed"} 0\n' in page, "there from the start"
        assert await series(house.app, "harken_deliveries_total") == {
            'channel="pager",result="delivered"': 1,
            'channel="pager",result="rate_limited"': 1,
            'channel="pager",result="failed"': 1,
        }
        assert await series(house.app, "harken_dead_letters") == {'trigger="teller"': 1}
        assert (await series(house.app, "harken_runs_total"))['workflow="teller",outcome="dead"'] == 1
        [dead] = (await house.ask("dead.list"))["items"]
        await house.ask("dead.drop", id=dead["id"])
        assert await series(house.app, "harken_dead_letters") == {}, "it is what is dead now"
        await house.down()


@virtual
async def test_held_runs_are_shown_by_trigger_and_reason(tmp_path: Path, clock: VirtualClock) -> None:
    async with listing(clock) as shop:
        write(tmp_path, shop.url, plain=(ITEMS, NOTE))
        house = House(tmp_path, clock)
        await house.up()
        await clock.sleep(30)
        await house.ask("triggers.pause", name="plain")
        write(tmp_path, shop.url, other=(ITEMS, NOTE))
        await house.ask("reload")
        shop.add("one")
        await house.ask("triggers.run", name="other")

        assert await series(house.app, "harken_runs_held") == {'trigger="plain",hold="paused"': 1}
        await house.ask("triggers.resume", name="plain")
        assert await series(house.app, "harken_runs_held") == {}
        await house.down()


@virtual
async def test_webhooks_are_counted_by_result(tmp_path: Path, clock: VirtualClock) -> None:
    write(tmp_path, "http://127.0.0.1:1", hook=(HOOK, NOTE))
    house = House(tmp_path, clock)
    await house.up()
    page = (await house.app._telemetry.scrape()).decode()
    body = json.dumps({"id": "a"}).encode()
    answered = [await post(house, body), await post(house, body), await post(house, b"{"), await post(house, b"", "/x")]
    await clock.sleep(1)

    assert answered == [202, 200, 400, 404]
    assert 'harken_webhooks_total{webhook="generic/hook",result="unavailable"} 0\n' in page, "there from the start"
    assert await series(house.app, "harken_webhooks_total") == {
        'webhook="generic/hook",result="accepted"': 1,
        'webhook="generic/hook",result="duplicate"': 1,
        'webhook="generic/hook",result="refused"': 1,
    }
    await house.down()


@virtual
async def test_events_that_the_store_refuses_are_counted(tmp_path: Path, clock: VirtualClock) -> None:
    write(tmp_path, "http://127.0.0.1:1", hook=(HOOK, NOTE))
    house = House(tmp_path, clock)
    await house.up()
    commit = house.app.store.commit

    async def refuses(given: Any) -> Any:
        if given.feed == "webhook/generic/hook" and given.entries:
            raise ValueError("this cannot be stored")
        return await commit(given)

    house.app.store.commit = refuses  # type: ignore[method-assign, assignment]
    await post(house, json.dumps({"id": "a"}).encode())

    assert await series(house.app, "harken_events_refused_total") == {"": 1}
    await house.down()


@virtual
async def test_the_series_of_workflows_and_webhooks_go_with_them(tmp_path: Path, clock: VirtualClock) -> None:
    write(tmp_path, "http://127.0.0.1:1", hook=(HOOK, NOTE))
    house = House(tmp_path, clock)
    await house.up()
    assert b'workflow="hook"' in house.app._telemetry.page()
    (tmp_path / "workflows" / "hook.yaml").unlink()
    await house.ask("reload")

    page = house.app._telemetry.page()
    assert (b'workflow="hook"' in page, b"generic/hook" in page) == (False, False)
    await house.down()


@virtual
async def test_while_the_store_is_away_the_page_is_there_without_what_only_it_knows(
    tmp_path: Path, clock: VirtualClock
) -> None:
    async with listing(clock) as shop:
        write(tmp_path, shop.url, plain=(ITEMS, NOTE))
        house = House(tmp_path, clock)
        await house.up()
        await clock.sleep(30)
        await house.ask("triggers.pause", name="plain")
        shop.add("one")
        await house.app.intake.tick("items", "plain")
        assert await series(house.app, "harken_runs_held")

        async def gone() -> Any:
            raise StoreUnavailable("the disk is gone")

        house.app.store.backlogs = gone  # type: ignore[method-assign]
        page = await house.app._telemetry.scrape()

        assert b"\nharken_runs_held{" not in page, "old numbers would say that all is as it was"
        assert b"\nharken_runs_in_flight 0\n" in page
        await house.down()
