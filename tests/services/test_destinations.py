"""The contract of destinations, on every one that we have."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from harken.source import Host
from harken.testing import HandClock
from harken.testing.destination import DestinationContract, Outlet
from harken.testing.fakes.discord import FakeDiscord
from harken.testing.fakes.mail import FakeMail
from harken.testing.fakes.ntfy import FakeNtfy
from harken.testing.fakes.telegram import FakeTelegram
from harken.testing.fakes.whatsapp import FakeWhatsApp
from tests.services.outlets import (
    FakeHook,
    OnApprise,
    OnDiscord,
    OnMail,
    OnNtfy,
    OnSlack,
    OnTelegram,
    OnWebhook,
    OnWhatsApp,
)
from tests.services.slack_world import workspace


class TestTelegram(DestinationContract):
    @pytest.fixture
    async def outlet(self, clock: HandClock, host: Host) -> AsyncIterator[Outlet]:
        fake = FakeTelegram(clock)
        async with fake.serve():
            yield OnTelegram(fake, host)


class TestDiscordBot(DestinationContract):
    @pytest.fixture
    async def outlet(self, clock: HandClock, host: Host) -> AsyncIterator[Outlet]:
        fake = FakeDiscord(clock)
        async with fake.serve():
            yield OnDiscord(fake, host, hook=False)


class TestDiscordWebhook(DestinationContract):
    @pytest.fixture
    async def outlet(self, clock: HandClock, host: Host) -> AsyncIterator[Outlet]:
        fake = FakeDiscord(clock)
        async with fake.serve():
            yield OnDiscord(fake, host, hook=True)


class TestNtfy(DestinationContract):
    @pytest.fixture
    async def outlet(self, clock: HandClock, host: Host) -> AsyncIterator[Outlet]:
        fake = FakeNtfy(clock)
        async with fake.serve():
            yield OnNtfy(fake, host)


class TestWhatsApp(DestinationContract):
    @pytest.fixture
    async def outlet(self, clock: HandClock, host: Host) -> AsyncIterator[Outlet]:
        fake = FakeWhatsApp(clock)
        async with fake.serve():
            yield OnWhatsApp(fake, host)


class TestWhatsAppTemplate(DestinationContract):
    @pytest.fixture
    async def outlet(self, clock: HandClock, host: Host) -> AsyncIterator[Outlet]:
        fake = FakeWhatsApp(clock)
        fake.wrote.clear()
        async with fake.serve():
            yield OnWhatsApp(fake, host, template="alert")


class TestSlack(DestinationContract):
    @pytest.fixture
    async def outlet(self, clock: HandClock, host: Host) -> AsyncIterator[Outlet]:
        async with workspace(clock) as fake:
            yield OnSlack(fake, host)


class TestMail(DestinationContract):
    @pytest.fixture
    async def outlet(self, tmp_path: Path, host: Host) -> AsyncIterator[Outlet]:
        fake = FakeMail(tmp_path)
        async with fake.serve():
            yield OnMail(fake, host)


class TestWebhook(DestinationContract):
    @pytest.fixture
    async def outlet(self, clock: HandClock, host: Host) -> AsyncIterator[Outlet]:
        fake = FakeHook(clock)
        async with fake.serve():
            yield OnWebhook(fake, host)


class TestApprise(DestinationContract):
    @pytest.fixture
    async def outlet(self, clock: HandClock, host: Host) -> AsyncIterator[Outlet]:
        fake = FakeHook(clock)
        async with fake.serve():
            yield OnApprise(fake, host)
