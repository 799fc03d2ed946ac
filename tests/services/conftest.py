"""A listing on loopback and a real client to read it with."""

from __future__ import annotations

from collections.abc import AsyncIterator
from random import Random

import pytest

from harken.http import Client, HttpSettings
from harken.source import Host
from harken.testing import HandClock
from harken.testing.fakes import Listing


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
async def host(clock: HandClock) -> AsyncIterator[Host]:
    client = Client(clock, settings=HttpSettings(total_seconds=30.0))
    yield Host(http=client, clock=clock, random=Random(1), allow_private=True)
    await client.close()


@pytest.fixture
async def listing(clock: HandClock) -> AsyncIterator[Listing]:
    served = Listing(clock, cap=3)
    async with served.serve():
        yield served
