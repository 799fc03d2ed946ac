"""Budgets and polled triggers on a terminal, with a controller and without one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from harken.app import App
from harken.cli.root import run
from harken.clock import SystemClock
from harken.outgoing_rate_limit import Level
from harken.testing.fakes import Listing
from tests.cli.conftest import Desk

SHOP = """\
store: harken.db
integrations:
  shop: {kind: json, rate_limit: 30/m, allow_private_networks: true}
feeds:
  items: {integration: shop, interval: 60s, query: {url: "http://127.0.0.1:9/items", items_path: items}}
"""
FLOW = "name: items\ntrigger: {feed: items}\nsteps:\n  - {id: note, action: transform, set: {text: seen}}\n"


async def test_a_budget_is_a_table_with_its_reasons_below(desk: Desk) -> None:
    until = desk.office.clock.time() + 700
    desk.engine.levels = {"json:company/incidents": Level(limit=100, remaining=7, blocked_until=until, why="asked")}
    code, out, _ = await desk.types("budget")
    assert (code, "company" in out, "100" in out, "429" in out) == (0, True, True, True)
    [row] = await desk.json("budget")
    assert (row["integrations"], row["limit"], row["waiting"]) == (["company"], 100, 0)


async def test_polled_triggers_have_columns_of_their_own(desk: Desk) -> None:
    await desk.office.fails("api.example answered 503")
    _, out, _ = await desk.types("triggers", "list", "--type", "poll")
    head, first, *_ = out.splitlines()
    assert head.split("  ")[0] == "name"
    assert [word for word in ("last poll", "next poll", "errors", "interval") if word not in head] == []
    assert ("60 s" in first, "degraded" in first) == (True, True)
    assert await desk.json("triggers", "list", "--type", "stream") == []


async def test_one_trigger_is_shown_with_reads_gaps_and_advice(desk: Desk) -> None:
    await desk.office.shows(desk.office.incident("INC-1"))
    desk.office.clock.advance(7200)
    await desk.office.shows(desk.office.incident("INC-2"))
    await desk.office.fails("api.example answered 401. Check the token", state="paused", code="attention")
    code, out, _ = await desk.types("triggers", "show", "oncall")
    assert code == 0
    wanted = ("covered: ", "gap: ", "last error (", "Check the token", "→ Mend that", "reads  result", "start line")
    assert [word for word in wanted if word not in out] == []


def test_before_the_first_start_there_is_a_budget_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "harken.yaml").write_text(SHOP)
    assert run(["--config", str(tmp_path), "budget"]) == 0
    out = capsys.readouterr().out
    assert ("shop" in out, "30/min" in out, "60.0" in out) == (True, True, True)
    (tmp_path / "harken.yaml").write_text(SHOP.replace("30/m", "100/m"))
    assert run(["--config", str(tmp_path), "budget"]) == 0
    assert "100/min" in capsys.readouterr().out


def test_without_a_controller_the_store_knows_the_block(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "harken.yaml").write_text(SHOP)
    (tmp_path / "workflows").mkdir()
    (tmp_path / "workflows" / "items.yaml").write_text(FLOW)
    asyncio.run(_blocked(tmp_path))
    assert run(["--config", str(tmp_path), "budget"]) == 0
    assert "asked for this wait" in capsys.readouterr().out
    # a dry run reads the service, and must not do so now
    assert run(["--config", str(tmp_path), "triggers", "test", "items"]) == 1
    assert "used up for another" in capsys.readouterr().err


def test_before_the_first_start_a_dry_run_looks_back_an_hour(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(_dry_run(tmp_path))
    shown = {row["key"]: row["outcome"] for row in msgspec.json.decode(capsys.readouterr().out)["shown"]}
    assert shown == {"fresh": "fired", "old": "before_start"}


async def _dry_run(directory: Path) -> None:
    listing = Listing(SystemClock())
    listing.add("fresh", age=600)
    listing.add("old", age=7200)
    async with listing.serve() as url:
        query = SHOP.replace("http://127.0.0.1:9/items", f"{url}/all").replace(
            "items_path", "time_field: created_at, items_path"
        )
        (directory / "harken.yaml").write_text(query)
        (directory / "workflows").mkdir()
        (directory / "workflows" / "items.yaml").write_text(FLOW)
        words = ["--config", str(directory), "triggers", "test", "items", "--json"]
        assert await asyncio.to_thread(run, words) == 0
    assert not (directory / "harken.db").exists()


async def _blocked(directory: Path) -> None:
    async with App.start(directory, port=0) as app:
        feed = app.intake.feeds["items"]
        budget = app.factory._rate_limits[app.loaded.integrations["shop"].credential]
        assert feed.feed.name == "items"
        budget.learn({"Retry-After": "700"}, 429)
