"""Lighthouse on the overview of an installation with 1,000 triggers, in `make soak`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak import SOAK, larger
from tests.ui.harken_process import FILES, HarkenProcess
from tests.ui.lighthouse import Report, audit

TRIGGERS = larger(__file__, 10)
TRIES = 3
"""What the page waits for depends on what else the machine does, so the best of so many counts."""
WORKFLOW = """name: deploys-{number}
trigger:
  webhook: {{id: deploys-{number}, scheme: none, allow_unsigned: true, id_field: id}}
  condition: event.service == "checkout"
steps:
  - {{id: note, action: transform, set: {{text: "{{{{.trigger.event.title}}}}"}}}}
"""


async def best(url: str) -> Report:
    reports = []
    for _ in range(TRIES):
        reports.append(await audit(url))
        if reports[-1].performance >= 90:
            break
    return max(reports, key=lambda report: report.performance)


@pytest.mark.skipif(not SOAK, reason="it takes a minute, and its marks are of a machine that does nothing else")
async def test_the_overview_of_1_000_triggers_is_accessible_and_soon_there(tmp_path: Path) -> None:
    harken = HarkenProcess(tmp_path)
    flows = {f"workflows/deploys-{number}.yaml": WORKFLOW.format(number=number) for number in range(TRIGGERS)}
    harken.write({**FILES, **flows})
    await harken.start()
    try:
        for number in range(40):
            service = "checkout" if number % 3 else "search"
            await harken.send(f"deploys-{number}", id=f"d-{number}", service=service, title=f"{service} was deployed")
        found = await best(f"{harken.url}/")
    finally:
        await harken.stop()
    assert found.scores["accessibility"] >= 95, found
    assert found.performance >= 90, found
