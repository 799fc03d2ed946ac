"""A span of stored events is decided again for chosen triggers, in its order, and never twice by the same replay."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from harken.errors import Malformed, Misconfigured, NotFound, Refused
from tests.operate.operator_world import Office, trigger
from tests.operate.test_backtest import item, office_with

CONDITION = 'event.urgency == "high"'


async def show_three(office: Office) -> None:
    for name, urgency in (("A", "high"), ("B", "low"), ("C", "high")):
        await office.shows(item(office, name, urgency=urgency))
        office.clock.advance(60)


async def test_a_span_starts_what_its_condition_wants_in_recorded_order(tmp_path: Path) -> None:
    async with office_with(tmp_path, trigger(condition=CONDITION)) as office:
        await show_three(office)
        answer = await office.ask("events.replay_range", trigger="oncall", since="1h")
        assert [row["key"] for row in answer["runs"]] == ["A", "C"]
        assert answer["outcomes"] == {"fired": 2, "filtered": 1}
        runs = (await office.store.runs()).items
        assert len(runs) == 4
        assert {run.replay_of for run in runs} - {""} == {row["replay_of"] for row in answer["runs"]}
        assert [run.event_keys for run in reversed(runs)][2:] == [("A",), ("C",)]


async def test_the_same_replay_starts_nothing_twice_and_another_one_does(tmp_path: Path) -> None:
    async with office_with(tmp_path, trigger(condition=CONDITION)) as office:
        await show_three(office)
        first = await office.ask("events.replay_range", trigger="oncall", since="1h", replay_id="mine")
        again = await office.ask("events.replay_range", trigger="oncall", since="1h", replay_id="mine")
        other = await office.ask("events.replay_range", trigger="oncall", since="1h", replay_id="yours")
        assert [row["id"] for row in first["runs"]] == [row["id"] for row in again["runs"]]
        assert not {row["id"] for row in first["runs"]} & {row["id"] for row in other["runs"]}
        assert len((await office.store.runs()).items) == 6


async def test_a_dry_replay_starts_nothing_and_asks_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with office_with(tmp_path, trigger(condition=CONDITION)) as office:
        await show_three(office)
        before = len((await office.store.runs()).items)

        def refuse(*args: Any) -> None:
            raise AssertionError("a dry replay reached out")

        monkeypatch.setattr(socket.socket, "connect", refuse)
        monkeypatch.setattr(socket, "getaddrinfo", refuse)
        answer = await office.ask("events.replay_range", trigger="oncall", since="1h", dry=True)
        assert (answer["started"], [row["id"] for row in answer["runs"]]) == (2, ["", ""])
        assert len((await office.store.runs()).items) == before


async def test_conditions_and_mappings_see_that_it_is_a_replay(tmp_path: Path) -> None:
    rules = trigger(condition="!event.replay || event.urgency == 'low'", mapping={"again": "{{ .event.replay }}"})
    async with office_with(tmp_path, rules) as office:
        await show_three(office)
        answer = await office.ask("events.replay_range", trigger="oncall", since="1h")
        assert [row["key"] for row in answer["runs"]] == ["B"]
        assert (await office.ask("runs.show", id=answer["runs"][0]["id"]))["input"] == {"again": True}
        tested = await office.ask("triggers.backtest", name="oncall")
        assert (tested["not_reproduced"], tested["checked"]) == (0, 3)


async def test_only_the_span_is_replayed(tmp_path: Path) -> None:
    async with office_with(tmp_path, trigger()) as office:
        await show_three(office)
        answer = await office.ask("events.replay_range", trigger="oncall", since="150s", until="90s", dry=True)
        assert [row["key"] for row in answer["runs"]] == ["B"]


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ({"trigger": "", "since": "1h"}, Misconfigured),
        ({"trigger": " , ", "since": "1h"}, Misconfigured),
        ({"trigger": "oncall", "since": ""}, Misconfigured),
        ({"trigger": "uncall", "since": "1h"}, NotFound),
        ({"trigger": "oncall", "since": "yesterday"}, Malformed),
        ({"trigger": "oncall", "since": "1h", "until": "2h"}, Refused),
    ],
)
async def test_a_lost_filter_is_an_error_and_never_everything(
    office: Office, asked: dict[str, str], error: type[Exception]
) -> None:
    with pytest.raises(error):
        await office.ask("events.replay_range", **asked)
