"""Failure after failure: five are an error, ten over 90 minutes a pause, a wrong token stops at once."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog

from harken.errors import StoreBusy
from harken.testing import VirtualClock, virtual
from harken.testing.fakes import Answer, Listing
from tests.system.hostile.misbehaving_server import Harken, Source, says, started, until, write
from tests.system.hostile.world import House, configured, feed, listing

BROKEN, FORBIDDEN = Answer(status=503), Answer(status=401)
TOLD = "trigger: {event: [feed.paused, feed.recovered]}\n"


def settle_in(directory: Path, shop: str, other: str, interval: str = "60s") -> None:
    feeds = [feed("items", f"{shop}/all", interval=interval), feed("other", f"{other}/all", interval=interval)]
    write(
        directory,
        configured(*feeds),
        items="trigger: {feed: items}\n",
        other="trigger: {feed: other}\n",
        told=TOLD,
    )


@asynccontextmanager
async def at_home(directory: Path, clock: VirtualClock) -> AsyncIterator[tuple[House, Listing]]:
    """A house that has just begun to read two listings, and the first of them."""
    async with listing(clock) as shop, listing(clock) as other:
        settle_in(directory, shop.url, other.url)
        house = House(directory, clock)
        await house.up()
        yield house, shop
        await house.down()


async def failing(house: House, times: int) -> None:
    """Let it fail so often, however long it waits between."""
    while (await row(house))["failures"] < times:
        await house.clock.sleep(5)


async def row(house: House, name: str = "items") -> dict[str, Any]:
    found: dict[str, Any] = await house.ask("triggers.show", name=name)
    return found


def lines(logs: Any, level: str) -> list[str]:
    return [entry["event"] for entry in logs if entry["log_level"] == level]


@virtual
async def test_five_failures_are_an_error_ten_a_pause_and_both_survive_restarts(
    tmp_path: Path, clock: VirtualClock
) -> None:
    with structlog.testing.capture_logs() as logs:
        async with at_home(tmp_path, clock) as (house, shop):
            await clock.sleep(5)
            shop.answers += [BROKEN] * 200
            await failing(house, 3)
            await house.die()
            await house.up()
            assert (await row(house))["failures"] == 3
            assert lines(logs, "error") == []
            await failing(house, 5)
            assert lines(logs, "error") == ["feed.error"]
            await house.down()
            await house.up()
            await failing(house, 10)
            await clock.sleep(3600)
            assert lines(logs, "error") == ["feed.error"]
            await clock.sleep(1800)
            assert lines(logs, "error") == ["feed.error", "feed.paused"]
            asked = len(shop.seen)
            await clock.sleep(7200)
            assert len(shop.seen) == asked
            found = await row(house)
            assert (found["status"], found["next_read_at"]) == ("paused", None)
            assert "harken triggers resume items" in found["advice"]
            assert "503" in found["last_error"]
            assert (await row(house, "other"))["status"] == "healthy"


@virtual
async def test_reset_frees_a_paused_trigger_and_everything_meanwhile_is_read(
    tmp_path: Path, clock: VirtualClock
) -> None:
    async with at_home(tmp_path, clock) as (house, shop):
        await clock.sleep(5)
        shop.answers += [BROKEN] * 200
        await clock.sleep(2 * 3600)
        assert (await row(house))["status"] == "paused"
        shop.answers.clear()
        shop.add("meanwhile")
        await house.die()
        await house.up()
        await clock.sleep(600)
        assert await house.fired("items") == []
        freed = await house.ask("triggers.reset", name="items")
        assert (freed["status"], freed["failures"]) == ("healthy", 0)
        await clock.sleep(30)
        assert await house.fired("items") == ["meanwhile"]


@virtual
async def test_429s_never_count_and_timeouts_do(tmp_path: Path, clock: VirtualClock) -> None:
    async with at_home(tmp_path, clock) as (house, shop):
        await clock.sleep(5)
        shop.answers += [Answer(status=429)] * 20
        while shop.answers:
            await clock.sleep(30)
        assert ((await row(house))["failures"], (await row(house))["status"]) == (0, "degraded")
        shop.answers += [Answer(hang=True)] * 200
        await clock.sleep(2 * 3600)
        assert (await row(house))["status"] == "paused"
        assert "no page within 10 s" in (await row(house))["last_error"]


@virtual
async def test_a_wrong_token_pauses_at_once_tells_once_and_leaves_the_others_alone(
    tmp_path: Path, clock: VirtualClock
) -> None:
    with structlog.testing.capture_logs() as logs:
        async with at_home(tmp_path, clock) as (house, shop):
            await clock.sleep(5)
            shop.answers += [FORBIDDEN] * 100
            await clock.sleep(100)
            assert [seen.status for seen in shop.seen].count(401) == 1
            await house.die()
            await house.up()
            await clock.sleep(3600)
            # a person looks whether it works again, before it does
            await house.ask("triggers.run", name="items")
            await clock.sleep(100)
            paused = [entry for entry in logs if entry["log_level"] == "error"]
            assert [(entry["event"], entry["feed"]) for entry in paused] == [("feed.paused", "items")]
            assert "401" in paused[0]["reason"]
            assert (await row(house, "other"))["status"] == "healthy"
            [event] = await told(house)
            data = event["data"]
            assert (event["type"], data["feed"], data["triggers"]) == ("feed.paused", "items", ["items"])
            assert "401" in data["reason"]
            assert data["alert"]
            assert data["text"].startswith("items (json) has stopped and needs you: ")
            assert "Mend that, then: harken triggers resume items. It is tried again by itself in " in data["text"]
            await mended(house, shop)
            assert [event["type"] for event in await told(house)] == ["feed.recovered", "feed.paused"]
            assert len(await house.runs("told")) == 2


async def told(house: House) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await house.ask("events.list", feed="harken"))["items"]
    return found


async def mended(house: House, shop: Listing) -> None:
    shop.answers.clear()
    await house.ask("triggers.resume", name="items")
    await house.clock.sleep(120)


@virtual
async def test_401_is_probed_and_told_when_it_works_again_by_itself(tmp_path: Path, clock: VirtualClock) -> None:
    async with at_home(tmp_path, clock) as (house, shop):
        await clock.sleep(5)
        shop.answers += [FORBIDDEN] * 2
        await clock.sleep(100)
        found = await row(house)
        assert found["status"] == "paused"
        assert "It is tried again by itself in 1" in found["advice"]
        assert found["next_read_at"] is not None
        shop.add("meanwhile")
        await house.die()
        await house.up()
        await clock.sleep(3600)
        assert [seen.status for seen in shop.seen].count(401) == 2
        assert ((await row(house))["status"], await house.fired("items")) == ("healthy", ["meanwhile"])
        assert [event["type"] for event in await told(house)] == ["feed.recovered", "feed.paused"]


@virtual
async def test_one_malformed_answer_of_a_real_service_is_retried_before_it_pauses(
    tmp_path: Path, clock: VirtualClock
) -> None:
    for body in (b"null", b"{}"):
        (tmp_path / str(len(body))).mkdir()
        async with at_home(tmp_path / str(len(body)), clock) as (house, shop):
            await clock.sleep(5)
            shop.answers.append(Answer(body=body))
            shop.add("new")
            await clock.sleep(75)
            assert [seen.status for seen in shop.seen] == [200, 200, 200]
            assert ((await row(house))["status"], await house.fired("items")) == ("healthy", ["new"])


@virtual
async def test_a_second_stop_after_a_recovery_is_told_again(tmp_path: Path, clock: VirtualClock) -> None:
    async with at_home(tmp_path, clock) as (house, shop):
        for _ in range(2):
            await clock.sleep(60)
            shop.answers.append(FORBIDDEN)
            await clock.sleep(90)
            await mended(house, shop)
        types = [event["type"] for event in reversed(await told(house))]
        assert types == ["feed.paused", "feed.recovered"] * 2


@virtual
async def test_a_crash_between_telling_and_noting_it_tells_nobody_twice(tmp_path: Path, clock: VirtualClock) -> None:
    async with at_home(tmp_path, clock) as (house, shop):
        shop.answers += [FORBIDDEN] * 2
        await clock.sleep(100)
        await house.app.store.delete("alert", "items")
        await house.die()
        await house.up()
        await clock.sleep(100)
        assert [event["type"] for event in await told(house)] == ["feed.paused"]
        assert len(await house.runs("told")) == 1


async def refuses(definitions: Any) -> Any:
    raise StoreBusy("the store has 10000 writes waiting")


@virtual
async def test_a_reload_that_the_store_refuses_is_made_up_for_by_the_next(tmp_path: Path, clock: VirtualClock) -> None:
    async with listing(clock) as shop:
        token = tmp_path / "token"
        token.write_text("the-f1rst-token")
        asked = feed("items", f"{shop.url}/all", more=', headers: {Authorization: "${file:token}"}')
        write(tmp_path, configured(asked), items="trigger: {feed: items}\n")
        house = House(tmp_path, clock)
        await house.up()
        await clock.sleep(5)
        token.write_text("the-sec0nd-token")
        with pytest.MonkeyPatch.context() as patch, pytest.raises(StoreBusy):
            patch.setattr(house.app.store, "open", refuses)
            await house.ask("reload")
        await house.ask("reload")
        await house.ask("triggers.run", name="items")
        assert shop.seen[-1].headers["authorization"] == "the-sec0nd-token"
        await house.down()


@pytest.mark.process
@pytest.mark.worker_group("hostile-failures")
async def test_a_real_process_counts_on_after_kill_9_and_a_person_frees_it(tmp_path: Path) -> None:
    async with Source.serve() as shop, Source.serve() as other:
        shop.answers = {"/all": says(b"", "503 Service Unavailable")}
        other.answers = {"/all": says(b'{"items": []}')}
        settle_in(tmp_path, shop.url, other.url, "1s")
        async with started(tmp_path) as first:
            await until(lambda: at_least(first, 2))
            first.process.kill()
            await first.process.wait()
        async with started(tmp_path) as second:
            await until(lambda: tried(second, 10))
            found = await second.json("triggers", "show", "items")
            # ten failures within a minute are no reason to stop
            assert found["status"] == "degraded"
            shop.answers = {"/all": says(b"", "401 Unauthorized")}
            await until(lambda: is_paused(second))
            words = [json.loads(line) for line in second.log.splitlines() if line.startswith("{")]
            assert [word["event"] for word in words if word["level"] == "error"] == ["feed.error", "feed.paused"]
            assert [word["failures"] for word in words if word["event"] == "feed.error"] == [5]
            second.process.kill()
            await second.process.wait()
        code, text, _ = await second.types("triggers", "show", "items")
        assert (code, "harken triggers resume items" in text, "401" in text) == (0, True, True)
        shop.answers = {"/all": says(b'{"items": []}')}
        assert (await second.types("triggers", "reset", "items"))[0] == 0
        async with started(tmp_path) as third:
            await until(lambda: is_healthy(third))


async def shown(harken: Harken) -> Any:
    """Not from the command line: whoever asks again and again would start a process each time."""
    return (await harken.ask("/api/triggers/items"))[2]


async def at_least(harken: Harken, failures: int) -> bool:
    return bool((await shown(harken))["failures"] >= failures)


async def tried(harken: Harken, failures: int) -> bool:
    """Read it now; whether it has failed so often."""
    await harken.ask("/api/triggers/items/run", b"{}", **{"Content-Type": "application/json"})
    return await at_least(harken, failures)


async def is_paused(harken: Harken) -> bool:
    return bool((await shown(harken))["status"] == "paused")


async def is_healthy(harken: Harken) -> bool:
    found = await shown(harken)
    return bool(found["status"] == "healthy" and found["last_read_at"])
