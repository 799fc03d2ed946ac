"""Taps that die half-way, babble, hang or send too much: what came before is kept, the rest is read again."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harken.errors import HarkenError, NeedsAttention, RetryLater
from harken.services.singer import process as running_tap
from harken.services.singer.process import PrivateDirectory
from harken.source import Host
from tests.services.processes import open_files, running, zombies
from tests.services.reading import page, read, subjects
from tests.services.taps import Orders

SECRET = "sesame-open-4711"


@pytest.fixture
def host(host: Host) -> Host:
    return replace(host, allow_programs=True, identity="change")


def nothing_left(folder: Path) -> bool:
    return running(str(folder)) == [] and zombies() == []


async def failing(orders: Orders, cursor: Any = None) -> HarkenError:
    with pytest.raises(HarkenError) as caught:
        await page(orders.source, cursor)
    return caught.value


async def test_what_came_before_a_crash_is_kept_and_the_rest_follows_from_the_last_state(tmp_path, clock, host):
    config = {"trick": "die", "after": 5, "every": 2}
    orders = Orders(tmp_path, clock, host, config=config, env={"SHOP_TOKEN": SECRET})
    put = await orders.put(9)
    first = await page(orders.source)
    error = await failing(orders, first.cursor)

    assert subjects([first]) == list(put)[:5]
    assert (first.more, first.cursor["state"]) == (True, {"lines": 4})
    assert str(error) == "tap.py ended with exit code 2: cannot go on with ***"
    assert nothing_left(tmp_path)
    second = await page(orders.source, first.cursor)
    assert subjects([second]) == list(put)[4:]
    await orders.source.aclose()


async def test_a_tap_that_dies_at_once_is_tried_later(tmp_path, clock, host):
    orders = Orders(tmp_path, clock, host, config={"trick": "die", "after": 0})
    error = await failing(orders)

    assert type(error) is RetryLater
    assert nothing_left(tmp_path)


async def test_a_line_that_is_no_message_is_a_failure_after_what_came_before(tmp_path, clock, host):
    orders = Orders(tmp_path, clock, host, config={"trick": "garbage", "after": 2})
    put = await orders.put(4)
    first = await page(orders.source)
    error = await failing(orders, first.cursor)

    assert subjects([first]) == list(put)[:2]
    assert "not a Singer message" in error.message
    assert "stderr" not in error.message
    assert nothing_left(tmp_path)


async def test_a_record_that_is_too_large_is_cut_off_and_needs_a_person(tmp_path, clock, host):
    before = open_files()
    orders = Orders(tmp_path, clock, host, config={"trick": "huge", "after": 1})
    put = await orders.put(2)
    first = await page(orders.source)
    error = await failing(orders, first.cursor)

    assert subjects([first]) == list(put)[:1]
    assert isinstance(error, NeedsAttention)
    assert "more than 8 MiB" in error.message
    assert nothing_left(tmp_path)
    assert open_files() == before


async def test_a_tap_that_falls_silent_is_ended_after_what_it_sent(tmp_path, clock, host):
    orders = Orders(tmp_path, clock, host, config={"trick": "hang", "after": 2}, timeout=8)
    put = await orders.put(4)
    first = await page(orders.source)
    error = await failing(orders, first.cursor)

    assert subjects([first]) == list(put)[:2]
    assert isinstance(error, RetryLater)
    assert (error.reason, error.message) == ("timeout", "tap.py wrote nothing for 8 s and was ended")
    assert nothing_left(tmp_path)


async def test_a_slow_tap_gives_empty_pages_until_its_silence_is_too_long(
    tmp_path, clock, host, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(running_tap, "PATIENCE_SECONDS", 0.2)
    orders = Orders(tmp_path, clock, host, config={"trick": "hang", "after": 0}, timeout=0.5)
    first = await page(orders.source)
    with pytest.raises(RetryLater, match="wrote nothing"):
        await read(orders.source, first.cursor)

    assert (first.events, first.more) == ([], True)
    assert nothing_left(tmp_path)


async def test_a_run_that_takes_too_long_is_ended(tmp_path, clock, host, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(running_tap, "MOST_RECORDS", 1)
    orders = Orders(tmp_path, clock, host, max_runtime=60)
    await orders.put(5)
    first = await page(orders.source)
    clock.advance(61)
    error = await failing(orders, first.cursor)

    assert error.message == "tap.py ran for more than 60 s and was ended"
    assert nothing_left(tmp_path)


async def test_a_tap_that_hangs_when_asked_for_its_streams_is_ended(tmp_path, clock, host):
    orders = Orders(tmp_path, clock, host, config={"discovery": "hang"}, streams=["orders"], timeout=0.4)
    error = await failing(orders)

    assert error.message == "tap.py --discover took more than 0.4 s and was ended"
    assert nothing_left(tmp_path)


async def test_a_catalog_may_take_longer_than_a_page(tmp_path, clock, host, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("harken.services.singer.PATIENCE_SECONDS", 0.01)
    # as many empty pages as a busy machine may need to start a program
    monkeypatch.setattr("tests.services.reading.MOST", 10_000)
    orders = Orders(tmp_path, clock, host, streams=["orders"])
    put = await orders.put(1)
    batches = await read(orders.source)

    assert len(batches) > 1
    assert subjects(batches) == list(put)


async def test_closing_ends_a_tap_that_is_asked_for_its_streams(tmp_path, clock, host, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("harken.services.singer.PATIENCE_SECONDS", 0.1)
    orders = Orders(tmp_path, clock, host, config={"discovery": "hang"}, streams=["orders"])
    waiting = await page(orders.source)
    await orders.source.aclose()

    assert (waiting.more, waiting.cursor) == (True, None)
    assert nothing_left(tmp_path)


async def test_a_catalog_that_is_none_is_tried_later(tmp_path, clock, host):
    orders = Orders(tmp_path, clock, host, config={"discovery": "garbage"}, streams=["orders"])
    assert "did not write a catalog" in (await failing(orders)).message
    assert nothing_left(tmp_path)


async def test_a_state_told_before_its_records_is_taken_and_the_records_follow(tmp_path, clock, host):
    messages = [
        {"type": "STATE", "value": {"seen": 2}},
        {"type": "RECORD", "stream": "rows", "record": {"id": 1}},
        {"type": "RECORD", "stream": "rows", "record": {"id": 2}},
    ]
    orders = Orders(tmp_path, clock, host, config={"messages": messages, "every": 0})
    batches = await read(orders.source)

    assert len(subjects(batches)) == 2
    assert batches[-1].cursor == {"state": {"seen": 2}}


async def test_a_tap_that_tells_no_state_is_read_from_its_start_each_time(tmp_path, clock, host):
    orders = Orders(tmp_path, clock, host, config={"every": 0})
    put = await orders.put(3)
    first = await read(orders.source)
    second = await read(orders.source, first[-1].cursor)

    assert first[-1].cursor == {}
    assert subjects(first) == subjects(second) == list(put)


async def test_a_cursor_that_is_none_of_ours_begins_anew(tmp_path, clock, host):
    orders = Orders(tmp_path, clock, host)
    put = await orders.put(2)
    assert subjects(await read(orders.source, "nonsense")) == list(put)


async def test_a_record_without_a_stream_is_not_passed_over(tmp_path, clock, host):
    messages = [{"type": "RECORD", "record": {"id": 1}}]
    orders = Orders(tmp_path, clock, host, config={"messages": messages})
    assert isinstance(await failing(orders), NeedsAttention)


def test_what_a_killed_process_left_behind_is_removed_by_the_next(tmp_path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    killed, alive = PrivateDirectory(), PrivateDirectory()
    killed.put("config.json", {"api_key": SECRET})
    os.close(killed._lock)
    third = PrivateDirectory()

    assert [folder.path.exists() for folder in (killed, alive, third)] == [False, True, True]
    assert (third.path.stat().st_mode & 0o777, third.path.parent.stat().st_mode & 0o777) == (0o700, 0o700)
    alive.remove()
    third.remove()
    assert json.dumps(list(map(str, third.path.parent.iterdir()))) == "[]"
