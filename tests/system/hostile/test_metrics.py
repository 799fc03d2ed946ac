"""The metrics of polling as a real page: every status and kind of error occurs where it should; promtool reads it."""

from __future__ import annotations

import asyncio
import re
import subprocess
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from harken.app import App
from harken.app.metric_registry import MOST_SERIES, Metrics
from harken.app.metrics_and_health import MOST_FEEDS
from harken.errors import CursorExpired
from harken.event import Event, Verdict
from harken.source import Lag
from harken.store import Commit, Committed, Entry
from harken.testing import VirtualClock, virtual
from harken.testing.fakes import Answer, Listing
from tests.downloads.debian import program
from tests.system.hostile.misbehaving_server import HOOK, Source, says, started, until, write
from tests.system.hostile.world import House, configured, feed, listing

ITEMS = "trigger: {feed: items}\n"
SERIES = re.compile(r"^(\w+)\{(.*)\} (\S+)$", re.MULTILINE)
# B16 and D8 of the specification fix these names
FIXED = ("poller_latency_ms",)
OF_JOBS = {
    "poller_ticks_total",
    "poller_latency_ms_bucket",
    "poller_latency_ms_sum",
    "poller_latency_ms_count",
    "poller_items_seen_total",
    "poller_items_dispatched_total",
    "poller_consecutive_errors",
    "poller_breaker_state",
    "poller_lease_takeovers_total",
}
JOBS = "pollers:\n  default_jitter_ms: 0\n  jobs:\n    - {}\n    - {}\n"


def job(shop: Source, name: str) -> str:
    where = f"url: '{shop.url}/{name}', items_path: items, allow_private_networks: true"
    deliver = f"deliver: {{channel: webhook, to: '{shop.url}/told'}}"
    return f"{{id: watch-{name}, kind: json, agent: ana, schedule: {{every_secs: 1}}, config: {{{where}, {deliver}}}}}"


def counted(page: bytes, name: str, label: str) -> dict[str, float]:
    """Values above zero of one metric by one of its labels."""
    found: dict[str, float] = {}
    for metric, labels, value in SERIES.findall(page.decode()):
        if metric == name and float(value):
            key = re.findall(rf'{label}="([^"]*)"', labels)[0]
            found[key] = found.get(key, 0) + float(value)
    return found


def statuses(app: App) -> dict[str, float]:
    return counted(app._telemetry.page(), "harken_poll_trigger_polls_total", "status")


def errors(app: App) -> dict[str, float]:
    return counted(app._telemetry.page(), "harken_poll_trigger_errors_total", "error_type")


async def one_feed(directory: Path, clock: VirtualClock, shop: Listing) -> House:
    write(directory, configured(feed("items", f"{shop.url}/all")), items=ITEMS)
    house = House(directory, clock)
    await house.up()
    await clock.sleep(30)
    return house


async def reads(house: House) -> str:
    return str((await house.ask("triggers.run", name="items"))["result"])


@virtual
async def test_every_status_is_counted_as_it_happens(tmp_path: Path, clock: VirtualClock) -> None:
    async with listing(clock) as shop:
        house = await one_feed(tmp_path, clock, shop)
        assert statuses(house.app) == {"success": 1}
        await reads(house)
        assert statuses(house.app) == {"success": 1, "not_modified": 1}
        shop.add("new")
        await reads(house)
        shop.answers.append(Answer(status=503))
        await reads(house)
        shop.answers.append(Answer(status=429, headers={"Retry-After": "50"}))
        await reads(house)
        assert statuses(house.app) == {"success": 2, "not_modified": 1, "error": 1, "rate_limited": 1}
        # the budget puts the next one off without asking
        await reads(house)
        assert statuses(house.app)["skipped"] == 1
        assert shop.seen[-1].status == 429
        await house.down()


@virtual
async def test_reads_that_came_due_during_a_long_one_are_skipped(tmp_path: Path, clock: VirtualClock) -> None:
    async with listing(clock) as shop:
        slow = feed("items", f"{shop.url}/all", interval="10s")
        write(tmp_path, configured(slow), items=ITEMS)
        house = House(tmp_path, clock)
        await house.up()
        await clock.sleep(1)
        shop.answers.append(Answer(hang=True))
        assert await reads(house) == "error"
        assert (statuses(house.app)["skipped"], errors(house.app)) == (1, {"timeout": 1})
        await house.down()


@virtual
async def test_a_read_that_its_only_trigger_does_not_want_is_skipped(tmp_path: Path, clock: VirtualClock) -> None:
    async with listing(clock) as shop:
        house = await one_feed(tmp_path, clock, shop)
        await house.ask("triggers.pause", name="items")
        await clock.sleep(1)
        assert await reads(house) == "skipped"
        assert statuses(house.app) == {"success": 1, "skipped": 1}
        await house.down()


class Forgetful:
    async def poll(self, cursor: Any, since: Any) -> Any:
        raise CursorExpired("the sync token is gone")


@virtual
async def test_every_kind_of_error_is_counted_as_it_happens(tmp_path: Path, clock: VirtualClock) -> None:
    async with listing(clock) as shop:
        house = await one_feed(tmp_path, clock, shop)
        shop.answers += [Answer(status=503), Answer(hang=True), Answer(status=401)]
        assert [await reads(house) for _ in range(3)] == ["error"] * 3
        house.app.intake.feeds["items"].poll = Forgetful().poll
        await reads(house)
        assert errors(house.app) == {"retry": 1, "timeout": 1, "attention": 1, "cursor_expired": 1}
        assert b"\nharken_poll_trigger_active 0\n" in house.app._telemetry.page()
        await house.down()


@virtual
async def test_new_events_are_counted_by_their_type(tmp_path: Path, clock: VirtualClock) -> None:
    async with listing(clock) as shop:
        house = await one_feed(tmp_path, clock, shop)
        for number in range(3):
            shop.add(f"item-{number}")
        await reads(house)
        await reads(house)
        page = house.app._telemetry.page()
        assert counted(page, "harken_poll_trigger_events_total", "type") == {"json.item": 3}
        assert counted(page, "harken_poll_trigger_latency_seconds_count", "integration") == {"json": 3}
        await house.down()


@virtual
async def test_what_a_backfill_decides_again_is_not_counted_again(tmp_path: Path, clock: VirtualClock) -> None:
    async with listing(clock) as shop:
        house = await one_feed(tmp_path, clock, shop)
        shop.add("item")
        await reads(house)
        write(tmp_path, configured(feed("items", f"{shop.url}/all")), late="trigger: {feed: items, backfill: 1h}\n")
        await house.ask("reload")
        await reads(house)
        assert await house.fired("late") == ["item"]
        page = house.app._telemetry.page()
        assert counted(page, "harken_poll_trigger_events_total", "type") == {"json.item": 1}
        assert counted(page, "triggers_events_received_total", "provider")["json"] == 1
        await house.down()


@virtual
async def test_what_many_feeds_commit_is_counted_in_little_memory(tmp_path: Path, clock: VirtualClock) -> None:
    async with listing(clock) as shop:
        house = await one_feed(tmp_path, clock, shop)
        telemetry, feeds = house.app._telemetry, 2 * MOST_FEEDS + 1
        entry = Entry(event=Event(subject="s", type="t", data={}), memory_id="s")
        committed = Committed(event_ids=[1], verdicts=[(Verdict(trigger="t", outcome="fired"),)])
        for number in range(feeds):
            telemetry.count_commit(f"gone-{number}", Commit(feed="gone", revision=1, entries=[entry]), committed)
            assert len(telemetry._commits) <= MOST_FEEDS
        page = telemetry.page()
        for name in ("triggers_events_received_total", "triggers_runs_started_total"):
            assert counted(page, name, "provider") == {"harken": feeds}
        await house.down()


@virtual
async def test_the_series_of_an_integration_go_with_its_last_feed(tmp_path: Path, clock: VirtualClock) -> None:
    async with listing(clock) as shop:
        house = await one_feed(tmp_path, clock, shop)
        assert b'integration="json"' in house.app._telemetry.page()
        write(tmp_path, "store: harken.db\n", items=HOOK)
        await house.ask("reload")
        page = house.app._telemetry.page()
        assert (b'integration="json"' in page, b'provider="json"' in page) == (False, False)
        await house.down()


@virtual
async def test_the_lag_of_a_stream_is_shown_as_far_as_its_broker_says_it(tmp_path: Path, clock: VirtualClock) -> None:
    async with listing(clock) as shop:
        house = await one_feed(tmp_path, clock, shop)
        lags = house.app.intake.registry.streamer.lags
        lags["items"] = Lag(messages=12)
        assert b'\nharken_stream_lag_messages{feed="items"} 12\n' in house.app._telemetry.page()
        assert b"\nharken_stream_lag_seconds{" not in house.app._telemetry.page()
        lags["items"] = Lag(seconds=2.5)
        assert b'\nharken_stream_lag_seconds{feed="items"} 2.5\n' in house.app._telemetry.page()
        assert b"\nharken_stream_lag_messages{" not in house.app._telemetry.page()
        controller = (await house.ask("status"))["controller"]
        assert controller["stream_lags"] == {"items": {"messages": None, "seconds": 2.5}}
        shown = await house.ask("feeds.show", name="items")
        assert (shown["lag_messages"], shown["lag_seconds"]) == (None, 2.5)
        await house.down()


def test_whatever_stands_in_a_label_the_page_can_be_read() -> None:
    metrics = Metrics()
    count = metrics.counter("things_total", "Things.")
    count(name='say "hi"\\\n\ud800')
    assert metrics.page().decode().splitlines()[2] == r'things_total{name="say \"hi\"\\\n?"} 1'


def test_a_label_that_strangers_fill_is_bounded() -> None:
    metrics = Metrics()
    count = metrics.counter("things_total", "Things.")
    for number in range(MOST_SERIES + 500):
        count(kind=str(number))
    assert metrics.page().count(b"things_total{") == MOST_SERIES + 1
    assert b'things_total{kind="other"} 500\n' in metrics.page()


@pytest.mark.process
@pytest.mark.worker_group("hostile-metrics")
async def test_promtool_has_nothing_to_say_about_a_real_page(tmp_path: Path) -> None:
    promtool = program("prometheus")
    async with Source.serve() as shop:
        shop.answers = {"/all": says(b'{"items": [{"id": 1}]}'), "/no": says(b"", "401 Unauthorized")}
        feeds = [feed("items", f"{shop.url}/all", interval="1s"), feed("no", f"{shop.url}/no", interval="1s")]
        write(
            tmp_path,
            configured(*(one.replace(", time_field: created_at", "") for one in feeds)),
            items=ITEMS,
            no="trigger: {feed: no}\n",
            hook=HOOK,
        )
        (tmp_path / "pollers.yaml").write_text(JOBS.format(job(shop, "all"), job(shop, "no")))
        async with started(tmp_path) as harken:
            assert await harken.hook("a") == 202

            async def polled() -> bytes:
                page = await fetched(harken.url)
                wanted = {"success", "error"} <= set(counted(page, "harken_poll_trigger_polls_total", "status"))
                jobs = {"ok", "permanent"} <= set(counted(page, "poller_ticks_total", "status"))
                return page if wanted and jobs else b""

            page = await until(polled)
            said = await asyncio.to_thread(checked, promtool, page)
            assert [line for line in said if line.split()[0] not in FIXED] == []
            assert {"triggers_runs_started_total", "harken_poll_trigger_latency_seconds_bucket"} <= names(page)
            assert names(page) >= OF_JOBS


async def fetched(url: str) -> bytes:
    async with aiohttp.request("GET", f"{url}/metrics") as reply:
        assert reply.headers["content-type"].startswith("text/plain")
        return await reply.read()


def checked(promtool: Path, page: bytes) -> list[str]:
    done = subprocess.run([promtool, "check", "metrics"], input=page, capture_output=True, check=False, timeout=200)
    return (done.stdout + done.stderr).decode().splitlines()


def names(page: bytes) -> set[str]:
    return {line.split("{")[0].split()[0] for line in page.decode().splitlines() if not line.startswith("#")}


@pytest.mark.process
@pytest.mark.worker_group("hostile-metrics")
async def test_a_page_that_is_switched_off_is_not_there(tmp_path: Path) -> None:
    write(tmp_path, "store: harken.db\nmetrics: {enabled: false}\n", hook=HOOK)
    async with started(tmp_path) as harken:
        assert (await harken.ask("/metrics"))[0] == 404
