"""Fakes on loopback and a real client to read them with."""

from __future__ import annotations

from collections.abc import AsyncIterator
from random import Random

import pytest

from harken.http import Client, HttpSettings
from harken.source import Host
from harken.testing import HandClock
from harken.testing.fakes import Listing
from harken.testing.fakes.azure_devops import AzureDevOps
from harken.testing.fakes.github import GitHub
from harken.testing.fakes.gitlab import GitLab
from harken.testing.fakes.pagerduty import PagerDuty
from harken.testing.fakes.slack import FakeSlack
from tests.services.github_openapi import problems
from tests.services.slack_world import workspace


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


@pytest.fixture
async def board(clock: HandClock) -> AsyncIterator[AzureDevOps]:
    fake = AzureDevOps(clock)
    async with fake.serve():
        yield fake


@pytest.fixture
async def duty(clock: HandClock) -> AsyncIterator[PagerDuty]:
    fake = PagerDuty(clock)
    async with fake.serve():
        yield fake


@pytest.fixture
async def hub(clock: HandClock) -> AsyncIterator[GitHub]:
    fake = GitHub(clock)
    async with fake.serve():
        yield fake
    assert problems(fake.seen) == set(), "GitHub's OpenAPI document does not have it"


@pytest.fixture
async def lab(clock: HandClock) -> AsyncIterator[GitLab]:
    fake = GitLab(clock)
    async with fake.serve():
        yield fake


@pytest.fixture
async def slack(clock: HandClock) -> AsyncIterator[FakeSlack]:
    async with workspace(clock) as fake:
        yield fake
