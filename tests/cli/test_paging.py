"""Lists that are longer than a page, durations as options, and times as people and programs read them."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from datetime import datetime

import pytest

from harken.event import Event
from tests.cli.conftest import Desk


@pytest.fixture
def in_berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


async def runs(desk: Desk, count: int) -> None:
    await desk.office.shows(*(desk.office.incident(f"INC-{number}") for number in range(count)))


async def test_runs_list_json_never_stops_silently_at_500(desk: Desk) -> None:
    await runs(desk, 620)
    query = ("runs", "list", "--trigger", "oncall")
    assert len(await desk.json(*query, "--limit", "610")) == 610
    everything = await desk.json(*query, "--all")
    assert len({row["id"] for row in everything}) == 620
    _, _, err = await desk.types(*query, "--json", "--limit", "600")
    assert re.fullmatch(r"There is more: --before \w+, or --all\n", err)


async def test_a_page_has_a_next_until_the_end(desk: Desk) -> None:
    await runs(desk, 5)
    query = ("runs", "list", "--trigger", "oncall", "--page", "--limit", "3")
    first = await desk.json(*query)
    second = await desk.json(*query, "--before", str(first["next"]))
    assert (len(first["items"]), len(second["items"]), second["next"]) == (3, 2, None)
    assert len({row["id"] for row in (*first["items"], *second["items"])}) == 5


async def test_all_of_nothing_is_an_empty_array(desk: Desk) -> None:
    assert await desk.json("runs", "list", "--all") == []
    assert await desk.json("dead", "list", "--page") == {"items": [], "next": None}
    assert (await desk.types("events", "list", "--all"))[1] == "No events yet.\n"
    assert (await desk.types("events", "list", "--feed", "orders"))[1] == "Nothing fits the filter.\n"


async def test_a_page_without_json_is_wrong_usage(desk: Desk) -> None:
    assert (await desk.types("runs", "list", "--page"))[0] == 2


async def test_events_are_listed_since_a_duration(desk: Desk) -> None:
    await desk.office.shows(desk.office.incident("INC-1"))
    desk.office.clock.advance(3_600)
    await desk.office.shows(desk.office.incident("INC-2"))
    assert [row["subject"] for row in await desk.json("events", "list", "--since", "10m")] == ["INC-2"]
    assert len(await desk.json("events", "list", "--since", "1h30m")) == 2


async def test_lookback_takes_a_duration_or_seconds(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []
    preview = desk.engine.preview

    async def noted(trigger: str, lookback_seconds: float) -> object:
        asked.append(lookback_seconds)
        return await preview(trigger, lookback_seconds)

    monkeypatch.setattr(desk.engine, "preview", noted)
    for given in ("1h", "90", "1d12h"):
        assert (await desk.types("triggers", "test", "oncall", "--lookback", given))[0] == 0
    assert asked == [3_600, 90, 129_600]
    code, _, err = await desk.types("triggers", "test", "oncall", "--lookback", "soon")
    assert (code, "Write it like 30s, 5m" in err) == (2, True)


@pytest.mark.usefixtures("in_berlin")
async def test_times_are_local_with_zone_in_tables_and_rfc_3339_utc_in_json(desk: Desk) -> None:
    await desk.office.shows(Event(subject="A", type="json.item", data={"urgency": "high"}, occurred_at=None))
    zoned = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d CES?T")
    bare = re.compile(r"\d\d:\d\d:\d\d(?! CES?T)")
    for command in ("runs", "events", "triggers", "feeds"):
        _, table, _ = await desk.types(command, "list")
        assert zoned.search(table), table
        assert not bare.search(table), table
    [run, *_] = await desk.json("runs", "list")
    _, shown, _ = await desk.types("runs", "show", run["id"])
    assert zoned.search(shown)
    assert not bare.search(shown)
    assert run["created_at"].endswith("Z")
    assert datetime.fromisoformat(run["created_at"]) == desk.office.clock.now()
    [event] = json.loads((await desk.types("events", "list", "--json"))[1])
    assert event["recorded_at"].endswith("Z")
