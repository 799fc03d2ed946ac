"""The whole engine on virtual time: a run for each new row of a table, over restarts, late commits and trouble."""

from __future__ import annotations

import sqlite3
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harken.app import App
from harken.testing import VirtualClock, virtual
from tests.services.whole import occurrences, running, write

MAIN = "integrations:\n  shop: {{kind: sql, url: 'sqlite:///{path}'}}\n"
WATCH = """\
name: orders
trigger:
  type: poll
  poll:
    integration: shop
    query: %s
    interval: 60s
steps:
  - id: tell
    action: transform
    set: {text: "order {{.trigger.event.id}} is {{.trigger.event.note}}"}
"""


class Shop:
    """A database that somebody else writes."""

    def __init__(self, directory: Path, clock: VirtualClock, **query: Any) -> None:
        self._clock = clock
        self._connection = sqlite3.connect(directory / "shop.db", isolation_level=None)
        self.do("PRAGMA synchronous = OFF")
        self.do("CREATE TABLE orders (id INTEGER PRIMARY KEY AUTOINCREMENT, at TEXT, note TEXT)")
        asked = {"query": "SELECT id, at, note FROM orders", "watermark": "at", **query}
        watch = WATCH % msgspec.json.encode(asked).decode()
        write(directory, MAIN.format(path=directory / "shop.db"), orders=watch)

    def do(self, sql: str, *values: Any) -> None:
        self._connection.execute(sql, values)

    def order(self, note: str = "new", ago: float = 0.0) -> None:
        at = self._clock.now() - timedelta(seconds=ago)
        self.do("INSERT INTO orders (at, note) VALUES (?, ?)", f"{at:%Y-%m-%d %H:%M:%S}", note)


async def fired(app: App) -> list[str]:
    """The rows that runs were for, each run being done."""
    return sorted((key.partition("@")[0] for key in await occurrences(app)), key=int)


@pytest.mark.parametrize("watermark", ["at", "id"])
def test_each_new_row_runs_once_over_many_reads_and_a_restart(tmp_path: Path, watermark: str) -> None:
    @virtual
    async def story(clock: VirtualClock) -> None:
        shop = Shop(tmp_path, clock, watermark=watermark, page_size=7)
        for _ in range(300):
            shop.order(ago=3600)
        async with running(tmp_path, clock) as app:
            await clock.sleep(300)
            assert await fired(app) == []
            for _ in range(20):
                shop.order()
            await clock.sleep(600)
            assert await fired(app) == [str(id) for id in range(301, 321)]
        shop.order()
        await clock.sleep(9 * 3600)
        async with running(tmp_path, clock) as app:
            await clock.sleep(300)
            shop.order()
            await clock.sleep(300)
            assert await fired(app) == [str(id) for id in range(301, 323)]

    story()


@virtual
async def test_a_row_that_was_committed_late_runs_too(clock: VirtualClock, tmp_path: Path) -> None:
    shop = Shop(tmp_path, clock)
    async with running(tmp_path, clock) as app:
        await clock.sleep(300)
        shop.order("first")
        await clock.sleep(120)
        shop.order("of a transaction that took long", ago=200)
        await clock.sleep(300)
        assert await fired(app) == ["1", "2"]


@virtual
async def test_each_change_of_a_row_runs_once(clock: VirtualClock, tmp_path: Path) -> None:
    shop = Shop(tmp_path, clock)
    async with running(tmp_path, clock) as app:
        await clock.sleep(120)
        shop.order()
        await clock.sleep(180)
        shop.do("UPDATE orders SET note = 'paid', at = ?", f"{clock.now():%Y-%m-%d %H:%M:%S}")
        await clock.sleep(600)
        assert await fired(app) == ["1", "1"]


@virtual
async def test_a_table_that_is_gone_pauses_and_its_return_loses_nothing(clock: VirtualClock, tmp_path: Path) -> None:
    shop = Shop(tmp_path, clock)
    async with running(tmp_path, clock) as app:
        await clock.sleep(120)
        shop.do("ALTER TABLE orders RENAME TO hidden")
        await clock.sleep(300)
        (feed,) = [state for state in await app.store.feeds() if state.name.startswith("sql-")]
        assert feed.health.state == "paused"
        assert "no such table: orders" in feed.health.message
        shop.do("ALTER TABLE hidden RENAME TO orders")
        shop.order()
        await app.operator.call("triggers.resume", name="orders")
        await clock.sleep(300)
        assert await fired(app) == ["1"]
