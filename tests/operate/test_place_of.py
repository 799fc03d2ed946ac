"""Where a message is in a stream, asked of a running engine and of none."""

from __future__ import annotations

from pathlib import Path

from harken.app.commands_without_controller import open_offline
from harken.source import Cursor
from harken.testing import VirtualClock, virtual
from tests.system.hostile.misbehaving_server import write
from tests.system.hostile.world import House

MAIN = "store: harken.db\nintegrations:\n  redis: {kind: redis, url: 'redis://127.0.0.1:1/0'}\n"
SHIP = "trigger:\n  stream:\n    integration: redis\n    query: {stream: orders}\n"
TIMED = "trigger:\n  schedule: {every: 1h}\n"
AT_5: Cursor = {"id": "5-0", "added": 5}


def write_site(directory: Path) -> None:
    write(directory, MAIN, ship=SHIP, timed=TIMED)


@virtual
async def test_a_controller_asks_the_source_that_it_follows(tmp_path: Path, clock: VirtualClock) -> None:
    write_site(tmp_path)
    house = House(tmp_path, clock)
    await house.up()
    kinds = {feed.kind: feed.name for feed in house.app.loaded.feeds}
    engine = house.app.controller
    assert await engine.place_of(kinds["redis"], "orders@5-1", AT_5) == "ahead"
    assert await engine.place_of(kinds["redis"], "orders@5-0", AT_5) == "behind"
    assert await engine.place_of(kinds["cron"], "orders@5-0", AT_5) is None
    assert await engine.place_of("no such feed", "orders@5-0", AT_5) is None
    await house.down()


async def test_without_a_controller_the_source_is_made_and_nothing_is_connected(tmp_path: Path) -> None:
    write_site(tmp_path)
    async with open_offline(tmp_path) as operator:
        answer = await operator.call("triggers.explain", name="ship", key="orders@5-0")
        assert "The stream was not read yet" in answer["sentence"]
        engine = operator._context.running()
        [feed] = [name for name, feed in operator._context.feeds().items() if feed.kind == "redis"]
        assert await engine.place_of(feed, "orders@10-0", AT_5) == "ahead"
        assert await engine.place_of(feed, "orders@4-9", AT_5) == "behind"
        assert await engine.place_of("no such feed", "orders@4-9", AT_5) is None
