"""/health says since when a subsystem has been as it is, whenever somebody asks."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from harken.errors import NeedsAttention
from harken.testing import VirtualClock
from harken.testing.clock import virtual
from tests.operate.counting_service import readings
from tests.operate.poller_jobs import Agency, at_work, job, metered


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with metered(tmp_path, monkeypatch) as found:
        yield found


def since(agency: Agency, name: str) -> datetime:
    found: dict[str, datetime] = {row["name"]: row["since"] for row in agency.app._telemetry.health()["subsystems"]}
    return found[name]


@virtual
async def test_what_was_never_looked_at_is_up_since_the_start(directory: Path, clock: VirtualClock) -> None:
    started = clock.now()
    async with at_work(directory, clock, job("one")) as agency:
        await clock.sleep(3_600)
        assert since(agency, "store") - started < timedelta(seconds=1)
        assert since(agency, "ingest") - started < timedelta(seconds=1)


@virtual
async def test_trouble_counts_from_its_first_failure_and_not_from_the_first_look(
    directory: Path, clock: VirtualClock
) -> None:
    async with at_work(directory, clock, job("one"), job("two")) as agency:
        await clock.sleep(90)
        readings.down["one"] = NeedsAttention("the token is wrong")
        failed = clock.now()
        await clock.sleep(3_600)
        assert timedelta() < since(agency, "ingest") - failed < timedelta(minutes=2)
        readings.down.clear()
        await agency.pollers.resume("one")
        await clock.sleep(120)
        looked = clock.now()
        assert since(agency, "ingest") == looked
        await clock.sleep(60)
        assert since(agency, "ingest") == looked
