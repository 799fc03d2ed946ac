"""Replicas hear of each other, share the feeds, follow one configuration, and one of them keeps the house."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harken.app import App
from harken.app.fleet import HousekeepingLease, Membership, drop_dead_replicas, notify_replicas
from harken.app.store import OpenedStore, opened_store
from harken.backends.sqlite import SqliteStore
from harken.errors import Refused, StoreUnavailable
from harken.operate.fleet import Member, fleet
from harken.operate.load_and_check_configuration import load_directory
from harken.store import HOUSEKEEPING, Generation
from harken.store.document_kinds import REPLICA, THIS_STORE, TRANSFER
from harken.task_cancellation import cancel_and_wait
from harken.testing import HandClock, VirtualClock, virtual

WORKFLOW = "name: {name}\ntrigger: {{schedule: '0 9 * * *'}}\nsteps: []\n"


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
async def store(tmp_path: Path, clock: HandClock) -> AsyncIterator[SqliteStore]:
    store = SqliteStore.at(tmp_path / "s.db", clock, inline=True)
    yield store
    await store.close()


class Ear:
    """A replica that only listens."""

    def __init__(self, store: SqliteStore, clock: HandClock, name: str) -> None:
        self.members: list[str] = []
        self.generation = Generation()
        self.news = 0
        self.beats = Membership(
            store, clock, describe=lambda: Member(holder=name), on_members=self._heard, on_change=self._news
        )

    async def _heard(self, living: Any, generation: Generation) -> None:
        self.members, self.generation = sorted(one.holder for one in living), generation

    def _news(self) -> None:
        self.news += 1


async def test_those_who_beat_are_known_and_those_who_leave_are_not(store: SqliteStore, clock: HandClock) -> None:
    one, two = Ear(store, clock, "one"), Ear(store, clock, "two")
    await one.beats.beat()
    await two.beats.beat()
    await one.beats.beat()
    assert one.members == two.members == ["one", "two"]
    await two.beats.leave()
    await one.beats.beat()
    assert one.members == ["one"]


async def test_one_who_is_silent_is_no_peer_before_its_leases_have_run_out(
    store: SqliteStore, clock: HandClock
) -> None:
    one, two = Ear(store, clock, "one"), Ear(store, clock, "two")
    await two.beats.beat()
    clock.advance(13)
    await one.beats.beat()
    assert one.members == ["one"]


async def test_news_are_heard_once_by_everybody_but_not_those_of_before(store: SqliteStore, clock: HandClock) -> None:
    await notify_replicas(store)
    one, two = Ear(store, clock, "one"), Ear(store, clock, "two")
    for ear in (one, two):
        await ear.beats.beat()
    assert (one.news, two.news) == (0, 0)
    await notify_replicas(store)
    for ear in (one, two, one, two):
        await ear.beats.beat()
    assert (one.news, two.news) == (1, 1)


@virtual
async def test_only_a_store_that_moved_ends_a_replica_and_not_a_configuration_that_it_cannot_take(
    clock: VirtualClock, tmp_path: Path
) -> None:
    store = SqliteStore.at(tmp_path / "s.db", clock, inline=True)
    beats = 0
    ended: list[Refused] = []

    async def refuses(living: Any, generation: Generation) -> None:
        nonlocal beats
        beats += 1
        raise Refused("the files here are those of before")

    def describe() -> Member:
        return Member(holder="one")

    members = Membership(
        store, clock, describe=describe, on_members=refuses, on_change=lambda: None, on_moved=ended.append
    )
    beating = asyncio.create_task(members.keep())
    await asyncio.sleep(20)
    assert (beats > 2, ended) == (True, [])
    await store.put(TRANSFER, THIS_STORE, {"words": "the store moved", "fix": "", "holder": ""})
    await asyncio.sleep(20)
    assert "the store moved" in str(ended[0])
    await cancel_and_wait([beating])
    await store.close()


@virtual
async def test_a_replica_that_is_nudged_looks_at_once_who_is_left(clock: VirtualClock, tmp_path: Path) -> None:
    store = SqliteStore.at(tmp_path / "s.db", clock, inline=True)
    at: list[float] = []

    async def note(living: Any, generation: Generation) -> None:
        at.append(clock.time())

    members = Membership(store, clock, describe=lambda: Member(holder="one"), on_members=note, on_change=lambda: None)
    beating = asyncio.create_task(members.keep())
    await clock.sleep(12)
    for _ in range(3):
        members.nudge()
        await clock.sleep(0.02)
    await clock.sleep(6)
    assert [round(one - at[0], 1) for one in at] == [0.0, 5.0, 10.0, 12.1, 17.1]
    await cancel_and_wait([beating])
    await store.close()


async def test_replicas_that_are_gone_for_long_are_forgotten(store: SqliteStore, clock: HandClock) -> None:
    one, two = Ear(store, clock, "one"), Ear(store, clock, "two")
    await two.beats.beat()
    clock.advance(3_601)
    await one.beats.beat()
    await drop_dead_replicas(store)
    assert [document.name for document in await store.documents(REPLICA)] == ["one"]


async def test_one_replica_keeps_the_house_until_it_leaves_or_dies(store: SqliteStore, clock: HandClock) -> None:
    one, two = (HousekeepingLease(store, clock, name, shared=True) for name in ("one", "two"))
    assert (await one.keep(), await two.keep()) == (True, False)
    clock.advance(20)
    assert (await one.keep(), await two.keep()) == (True, False)
    await one.leave()
    assert await two.keep()
    clock.advance(31)
    assert await one.keep()


async def test_who_is_alone_keeps_the_house_without_a_lease(store: SqliteStore, clock: HandClock) -> None:
    assert await HousekeepingLease(store, clock, "one", shared=False).keep()
    assert [held for held in await store.leases() if held.shard == HOUSEKEEPING] == []


def shared(store: SqliteStore) -> OpenedStore:
    home = opened_store(store)
    return OpenedStore(store=home.store, shared=True, connect=home.connect, listen=home.listen)


def site(path: Path, *names: str) -> Path:
    path.joinpath("workflows").mkdir(parents=True, exist_ok=True)
    path.joinpath("harken.yaml").write_text("shards: 4\n")
    for name in names:
        path.joinpath("workflows", f"{name}.yaml").write_text(WORKFLOW.format(name=name))
    return path


@asynccontextmanager
async def replicas(clock: VirtualClock, *directories: Path) -> AsyncIterator[tuple[SqliteStore, list[App]]]:
    """One replica for each directory, on one store; a quarter of a minute later they know each other."""
    store = SqliteStore.at(directories[0] / "shared.db", clock, inline=True)
    apps = []
    for directory in directories:
        app = App(load_directory(directory), shared(store), clock)
        await app.begin()
        app._join_fleet()
        apps.append(app)
    await clock.sleep(15)
    yield store, apps
    for app in apps:
        await app.stop()
    await store.close()


def held(apps: list[App]) -> list[int]:
    return [len(app.intake.leases.held) for app in apps]


@virtual
async def test_replicas_share_and_status_says_who_holds_what(clock: VirtualClock, tmp_path: Path) -> None:
    directory = site(tmp_path / "site", "daily")
    async with replicas(clock, directory, directory) as (store, apps):
        assert held(apps) == [2, 2]
        said = await fleet(store)
        assert (said["shards"], said["unread_shards"], said["epoch"]) == (4, [], 1)
        assert sorted(shard for row in said["replicas"] for shard in row["shards"]) == [0, 1, 2, 3]
        assert all(row["current"] for row in said["replicas"])
        assert said["housekeeper"] in {app.holder for app in apps}


@virtual
async def test_one_whose_clock_jumped_leaves_the_house_to_another(clock: VirtualClock, tmp_path: Path) -> None:
    directory = site(tmp_path / "site", "daily")
    async with replicas(clock, directory, directory) as (store, apps):
        holder = await housekeeper(store)
        keeper = next(app for app in apps if app.holder == holder)
        keeper.intake.scheduler.jumped_at = clock.time()
        await clock.sleep(15)
        assert await housekeeper(store) in {app.holder for app in apps if app is not keeper}
        assert await store.lease(HOUSEKEEPING, keeper.holder, 30) is None


async def housekeeper(store: SqliteStore) -> str:
    return next(held.holder for held in await store.leases() if held.shard == HOUSEKEEPING)


@virtual
async def test_the_shards_of_one_who_dies_are_read_again_within_35_seconds(clock: VirtualClock, tmp_path: Path) -> None:
    directory = site(tmp_path / "site", "daily")
    async with replicas(clock, directory, directory, directory) as (_, apps):
        assert sorted(held(apps)) == [0, 2, 2]
        dead = next(app for app in apps if app.intake.leases.held)
        for task in (*dead._tasks, *dead.intake._running):
            task.cancel()
        dead.intake.scheduler.stop()
        began = clock.time()
        others = [app for app in apps if app is not dead]
        while sum(held(others)) < 4:
            await clock.sleep(0.5)
        assert clock.time() - began <= 35


@virtual
async def test_a_reload_of_one_reaches_the_others_when_their_files_are_the_same(
    clock: VirtualClock, tmp_path: Path
) -> None:
    directory = site(tmp_path / "site", "daily")
    async with replicas(clock, directory, directory) as (store, apps):
        site(directory, "weekly")
        await apps[0].controller.reload()
        await clock.sleep(20)
        assert [trigger.name for trigger in apps[1].loaded.triggers] == ["daily", "weekly"]
        assert held(apps) == [2, 2]
        assert (await store.generation()).epoch == 2


@virtual
async def test_one_with_older_files_reads_nothing_and_says_so_until_it_has_the_same(
    clock: VirtualClock, tmp_path: Path
) -> None:
    ours, theirs = site(tmp_path / "ours", "daily"), site(tmp_path / "theirs", "daily")
    async with replicas(clock, ours, theirs) as (store, apps):
        one, two = apps
        site(ours, "weekly")
        await one.controller.reload()
        await clock.sleep(20)
        assert held(apps) == [4, 0]
        assert two.controller.behind == one.loaded.generation
        health = {row["name"]: row for row in two._telemetry.health()["subsystems"]}
        assert (health["config"]["state"], health["ingest"]["state"]) == ("degraded", "degraded")
        assert [row["current"] for row in (await fleet(store))["replicas"] if row["holder"] == two.holder] == [False]
        with pytest.raises(Refused, match="the other replicas run generation"):
            await two.controller.reload()
        site(theirs, "weekly")
        await clock.sleep(20)
        assert held(apps) == [2, 2]
        assert two.controller.behind == ""


@virtual
async def test_a_configuration_that_nobody_runs_any_more_is_taken_back(clock: VirtualClock, tmp_path: Path) -> None:
    """One with other files began, ended the leases of all others, and died: they do not wait for it for ever."""
    ours, theirs = site(tmp_path / "ours", "daily"), site(tmp_path / "theirs", "daily", "weekly")
    async with replicas(clock, ours, ours) as (store, apps):
        stranger = App(load_directory(theirs), shared(store), clock)
        await store.open(msgspec.structs.replace(stranger.loaded.definitions(), holder=stranger.holder))
        await clock.sleep(12)
        assert held(apps) == [0, 0]
        await clock.sleep(40)
        assert held(apps) == [2, 2]
        assert (await store.generation()).name == apps[0].loaded.generation
        await stranger.stop()


@virtual
async def test_a_store_that_moved_away_meanwhile_is_left(clock: VirtualClock, tmp_path: Path) -> None:
    async with replicas(clock, site(tmp_path / "site", "daily")) as (store, [app]):
        said: list[str] = []
        app.say = said.append
        await store.put("moving", "here", {"words": "this store moved to PostgreSQL", "fix": "Go there", "holder": ""})
        await clock.sleep(6)
        assert app.ended.is_set()
        assert "this store moved to PostgreSQL" in said[0]


@virtual
async def test_a_feed_that_another_holds_is_read_there_when_a_person_asks_here(
    clock: VirtualClock, tmp_path: Path
) -> None:
    directory = site(tmp_path / "site", "daily")
    async with replicas(clock, directory, directory) as (store, apps):
        feed = apps[0].loaded.triggers[0].feed
        other = next(app for app in apps if not app.intake.registry.reads(app.intake.feeds[feed]))
        reads = (await store.state(feed)).reads
        assert (await other.controller.tick(feed))["result"] == "asked"
        await clock.sleep(15)
        assert (await store.state(feed)).reads == reads + 1


@virtual
async def test_a_trigger_that_is_paused_at_one_replica_rests_at_the_other(clock: VirtualClock, tmp_path: Path) -> None:
    directory = site(tmp_path / "site", "daily")
    async with replicas(clock, directory, directory) as (_, apps):
        feed = apps[0].loaded.triggers[0].feed
        reader = next(app for app in apps if app.intake.registry.reads(app.intake.feeds[feed]))
        other = next(app for app in apps if app is not reader)
        await other.operator.call("triggers.pause", name="daily")
        await clock.sleep(15)
        rules = reader.intake.rule_cache.get(feed)
        assert rules is not None
        assert rules.resting


async def test_a_store_that_is_away_does_not_end_the_beats(store: SqliteStore, clock: HandClock) -> None:
    ear = Ear(store, clock, "one")

    async def gone(*_: Any, **__: Any) -> Any:
        raise StoreUnavailable("nobody answers")

    store.put = gone  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailable):
        await ear.beats.beat()
    del store.put
    await ear.beats.beat()
    assert ear.members == ["one"]


@virtual
async def test_what_one_who_stops_has_read_is_read_on_while_its_runs_come_to_their_end(
    clock: VirtualClock, tmp_path: Path
) -> None:
    directory = site(tmp_path / "site", "daily")
    async with replicas(clock, directory, directory) as (_, apps):
        leaving, other = apps

        async def long(grace_seconds: float) -> None:
            await clock.sleep(grace_seconds)

        leaving.worker.stop = long  # type: ignore[method-assign]
        stopping = asyncio.create_task(leaving.stop())
        await clock.sleep(6)
        assert not stopping.done()
        assert held([leaving, other]) == [0, 4]
        await stopping
