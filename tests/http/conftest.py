from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from harken.clock import SystemClock
from harken.http import Client
from tests.http.loopback import Server, start


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    made = Server()
    listening = await start(made)
    yield made
    listening.close()


@pytest.fixture
async def other() -> AsyncIterator[Server]:
    made = Server()
    listening = await start(made)
    yield made
    listening.close()


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    made = Client(SystemClock())
    yield made
    await made.close()
