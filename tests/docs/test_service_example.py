from __future__ import annotations

import importlib.util
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from types import ModuleType

import pytest
from aiohttp import web

from harken.clock import SystemClock
from harken.errors import NeedsAttention
from harken.http import Client
from harken.source import Batch, Cursor, Host, PollSource

ROOT = Path(__file__).parents[2]
FILE = ROOT / "examples" / "service" / "guestbook.py"
SINCE = datetime(2026, 1, 1, tzinfo=UTC)
ENTRIES = [{"id": number, "written_at": "2026-01-05T09:00:00+00:00", "text": "hi"} for number in range(1, 4)]


def loaded() -> ModuleType:
    spec = importlib.util.spec_from_file_location("guestbook", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["guestbook"] = module
    spec.loader.exec_module(module)
    return module


async def entries(request: web.Request) -> web.Response:
    if request.headers["Authorization"] != "Bearer right":
        return web.json_response({}, status=401)
    after = int(request.query["after"])
    return web.json_response({"entries": ENTRIES[after : after + 2], "more": after + 2 < len(ENTRIES)})


@pytest.fixture
async def address() -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_get("/books/{book}/entries", entries)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def poll(address: str, token: str, cursor: Cursor) -> Batch:
    plugin = loaded().plugin
    client = Client(SystemClock())
    host = Host(http=client, clock=SystemClock(), random=Random(1), allow_private=True)
    source = plugin.source(plugin.query(book="b"), plugin.account(token=token, base_url=address), host)
    assert isinstance(source, PollSource)
    try:
        return await source.poll(cursor, SINCE)
    finally:
        await client.close()


async def test_the_example_reads_page_by_page(address):
    first = await poll(address, "right", None)
    second = await poll(address, "right", first.cursor)
    third = await poll(address, "right", second.cursor)

    assert [[event.subject for event in batch.events] for batch in (first, second, third)] == [["1", "2"], ["3"], []]
    assert [batch.more for batch in (first, second, third)] == [True, False, False]
    assert third.cursor == 3


async def test_the_example_asks_for_a_person_when_its_token_is_refused(address):
    with pytest.raises(NeedsAttention, match="401"):
        await poll(address, "wrong", None)


def test_the_page_shows_the_file_as_it_is():
    page = (ROOT / "docs" / "how-to" / "write-a-service.md").read_text("utf-8")

    assert FILE.read_text("utf-8") in page
