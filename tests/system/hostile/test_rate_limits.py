"""Too many calls: nobody asks before the time is over, in this life or the next, and others go on."""

from __future__ import annotations

from datetime import datetime
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest

from harken.app.source_and_action_factory import Factory
from harken.config.loaded import Account, Loaded
from harken.testing import HandClock, VirtualClock, virtual
from harken.testing.fakes import Answer, Listing
from tests.system.hostile.misbehaving_server import Harken, Source, says, started, until, write
from tests.system.hostile.world import ACCOUNT, PAGES, House, configured, feed, listing

LIMITED = Answer(status=429, headers={"Retry-After": "700"})
TRIGGERS = {name: f"trigger: {{feed: {name}}}\n" for name in ("items", "twin", "other")}
ELSEWHERE = ACCOUNT.format(name="elsewhere", more=", rate_limit: 100/s")
SLOW = ACCOUNT.format(name="slow", more=", rate_limit: 1/s")
SLOWER = ACCOUNT.format(name="slow", more=", rate_limit: 4/m")


def settle_in(directory: Path, shop: str, other: str) -> None:
    """Two feeds that read the same vendor, and one that reads another."""
    feeds = [
        feed("items", f"{shop}/all"),
        feed("twin", f"{shop}/pages"),
        feed("other", f"{other}/all", integration="elsewhere"),
    ]
    write(directory, configured(*feeds, integrations=ELSEWHERE), **TRIGGERS)


def asked_since(server: Listing, moment: float) -> list[float]:
    return [round(seen.at - moment) for seen in server.seen if seen.at > moment]


async def limited(server: Listing, clock: VirtualClock) -> float:
    """Have the next call answered with 429; the moment in which it was."""
    server.answers.append(LIMITED)
    while server.answers:
        await clock.sleep(0.5)
    return server.seen[-1].at


@virtual
async def test_nobody_asks_a_vendor_before_retry_after_is_over(tmp_path: Path, clock: VirtualClock) -> None:
    async with listing(clock) as shop, listing(clock) as other:
        settle_in(tmp_path, shop.url, other.url)
        house = House(tmp_path, clock)
        await house.up()
        await clock.sleep(90)
        at = await limited(shop, clock)
        shop.add("meanwhile")
        await clock.sleep(at + 699 - clock.time())
        assert asked_since(shop, at) == []
        assert len(asked_since(other, at)) >= 9
        rows = {row["integrations"][0]: row for row in (await house.ask("budget.list"))["items"]}
        until = datetime.fromisoformat(rows["json"]["blocked_until"]).timestamp()
        assert (round(until - at), rows["elsewhere"]["blocked_until"]) == (700, None)
        assert "429" in rows["json"]["reason"]
        await clock.sleep(200)
        assert min(asked_since(shop, at)) >= 700
        assert [await house.fired("items"), await house.fired("twin")] == [["meanwhile"], ["meanwhile"]]
        await house.down()


@pytest.mark.parametrize("end", ["down", "die"])
def test_a_restart_does_not_forget_it(tmp_path: Path, end: str) -> None:
    virtual(_restarted)(tmp_path, end)


async def _restarted(tmp_path: Path, end: str, clock: VirtualClock) -> None:
    async with listing(clock) as shop, listing(clock) as other:
        settle_in(tmp_path, shop.url, other.url)
        house = House(tmp_path, clock)
        await house.up()
        await clock.sleep(90)
        at = await limited(shop, clock)
        await getattr(house, end)()
        await clock.sleep(60)
        await house.up()
        # what a person asks for waits as well
        await house.ask("triggers.reset", name="twin")
        assert (await house.ask("triggers.run", name="items"))["result"] == "rate_limited"
        await clock.sleep(at + 699 - clock.time())
        assert asked_since(shop, at) == []
        assert len(asked_since(other, at)) >= 8
        status = {row["name"]: (row["status"], row["failures"]) for row in (await house.ask("triggers.list"))["items"]}
        assert status == {"items": ("degraded", 0), "twin": ("degraded", 0), "other": ("healthy", 0)}
        await clock.sleep(120)
        assert min(asked_since(shop, at)) >= 700
        await house.down()


@virtual
async def test_a_trigger_with_fifty_pages_does_not_starve_its_sibling(tmp_path: Path, clock: VirtualClock) -> None:
    async with listing(clock) as shop:
        many = PAGES.replace("40", "4")
        feeds = [
            feed("many", f"{shop.url}/offsets", integration="slow", more=many),
            feed("few", f"{shop.url}/all?few=1", integration="slow", interval="10s"),
        ]
        write(
            tmp_path,
            configured(*feeds, integrations=SLOW),
            many="trigger: {feed: many}\n",
            few="trigger: {feed: few}\n",
        )
        house = House(tmp_path, clock)
        await house.up()
        await clock.sleep(100)
        for number in range(200):
            shop.add(f"item-{number:03}")
        began = clock.time()
        await clock.sleep(150)
        few = [seen.at for seen in shop.seen if seen.path == "/all" and seen.at > began]
        assert max(after - before for before, after in pairwise(few)) < 15
        assert sum(seen.path == "/offsets" and seen.at > began for seen in shop.seen) >= 50
        assert len(await house.fired("many")) == 200
        await house.down()


@virtual
async def test_a_tight_limit_of_our_own_makes_reads_late_and_never_failures(
    tmp_path: Path, clock: VirtualClock
) -> None:
    async with listing(clock) as shop:
        feeds = [feed(name, f"{shop.url}/all?{name}=1", integration="slow", interval="10s") for name in ("a", "b")]
        write(tmp_path, configured(*feeds, integrations=SLOWER), a="trigger: {feed: a}\n", b="trigger: {feed: b}\n")
        house = House(tmp_path, clock)
        await house.up()
        await clock.sleep(1800)
        asked = [seen.at for seen in shop.seen]
        assert min(after - before for before, after in pairwise(asked)) > 14.9
        assert {name: sum(name in seen.query for seen in shop.seen) >= 30 for name in "ab"} == {"a": True, "b": True}
        assert {row["failures"] for row in (await house.ask("triggers.list"))["items"]} == {0}
        await house.down()


class Meanwhile:
    """A store that takes its time, in which another account is used for the first time."""

    def __init__(self, factory: Factory) -> None:
        self._factory = factory
        self.names: list[str] = []

    async def put(self, kind: str, name: str, value: Any) -> None:
        self.names.append(name)
        self._factory.lend(Account(name=f"new-{name}", kind="json", credential=f"new-{name}"))


async def test_a_credential_that_turns_up_while_budgets_are_written_disturbs_nothing(tmp_path: Path) -> None:
    factory = Factory(Loaded(directory=tmp_path), {}, HandClock(), Random(1))
    for name in ("one", "two"):
        factory.lend(Account(name=name, kind="json", credential=name))
        factory._rate_limits[name].learn({"Retry-After": "700"}, 429)
    store = Meanwhile(factory)
    await factory.save_rate_limits(cast(Any, store))
    assert store.names == ["one", "two"]
    await factory.close()


@pytest.mark.process
@pytest.mark.worker_group("hostile-rates")
async def test_kill_9_right_after_a_429_and_still_nobody_asks(tmp_path: Path) -> None:
    async with Source.serve() as shop, Source.serve() as other:
        shop.answers = {"/all": says(b"", "429 Too Many Requests", "Retry-After: 700"), "/pages": says(b"{}")}
        other.answers = {"/all": says(b'{"items": []}')}
        settle_in(tmp_path, shop.url, other.url)
        config = tmp_path / "harken.yaml"
        config.write_text(config.read_text().replace("60s", "1s"))
        # the sibling begins once the vendor has said no
        both = config.read_text()
        config.write_text(both.replace("twin", "items-again").replace("/pages", "/all"))
        (tmp_path / "workflows" / "twin.yaml").unlink()
        async with started(tmp_path) as first:
            # it writes the limit down before anybody hears of the answer
            await until(lambda: _has_heard(first))
            first.process.kill()
            await first.process.wait()
        config.write_text(both)
        write(tmp_path, both, twin=TRIGGERS["twin"])
        before, elsewhere = dict(shop.asked), other.asked.get("/all", 0)
        async with started(tmp_path) as second:
            await until(lambda: _asked(other, "/all", elsewhere + 4))
            assert shop.asked == before
            await _shown(second)


async def _has_heard(harken: Harken) -> bool:
    feeds = {feed["name"]: feed for feed in (await harken.ask("/api/feeds"))[2]["items"]}
    return bool(feeds["items"]["error"] and feeds["items-again"]["error"])


async def _asked(source: Source, path: str, times: int) -> bool:
    return source.asked.get(path, 0) >= times


async def _shown(harken: Harken) -> None:
    rows = {row["integrations"][0]: row for row in await harken.json("budget")}
    assert rows["json"]["blocked_until"]
    assert "429" in rows["json"]["reason"]
    _, text, _ = await harken.types("budget")
    assert "asked for this wait" in text
    [items] = [row for row in await harken.json("triggers", "list", "--type", "poll") if row["name"] == "items"]
    assert (items["status"], items["failures"]) == ("degraded", 0)
    assert items["next_read_at"] >= rows["json"]["blocked_until"][:19]
