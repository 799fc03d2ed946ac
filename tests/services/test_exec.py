"""A poller in another process and another language, asked over its stdin and stdout."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from harken.errors import NeedsAttention
from harken.services.exec import Query, StdioPoller, plugin
from harken.source import Host
from harken.testing import START, HandClock
from harken.testing.source import SourceContract
from tests.services.processes import left_behind, open_files, running, zombies
from tests.services.programs import POLLERS, Ledger
from tests.services.reading import events, page, read, subjects


@pytest.fixture
def host(host: Host) -> Host:
    return replace(host, allow_programs=True, identity="change", feed="orders")


@pytest.fixture
async def service(tmp_path: Path, clock: HandClock, host: Host) -> AsyncIterator[Ledger]:
    ledger = Ledger(tmp_path, clock, host)
    yield ledger
    await ledger.source.aclose()


class TestAPollerInAChildProcess(SourceContract):
    """The contract of every source, with a real process behind it."""


def answering(folder: Path, clock: HandClock, host: Host, answer: Any) -> StdioPoller:
    return Ledger(folder, clock, host, config={"answer": answer}).source


async def shown(folder: Path, clock: HandClock, host: Host, *items: Any) -> list[Any]:
    source = answering(folder, clock, host, {"items": list(items)})
    try:
        return events([await page(source)])
    finally:
        await source.aclose()


async def test_a_poller_in_shell_is_read_page_by_page(host: Host):
    source = StdioPoller(Query(command=[str(POLLERS / "count.sh")]), host)
    first = await read(source)
    second = await read(source, first[-1].cursor)
    await source.aclose()

    assert subjects(first) == ["1", "2", "3"]
    fourth = events(second)[0]
    assert (fourth.subject, fourth.state, fourth.data["square"]) == ("4", "new", 16)
    assert left_behind(str(POLLERS / "count.sh")) == []


async def test_one_process_serves_many_reads(service: Ledger):
    await page(service.source)
    first = service.source._client.child
    await page(service.source)

    assert service.source._client.child is first
    assert first is not None


async def test_with_restart_after_read_every_read_has_a_process_of_its_own(tmp_path, clock, host):
    ledger = Ledger(tmp_path, clock, host, restart="after_read")
    await ledger.put(4)
    batches = await read(ledger.source)

    assert len(subjects(batches)) == 4
    assert running(str(ledger.file)) == []
    assert ledger.source._client.child is None


async def test_every_field_of_an_item_arrives_in_its_event(tmp_path, clock, host):
    item = {"id": 7, "state": "open", "type": "order.new", "occurred_at": "2026-01-05T09:00:00Z", "data": {"total": 12}}
    (event,) = await shown(tmp_path, clock, host, item)

    assert (event.subject, event.state, event.type) == ("7", "open", "order.new")
    assert event.occurred_at == datetime(2026, 1, 5, 9, tzinfo=UTC)
    assert event.data == {"id": 7, "total": 12}


@pytest.mark.parametrize(("state", "kept"), [(None, None), (3, "3"), (True, "true"), (1.5, "1.5"), ("", "")])
async def test_a_state_becomes_text(tmp_path, clock, host, state, kept):
    (event,) = await shown(tmp_path, clock, host, {"id": "a", "state": state})
    assert event.state == kept


async def test_plain_data_is_called_value(tmp_path, clock, host):
    (event,) = await shown(tmp_path, clock, host, {"id": "a", "data": [1, 2]})
    assert event.data == {"id": "a", "value": [1, 2]}


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"rows": []}, "missing required field `items`"),
        ({"items": [{"data": {}}]}, r"`id` - at `\$.items\[0\]`"),
        ({"items": [{"id": ""}]}, "an empty id"),
        ({"items": [{"id": 1, "occurred_at": "yesterday"}]}, "not a time"),
        ({"items": [], "cursor": None, "more": True}, "without moving the cursor"),
        ([], "another shape"),
    ],
)
async def test_an_answer_in_another_shape_is_a_failure_that_says_where(tmp_path, clock, host, answer, reason):
    source = answering(tmp_path, clock, host, answer)
    with pytest.raises(NeedsAttention, match=f"(?i){reason}"):
        await page(source)
    await source.aclose()


async def test_an_answer_may_take_longer_than_a_page_and_nothing_is_asked_twice(
    tmp_path, clock, host, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("harken.services.exec.PATIENCE_SECONDS", 0.05)
    ledger = Ledger(tmp_path, clock, host, config={"trick": "slow", "seconds": 0.4, "page": 100})
    await ledger.put(2)
    batches = await read(ledger.source)
    await ledger.source.aclose()

    assert len(batches) > 1
    assert subjects(batches[:-1]) == []
    assert subjects(batches) == ["i1", "i2"]


async def test_a_moved_cursor_is_asked_for_although_another_answer_is_under_way(
    tmp_path, clock, host, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("harken.services.exec.PATIENCE_SECONDS", 0.2)
    ledger = Ledger(tmp_path, clock, host, config={"trick": "hang", "once": str(tmp_path / "once"), "page": 100})
    await ledger.put(5)
    hangs = ledger.file.with_suffix(".pid")
    os.mkfifo(hangs)
    waiting = await page(ledger.source)
    await asyncio.to_thread(hangs.read_text)
    batches = await read(ledger.source, 3)
    await ledger.source.aclose()

    assert (waiting.more, waiting.events) == (True, ())
    assert subjects(batches) == ["i4", "i5"]


async def test_closing_leaves_no_process_no_zombie_and_no_open_file(tmp_path, clock, host):
    before = open_files()
    ledger = Ledger(tmp_path, clock, host, command=[sys.executable, str(POLLERS / "lines_poller.py"), str(tmp_path)])
    await page(ledger.source)
    assert len(running(str(tmp_path))) == 1
    await ledger.source.aclose()
    await ledger.source.aclose()

    assert running(str(tmp_path)) == []
    assert zombies() == []
    assert open_files() == before


async def test_the_program_learns_its_job_and_runs_in_the_directory_of_the_configuration(tmp_path, clock, host):
    (tmp_path / "mine.sh").write_text('#!/bin/sh\nread line\necho "$line" > asked\n')
    (tmp_path / "mine.sh").chmod(0o755)
    here = replace(host, directory=str(tmp_path))
    source = StdioPoller(Query(command=["./mine.sh"], config={"shop": "north"}), here)
    with pytest.raises(Exception, match="exit code 0"):
        await source.poll(None, START)

    asked = (tmp_path / "asked").read_text()
    assert '"method":"initialize"' in asked
    assert '"params":{"protocol":1,"job_id":"orders","config":{"shop":"north"}}' in asked


@pytest.mark.parametrize(
    "query", [{"command": []}, {"command": [""]}, {"command": "ls -l"}, {"command": ["ls"], "timeout": 0}]
)
def test_a_command_is_a_list_that_begins_with_a_program(query: Any):
    with pytest.raises(ValidationError):
        Query.model_validate(query)


def test_what_is_given_in_env_is_not_shown_again():
    query = Query.model_validate({"command": ["ls"], "env": {"TOKEN": "sesame-open-now"}})
    assert "sesame" not in repr(query)
    assert "sesame" not in query.model_dump_json()


def test_every_field_is_described():
    assert plugin.query is not None
    assert [name for name, field in plugin.query.model_fields.items() if not field.description] == []
