"""The contract of destinations, on every one that we have."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from harken.source import Host
from harken.testing import HandClock
from harken.testing.destination import DestinationContract, Outlet
from harken.testing.fakes.discord import FakeDiscord
from harken.testing.fakes.ntfy import FakeNtfy
from harken.testing.fakes.server import FakeServer
from harken.testing.fakes.slack import FakeSlack
from harken.testing.fakes.smtp_server import FakeMail
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

Served = tuple[Callable[[HandClock], FakeServer], Callable[[Any, Host], Outlet]]


def with_nobody_waiting(clock: HandClock) -> FakeWhatsApp:
    """Nobody wrote to us lately, so only a template may be sent."""
    fake = FakeWhatsApp(clock)
    fake.wrote.clear()
    return fake


SERVED: dict[str, Served] = {
    "telegram": (FakeTelegram, OnTelegram),
    "discord bot": (FakeDiscord, partial(OnDiscord, hook=False)),
    "discord webhook": (FakeDiscord, partial(OnDiscord, hook=True)),
    "ntfy": (FakeNtfy, OnNtfy),
    "whatsapp": (FakeWhatsApp, OnWhatsApp),
    "whatsapp template": (with_nobody_waiting, partial(OnWhatsApp, template="alert")),
    "webhook": (FakeHook, OnWebhook),
    "apprise": (FakeHook, OnApprise),
}


@pytest.mark.parametrize("served", SERVED.values(), ids=SERVED)
class TestServed(DestinationContract):
    @pytest.fixture
    async def outlet(self, served: Served, clock: HandClock, host: Host) -> AsyncIterator[Outlet]:
        make, on = served
        fake = make(clock)
        async with fake.serve():
            yield on(fake, host)


class TestSlack(DestinationContract):
    @pytest.fixture
    def outlet(self, slack: FakeSlack, host: Host) -> Outlet:
        return OnSlack(slack, host)


class TestMail(DestinationContract):
    @pytest.fixture
    async def outlet(self, tmp_path: Path, host: Host) -> AsyncIterator[Outlet]:
        fake = FakeMail(tmp_path)
        async with fake.serve():
            yield OnMail(fake, host)
