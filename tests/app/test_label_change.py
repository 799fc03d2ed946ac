"""A person changes their mind during a run: another label of the map is a wish for another pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harken.testing import VirtualClock, virtual
from tests.app.test_ticket_and_run_sync import PIPELINE, POLLED, at_work
from tests.app.test_ticket_commands import WAITING, call
from tests.services.whole import write


@virtual
async def test_a_label_that_is_taken_off_ends_its_run_and_the_other_one_starts_its_own(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with at_work(tmp_path, clock, POLLED) as (app, hub):
        scan = PIPELINE.format(name="security-scan")
        write(tmp_path, POLLED.format(url=hub.url), **{"fix-bug": WAITING, "security-scan": scan})
        await call(app, "reload")
        await clock.sleep(60)
        issue = hub.open("agent-smith", "security-review", by="leo")
        await clock.sleep(120)
        [run] = (await call(app, "runs.list"))["items"]
        assert (run["workflow"], run["status"]) == ("fix-bug", "waiting")
        hub.unlabel(issue, "agent-smith")
        await clock.sleep(1_800)
        found: list[Any] = (await call(app, "runs.list"))["items"]
        assert [(run["workflow"], run["status"]) for run in found] == [
            ("security-scan", "done"),
            ("fix-bug", "cancelled"),
        ]
