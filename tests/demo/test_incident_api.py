from __future__ import annotations

from collections.abc import AsyncIterator
from random import Random

import aiohttp
import pytest

from harken.demo.incident_api import LIMIT_EVERY, IncidentService
from harken.demo.simulated_company import World
from harken.testing.clock import HandClock


@pytest.fixture
def service() -> IncidentService:
    return IncidentService(World(HandClock(), Random(1)))


@pytest.fixture
async def client(service: IncidentService) -> AsyncIterator[aiohttp.ClientSession]:
    async with service.serve() as url, aiohttp.ClientSession(url) as session:
        yield session


async def test_pages_say_whether_there_is_more(client):
    first = await (await client.get("/incidents", params={"limit": "25"})).json()
    last = await (await client.get("/incidents", params={"limit": "25", "offset": "25"})).json()

    assert (len(first["incidents"]), first["more"]) == (25, True)
    assert (len(last["incidents"]), last["more"]) == (5, False)


async def test_now_and_then_a_caller_is_told_to_come_back_later(client, service):
    answers = [await client.get("/incidents") for _ in range(LIMIT_EVERY)]

    assert [answer.status for answer in answers] == [200] * (LIMIT_EVERY - 1) + [429]
    assert answers[-1].headers["Retry-After"] == "1"
    assert service.rate_limited == 1


async def test_news_that_did_not_change_cost_nothing(client):
    first = await client.get("/news.xml")
    second = await client.get("/news.xml", headers={"If-None-Match": first.headers["ETag"]})

    assert first.status == 200
    assert second.status == 304


async def test_the_pager_counts_distinct_messages_about_one_occurrence(client, service):
    for key in ("one", "one", "two"):
        await client.post("/pages", json={"text": "INC-1.1 is slow"}, headers={"Idempotency-Key": key})

    assert service.pages == {"INC-1.1": {"one", "two"}}
