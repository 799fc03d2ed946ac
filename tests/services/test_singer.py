"""Any Singer tap: records are events, the state that it tells is the cursor."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from harken.errors import NeedsAttention
from harken.event import Event
from harken.services.singer import Query, plugin
from harken.services.singer import process as running_tap
from harken.source import Host
from harken.testing import HandClock
from harken.testing.source import SourceContract
from tests.services.processes import open_files, running, zombies
from tests.services.reading import events, page, read, subjects
from tests.services.taps import Orders

SCHEMA = {"type": "SCHEMA", "stream": "rows", "schema": {"properties": {}}, "key_properties": ["id"]}


@pytest.fixture
def host(host: Host) -> Host:
    return replace(host, allow_programs=True, identity="change")


@pytest.fixture
async def service(
    tmp_path: Path, clock: HandClock, host: Host, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Orders]:
    monkeypatch.setattr(running_tap, "MOST_RECORDS", Orders.page_size)
    orders = Orders(tmp_path, clock, host)
    yield orders
    await orders.source.aclose()


class TestATap(SourceContract):
    """The contract of every source: the tap runs on from page to page, or is run again from the last state."""


def row(stream: str = "rows", **record: Any) -> dict[str, Any]:
    return {"type": "RECORD", "stream": stream, "record": record}


async def sent(folder: Path, clock: HandClock, host: Host, *messages: Any, **options: Any) -> list[Event]:
    orders = Orders(folder, clock, host, config={"messages": list(messages)}, **options)
    return events(await read(orders.source))


async def test_a_record_becomes_an_event_with_its_stream(tmp_path, clock, host):
    schema = {**SCHEMA, "bookmark_properties": ["at"]}
    (event,) = await sent(tmp_path, clock, host, schema, row(id=7, at="2026-01-05T09:00:00Z", total=12))

    assert (event.subject, event.type, event.state) == ("rows/7", "rows", "2026-01-05T09:00:00Z")
    assert event.data == {"_stream": "rows", "id": 7, "at": "2026-01-05T09:00:00Z", "total": 12}
    assert event.occurred_at == datetime(2026, 1, 5, 9, tzinfo=UTC)


async def test_a_changed_row_is_a_change_although_no_field_says_so(tmp_path, clock, host):
    rows = [row(id=1, name="a"), row(id=1, name="a"), row(id=1, name="b")]
    first, again, changed = await sent(tmp_path, clock, host, SCHEMA, *rows)

    assert first.subject == again.subject == changed.subject == "rows/1"
    assert first.state == again.state
    assert first.state != changed.state


async def test_when_a_row_was_fetched_is_no_change_but_its_deletion_is(tmp_path, clock, host):
    rows = [
        row(id=1, _sdc_extracted_at="2026-01-05"),
        row(id=1, _sdc_extracted_at="2026-01-06"),
        row(id=1, _sdc_extracted_at="2026-01-06", _sdc_deleted_at="2026-01-06"),
    ]
    first, again, deleted = await sent(tmp_path, clock, host, SCHEMA, *rows)

    assert first.state == again.state
    assert first.state != deleted.state


@pytest.mark.parametrize("version", [1_767_000_000, "1767000000", "2026-01-05 09:00:00", "v2", True])
async def test_what_may_not_be_an_instant_tells_a_change_and_no_time(tmp_path, clock, host, version):
    schema = {**SCHEMA, "bookmark_properties": ["version"]}
    (event,) = await sent(tmp_path, clock, host, schema, row(id=1, version=version))

    assert event.state
    assert event.occurred_at is None


async def test_keys_of_several_fields_cannot_be_mistaken_for_each_other(tmp_path, clock, host):
    schema = {**SCHEMA, "key_properties": ["a", "b"]}
    seen = await sent(tmp_path, clock, host, schema, row(a="x/y", b="z"), row(a="x", b="y/z"))
    assert [event.subject for event in seen] == ['rows/["x/y","z"]', 'rows/["x","y/z"]']


async def test_a_row_without_a_key_is_named_by_its_content(tmp_path, clock, host):
    schema = {**SCHEMA, "key_properties": []}
    seen = await sent(tmp_path, clock, host, schema, row(a=1), row(a=2), row(a=1), row("unknown", a=1))

    assert [seen[0].subject == other.subject for other in seen] == [True, False, True, False]
    assert all(event.subject.startswith(f"{event.type}/") for event in seen)


async def test_the_query_may_name_the_key(tmp_path, clock, host):
    seen = await sent(tmp_path, clock, host, SCHEMA, row(id=1, sku="n7"), key={"rows": ["sku"]})
    assert [event.subject for event in seen] == ["rows/n7"]


async def test_versions_and_messages_of_later_times_are_passed_over(tmp_path, clock, host):
    others = [{"type": "ACTIVATE_VERSION", "stream": "rows", "version": 1}, {"type": "NEW", "what": 1}, ""]
    assert len(await sent(tmp_path, clock, host, SCHEMA, *others, row(id=1))) == 1


async def test_records_in_files_are_refused_instead_of_passed_over(tmp_path, clock, host):
    with pytest.raises(NeedsAttention, match="in files"):
        await sent(tmp_path, clock, host, SCHEMA, {"type": "BATCH", "stream": "rows", "manifest": ["a.gz"]})


async def test_the_cursor_is_the_last_state_and_the_next_run_starts_there(tmp_path, clock, host):
    note = tmp_path / "note"
    orders = Orders(tmp_path, clock, host, config={"note": str(note)})
    await orders.put(3)
    cursor = (await read(orders.source))[-1].cursor
    put = await orders.put(1)
    batches = await read(orders.source, cursor)

    assert cursor == {"state": {"lines": 3}}
    assert subjects(batches) == list(put)
    assert json.loads(note.read_text())["seen"]["state"] == {"lines": 3}


async def test_a_first_run_starts_from_the_state_of_the_query(tmp_path, clock, host):
    orders = Orders(tmp_path, clock, host, state={"lines": 2})
    put = await orders.put(3)
    assert subjects(await read(orders.source)) == list(put)[2:]


async def test_a_quiet_run_leaves_the_cursor_as_it_was(tmp_path, clock, host):
    orders = Orders(tmp_path, clock, host)
    await orders.put(2)
    cursor = (await read(orders.source))[-1].cursor
    (quiet,) = await read(orders.source, cursor)

    assert (quiet.cursor, quiet.events, quiet.more) == (cursor, [], False)


async def test_a_tap_runs_on_from_page_to_page(service: Orders, tmp_path):
    await service.put(3 * service.page_size)
    pages = [await page(service.source)]
    first = service.source._run
    pages.append(await page(service.source, pages[-1].cursor))

    assert service.source._run is first
    assert len({event.subject for event in events(pages)}) == 2 * service.page_size


async def test_a_page_that_was_not_committed_is_read_again_even_without_a_new_state(
    tmp_path, clock, host, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(running_tap, "MOST_RECORDS", 2)
    orders = Orders(tmp_path, clock, host, config={"every": 0})
    put = await orders.put(6)
    first = await page(orders.source)
    lost = await page(orders.source, first.cursor)
    rest = await read(orders.source, first.cursor)

    assert subjects([lost]) == list(put)[2:4]
    assert set(subjects(rest)) == set(put)
    assert (running(str(tmp_path)), zombies()) == ([], [])


async def test_a_tap_gets_its_secrets_in_private_files_that_are_gone_afterwards(tmp_path, clock, host):
    note = tmp_path / "note"
    config = {"note": str(note), "api_key": "sesame-open-4711"}
    orders = Orders(tmp_path, clock, host, config=config, catalog={"streams": []}, state={"lines": 0})
    await read(orders.source)
    told = json.loads(note.read_text())
    files = [Path(word) for word in told["argv"] if word.endswith(".json")]

    assert "sesame" not in " ".join(told["argv"])
    assert told["seen"]["config"]["api_key"] == "sesame-open-4711"
    assert told["modes"] == {"config": "0o600", "catalog": "0o600", "state": "0o600"}
    assert len(files) == 3
    assert [file for file in files if file.parent.exists()] == []


async def test_streams_are_selected_in_the_catalog_of_the_tap(tmp_path, clock, host):
    note = tmp_path / "note"
    orders = Orders(tmp_path, clock, host, config={"note": str(note)}, streams=["orders"])
    put = await orders.put(1)
    batches = await read(orders.source)
    catalog = json.loads(note.read_text())["seen"]["catalog"]
    chosen, other = catalog["streams"]

    assert subjects(batches) == list(put)
    assert (chosen["selected"], other["selected"]) == (True, False)
    whole, automatic, available = [entry["metadata"] for entry in chosen["metadata"]]
    assert whole == {"replication-method": "INCREMENTAL", "selected": True}
    assert (automatic.get("selected"), available["selected"]) == (None, True)
    assert [entry["metadata"].get("selected") for entry in other["metadata"]] == [False, None, None]


async def test_an_old_tap_gets_its_catalog_as_properties(tmp_path, clock, host):
    note = tmp_path / "note"
    old = {"streams": ["orders"], "catalog_option": "--properties"}
    await read(Orders(tmp_path, clock, host, config={"note": str(note)}, **old).source)
    assert json.loads(note.read_text())["seen"]["properties"]["streams"][0]["selected"] is True


async def test_a_stream_that_is_not_there_names_those_that_are(tmp_path, clock, host):
    orders = Orders(tmp_path, clock, host, streams=["order"])
    with pytest.raises(NeedsAttention, match=r"has no stream order\. It has: orders, customers"):
        await page(orders.source)

    assert running(str(tmp_path)) == []


MANY = 4_000


async def test_closing_ends_a_tap_in_the_middle_of_its_run(service: Orders, tmp_path):
    before = open_files()
    # more than a pipe holds, so that it cannot have said everything yet
    await service.put(MANY)
    await page(service.source)
    assert len(running(str(tmp_path))) == 1
    await service.source.aclose()

    assert (running(str(tmp_path)), zombies()) == ([], [])
    assert open_files() == before


@pytest.mark.parametrize(
    "query",
    [
        {"tap": []},
        {"tap": ["t"], "streams": ["a"], "catalog": {"streams": []}},
        {"tap": ["t"], "catalog_option": "--x"},
        {"tap": "tap-shop"},
    ],
)
def test_a_query_that_cannot_work_is_refused(query: Any):
    with pytest.raises(ValidationError):
        Query.model_validate(query)


def test_every_field_is_described():
    assert plugin.query is not None
    assert [name for name, field in plugin.query.model_fields.items() if not field.description] == []
