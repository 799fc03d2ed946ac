"""What we remember of a ticket: a read confirms it only if nothing was written in between."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from harken.backends.sqlite import SqliteStore
from harken.store.document_kinds import TICKET
from harken.testing import START, HandClock
from harken.tickets import Lifecycle, TicketMemories, TicketMemory

WRITTEN = TicketMemory(
    project="shop", run="r1", status="done", shown=Lifecycle.DONE, wrote_at=START, version="5", comment="c"
)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    opened = SqliteStore.at(tmp_path / "harken.db", HandClock(), inline=True)
    yield opened
    await opened.close()


@pytest.fixture
def memories(store: SqliteStore) -> TicketMemories:
    return TicketMemories(store, "hub")


async def test_a_confirmation_keeps_everything_else_and_the_version_that_showed_it(memories: TicketMemories) -> None:
    await memories.put("1", WRITTEN)
    await memories.confirm("1", WRITTEN, "7")
    assert await memories.get("1") == replace(WRITTEN, confirmed=True, version="7")
    await memories.confirm("1", WRITTEN, "")
    assert await memories.get("1") == replace(WRITTEN, confirmed=True, version="7")


@pytest.mark.parametrize(
    "change", [{"run": "r2"}, {"shown": Lifecycle.FAILED}, {"wrote_at": START.replace(year=2030)}, {"shown": None}]
)
async def test_what_was_written_since_the_read_is_not_confirmed_by_it(
    memories: TicketMemories, change: dict[str, Any]
) -> None:
    newer = replace(WRITTEN, **change)
    await memories.put("1", newer)
    await memories.confirm("1", WRITTEN, "7")
    assert await memories.get("1") == newer


async def test_a_write_at_the_same_time_wins(store: SqliteStore) -> None:
    memories = TicketMemories(store, "hub")
    await memories.put("1", WRITTEN)
    newer, get = replace(WRITTEN, comment="d"), store.get

    async def get_and_be_overtaken(kind: str, name: str) -> Any:
        found = await get(kind, name)
        await memories.put("1", newer)
        return found

    overtaken: Any = Overtaken(store, get_and_be_overtaken)
    await TicketMemories(overtaken, "hub").confirm("1", WRITTEN, "7")
    assert await memories.get("1") == newer


class Overtaken:
    """A store in which somebody writes between a read and the write after it."""

    def __init__(self, store: SqliteStore, get: Any) -> None:
        self.put, self.get = store.put, get


async def test_what_is_forgotten_stays_forgotten(memories: TicketMemories, store: SqliteStore) -> None:
    await memories.put("1", WRITTEN)
    assert await memories.forget("1")
    await memories.confirm("1", WRITTEN, "7")
    assert await memories.get("1") is None
    assert list(await store.documents(TICKET)) == []


async def test_trackers_have_memories_of_their_own(memories: TicketMemories, store: SqliteStore) -> None:
    await memories.put("1", WRITTEN)
    await TicketMemories(store, "lab").put("2", WRITTEN)
    assert set(await TicketMemories(store, "lab").all()) == {"2"}
