"""Lists are filtered in one language: CEL over the fields of a row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harken.errors import Malformed
from harken.operate.list_filter import DEAD_FIELDS, EVENT_FIELDS, RUN_FIELDS, TRIGGER_FIELDS, Where
from harken.runs import Dead
from harken.store import Settlement
from tests.operate.operator_world import Office, trigger
from tests.operate.test_backtest import item, office_with

PICKY: dict[str, Any] = {"key": "I7", "trigger": "oncall", "since": "2099-01-01T00:00:00Z", "before": 9}


async def fill(office: Office, number: int = 30) -> None:
    for at in range(number):
        await office.shows(item(office, f"I{at}", urgency="high" if at % 3 else "low", size=at))


async def keys(office: Office, where: str, **more: Any) -> list[str]:
    found: list[str] = []
    page: dict[str, Any] = {"next": ""}
    while page["next"] is not None:
        page = await office.ask("events.list", where=where, cursor=page["next"], **more)
        found += [row["key"] for row in page["items"]]
    return found


async def test_events_are_filtered_by_their_data_and_verdicts(tmp_path: Path) -> None:
    async with office_with(tmp_path, trigger(condition='event.urgency == "high"')) as office:
        await fill(office)
        assert await keys(office, "data.size < 3") == ["I2", "I1", "I0"]
        found = await keys(office, 'verdicts.exists(v, v.outcome == "filtered") && data.size > 20', limit=2)
        assert found == ["I27", "I24", "I21"]
        assert await keys(office, 'key == "I7"') == ["I7"]


async def test_pages_show_every_row_once_however_small(tmp_path: Path) -> None:
    async with office_with(tmp_path, trigger()) as office:
        await fill(office)
        for limit in (1, 3, 7, 50):
            assert await keys(office, "data.size % 2 == 0", limit=limit) == [f"I{at}" for at in range(28, -1, -2)]


async def test_who_follows_events_gets_those_after_an_id_oldest_first_with_and_without_a_filter(tmp_path: Path) -> None:
    async with office_with(tmp_path, trigger()) as office:
        await fill(office)
        fifth = (await office.ask("events.list", where='key == "I5"'))["items"][0]["id"]
        assert await keys(office, "data.size % 10 == 0", after=fifth, limit=2) == ["I10", "I20"]
        assert await keys(office, "data.nothing == 1", after=fifth) == [], "what comes may be of another kind"
        page = await office.ask("events.list", after=fifth, limit=4)
        assert [row["key"] for row in page["items"]] == ["I6", "I7", "I8", "I9"]
        page = await office.ask("events.list", after=fifth, limit=500, cursor=page["next"])
        assert ([row["key"] for row in page["items"]], page["next"]) == ([f"I{at}" for at in range(10, 30)], None)
        older = await office.ask("events.list", before=fifth, limit=2)
        assert [row["key"] for row in older["items"]] == ["I4", "I3"]
        assert await keys(office, "data.size < 2", before=fifth) == ["I1", "I0"]
        picky = [await office.ask("events.list", after=fifth, **{name: value}) for name, value in PICKY.items()]
        assert [len(one["items"]) for one in picky] == [1, 24, 0, 2]


async def test_runs_dead_letters_and_triggers_are_filtered_too(tmp_path: Path) -> None:
    async with office_with(tmp_path, trigger(condition="event.size == 4"), trigger("other")) as office:
        await fill(office, 6)
        runs = await office.ask("runs.list", where='trigger == "oncall" && status == "ready"')
        assert [row["event_keys"] for row in runs["items"]] == [["I4"]]
        # the store found them by trigger and status
        assert runs["looked_at"] == 1
        [claimed] = [one for one in await office.store.claim("w", 10, 60) if one.trigger == "oncall"]
        await office.store.settle([Settlement(id=claimed.id, token=claimed.token, outcome=Dead(error="no such room"))])
        assert len((await office.ask("dead.list", where='reason.contains("room")'))["items"]) == 1
        assert (await office.ask("dead.list", where='reason.contains("moon")'))["items"] == []
        assert [row["name"] for row in (await office.ask("triggers.list", where="fired == 1"))["items"]] == ["oncall"]


@pytest.mark.parametrize(
    ("operation", "where", "said"),
    [
        ("events.list", "kye == 'a'", "there is no field kye here"),
        ("runs.list", "state == 'dead'", "there is no field state here"),
        ("dead.list", "run == 'x'", "there is no field run here"),
        ("triggers.list", "staus == 'paused'", "there is no field staus here"),
        ("events.list", "key ==", "the filter cannot be"),
        ("events.list", "size(key)", "the filter cannot be used"),
        ("events.list", "data.sise == 1", "the filter fails on each of 2 rows"),
    ],
)
async def test_an_unknown_field_is_an_error_and_never_no_rows(
    tmp_path: Path, operation: str, where: str, said: str
) -> None:
    async with office_with(tmp_path, trigger()) as office:
        await fill(office, 2)
        with pytest.raises(Malformed, match=said):
            await office.ask(operation, where=where)


@pytest.mark.parametrize(
    "where",
    [
        "(" * 1500 + "true" + ")" * 1500,
        "[" * 300 + "]" * 300 + " == data.x",
        "data" + ".a" * 1500 + " == 1",
        "".join(f"data.x.exists(i{at}, " for at in range(150)) + "true" + ")" * 150,
    ],
)
async def test_a_filter_that_is_nested_too_deep_is_refused(where: str) -> None:
    with pytest.raises(Malformed, match="nested too deep"):
        Where(where, EVENT_FIELDS)


async def test_the_nearest_field_is_named() -> None:
    with pytest.raises(Malformed) as refused:
        Where("staus == 'x'", RUN_FIELDS)
    assert "status" in refused.value.fix


async def test_the_fields_are_those_of_the_rows(tmp_path: Path) -> None:
    async with office_with(tmp_path, trigger()) as office:
        await fill(office, 1)
        [claimed] = await office.store.claim("w", 10, 60)
        await office.store.settle([Settlement(id=claimed.id, token=claimed.token, outcome=Dead(error="x"))])
        lists = {"events": EVENT_FIELDS, "runs": RUN_FIELDS, "dead": DEAD_FIELDS, "triggers": TRIGGER_FIELDS}
        for noun, fields in lists.items():
            row = (await office.ask(f"{noun}.list"))["items"][0]
            assert set(fields) == set(row), noun


def test_a_filter_that_ends_too_early_is_said_to_be_that() -> None:
    with pytest.raises(Malformed, match="the filter cannot be read: 1:13: something is missing at the end"):
        Where("data.size ==", EVENT_FIELDS)
