"""Workflows on intervals in the whole engine on virtual time: they keep to their beat, whatever happened to a beat."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from harken.app import App
from harken.testing import VirtualClock, virtual
from tests.services.whole import running, write

EVERY_TEN = """\
name: beat
trigger:
  schedule: {every: 10s}
steps:
  - {id: note, action: transform, set: {text: beat}}
"""


async def lateness(app: App) -> list[float]:
    """Seconds from each activation to its run, oldest first."""
    runs = (await app.operator.call("runs.list", limit=1000))["items"]
    asked = [datetime.fromisoformat(run["event_keys"][0]) for run in runs]
    made = [datetime.fromisoformat(run["created_at"]) for run in runs]
    return [(late - due).total_seconds() for due, late in zip(asked, made, strict=True)][::-1]


@virtual
async def test_after_a_restart_only_what_was_missed_is_late(clock: VirtualClock, tmp_path: Path) -> None:
    write(tmp_path, "", beat=EVERY_TEN)
    async with running(tmp_path, clock):
        await clock.sleep(35)
    await clock.sleep(12)
    async with running(tmp_path, clock) as app:
        await clock.sleep(60)
        late = await lateness(app)
    assert len(late) == 3 + 1 + 6
    assert [round(each) for each in late] == [0, 0, 0, 7, 0, 0, 0, 0, 0, 0]


@virtual
async def test_a_beat_that_was_read_late_does_not_delay_those_after_it(clock: VirtualClock, tmp_path: Path) -> None:
    write(tmp_path, "", beat=EVERY_TEN)
    async with running(tmp_path, clock) as app:
        await clock.sleep(27)
        clock.sleep_laptop(8)
        await clock.sleep(60)
        late = await lateness(app)
    assert 5 <= late.pop(2) < 10
    assert [round(each) for each in late] == [0] * 8


@virtual
async def test_reads_that_take_time_lose_no_beat(clock: VirtualClock, tmp_path: Path) -> None:
    write(tmp_path, "", beat=EVERY_TEN)
    async with running(tmp_path, clock) as app:
        (live,) = [live for live in app.intake.registry.feeds.values() if live.feed.kind == "cron"]
        poll = live.poll
        assert poll is not None

        async def slowly(cursor: object, since: datetime) -> object:
            await clock.sleep(0.02)
            return await poll(cursor, since)

        live.poll = slowly  # type: ignore[assignment]
        await clock.sleep(3 * 3600 + 5)
        counts = await app.store.counts()
        late = await lateness(app)
    assert counts["runs_done"] == 3 * 360
    assert max(late) < 0.1
