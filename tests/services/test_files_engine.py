"""Files under the whole engine: from a file to its run, over a restart, and woken by the operating system."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

from harken.app import App
from harken.clock import SystemClock
from tests.services.whole import running, write

WORKFLOW = """\
name: inbox
trigger:
  file: {{path: inbox, include: "*.csv", settle: 200ms, interval: {interval}}}
steps:
  - {{id: note, action: transform, set: {{text: "{{{{.trigger.event.path}}}}"}}}}
"""


def configure(directory: Path, interval: str) -> Path:
    write(directory, "", inbox=WORKFLOW.format(interval=interval))
    inbox = directory / "inbox"
    inbox.mkdir()
    return inbox


async def fired(app: App, count: int) -> list[str]:
    """The types and paths of so many events that led to runs, once there are as many."""
    while True:
        listed: Any = await app.operator.call("runs.list", limit=100)
        if len(listed["items"]) >= count:
            break
        await asyncio.sleep(0.05)
    events: Any = await app.operator.call("events.list", limit=100)
    started = {key for run in listed["items"] for key in run["event_keys"]}
    return sorted(f"{event['type']} {event['subject']}" for event in events["items"] if event["key"] in started)


async def baseline(app: App) -> None:
    """Wait until the feed was read for the first time."""
    [live] = [live for live in app.intake.feeds.values() if live.poll is not None]
    while not live.baselined:  # noqa: ASYNC110 (nothing notifies us)
        await asyncio.sleep(0.02)


async def test_what_changed_while_it_was_stopped_runs_once_it_is_started(tmp_path: Path) -> None:
    clock: Any = SystemClock()
    inbox = configure(tmp_path, "1s")
    for name in ("old.csv", "gone.csv", "other.txt"):
        (inbox / name).write_text("old")
    async with running(tmp_path, clock) as app:
        await baseline(app)
        (inbox / "new.csv").write_text("new")
        assert await fired(app, 1) == ["file.created new.csv"]
    (inbox / "old.csv").write_text("changed")
    (inbox / "gone.csv").unlink()
    (inbox / "new.csv").rename(inbox / "moved.csv")
    async with running(tmp_path, clock) as app:
        assert await fired(app, 4) == [
            "file.changed old.csv",
            "file.created new.csv",
            "file.deleted gone.csv",
            "file.renamed moved.csv",
        ]


async def test_the_operating_system_wakes_a_feed_that_is_read_once_an_hour(tmp_path: Path) -> None:
    clock: Any = SystemClock()
    inbox = configure(tmp_path, "1h")
    async with running(tmp_path, clock) as app:
        await baseline(app)
        while not (await app.operator.call("runs.list", limit=1))["items"]:
            # the watch takes a moment to begin
            (inbox / f"{clock.time()}.csv").write_text("new")
            await asyncio.sleep(0.5)


async def test_the_example_says_what_is_in_a_file(tmp_path: Path) -> None:
    shutil.copytree(Path(__file__).parents[2] / "examples" / "files", tmp_path / "files")
    clock: Any = SystemClock()
    async with running(tmp_path / "files", clock) as app:
        await baseline(app)
        (tmp_path / "files" / "inbox" / "orders.csv").write_text("a,b\n")
        [live] = [live for live in app.intake.feeds.values() if live.poll is not None]
        while not (await app.operator.call("runs.list", limit=1))["items"]:
            await app.controller.tick(live.feed.name)
            await asyncio.sleep(0.2)
        await fired(app, 1)
        [run] = (await app.operator.call("runs.list", limit=1))["items"]
        shown: Any = await app.operator.call("runs.show", id=run["id"])
    assert "orders.csv has 4 bytes" in str(shown)
    assert "a,b" in str(shown)
