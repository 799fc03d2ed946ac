"""A tap that others wrote and that others use, from its package, against a shop on loopback."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from harken.errors import NeedsAttention, RetryLater
from harken.services.singer import Query, TapSource
from harken.source import Host
from tests.downloads.singer_taps import program
from tests.services.processes import left_behind, zombies
from tests.services.reading import events, read

TOKEN = "sesame-open-4711"
pytestmark = pytest.mark.process


class Shop:
    """Orders behind a bearer token."""

    def __init__(self) -> None:
        self.url = ""
        self.orders: list[dict[str, Any]] = []
        self.asked: list[dict[str, str]] = []

    def change(self, number: int, status: str, minute: int) -> None:
        self.orders = [order for order in self.orders if order["id"] != number]
        self.orders.append({"id": number, "status": status, "updated_at": f"2026-01-05T09:{minute:02d}:00Z"})

    async def list(self, request: web.Request) -> web.Response:
        self.asked.append(dict(request.query))
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return web.json_response({"error": "who are you?"}, status=401)
        since = request.query.get("since", "")
        return web.json_response([order for order in self.orders if order["updated_at"] >= since])


@pytest.fixture
async def shop() -> AsyncIterator[Shop]:
    served, app = Shop(), web.Application()
    app.router.add_get("/orders", served.list)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    served.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    for number in (1, 2, 3):
        served.change(number, "open", number)
    yield served
    await runner.cleanup()


@pytest.fixture
def host(host: Host) -> Host:
    return replace(host, allow_programs=True, identity="change")


def source(shop: Shop, host: Host, token: str = TOKEN, **options: Any) -> TapSource:
    stream = {
        "name": "orders",
        "path": "/orders",
        "primary_keys": ["id"],
        "replication_key": "updated_at",
        "source_search_field": "since",
        "source_search_query": "$last_run_date",
        "records_path": "$[*]",
    }
    config = {"api_url": shop.url, "auth_method": "bearer_token", "bearer_token": token, "streams": [stream]}
    tap = [str(program("tap-rest-api-msdk"))]
    return TapSource(Query.model_validate({"tap": tap, "config": config, **options}), host)


async def test_its_records_are_events_and_its_state_is_the_cursor(shop: Shop, host: Host):
    tap = source(shop, host)
    first = await read(tap)
    shop.change(2, "paid", 30)
    shop.asked.clear()
    second = await read(tap, first[-1].cursor)

    assert [event.subject for event in events(first)] == ["orders/1", "orders/2", "orders/3"]
    assert all(event.occurred_at for event in events(first))
    changed = {(event.subject, event.state) for event in events(second)} - {
        (event.subject, event.state) for event in events(first)
    }
    assert changed == {("orders/2", "2026-01-05T09:30:00Z")}
    assert "since" in shop.asked[-1]
    assert second[-1].cursor["state"]["bookmarks"]["orders"]["replication_key_value"] == "2026-01-05T09:30:00Z"
    assert (left_behind(str(program("tap-rest-api-msdk"))), zombies()) == ([], [])


async def test_its_streams_are_found_and_selected(shop: Shop, host: Host):
    assert len(events(await read(source(shop, host, streams=["orders"])))) == 3
    with pytest.raises(NeedsAttention, match="has no stream refunds"):
        await read(source(shop, host, streams=["refunds"]))


async def test_a_refused_token_is_a_failure_without_the_token(shop: Shop, host: Host, tmp_path: Path):
    wrong = "not-the-right-4712"
    with pytest.raises(RetryLater, match="exit code 1") as caught:
        await read(source(shop, host, wrong))

    assert wrong not in str(caught.value)
