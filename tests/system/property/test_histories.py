"""Whatever happens at the source, to the process and to the triggers: each occurrence gets exactly one run."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from harken.testing import START, VirtualClock, VirtualLoop, run_virtual
from tests.soak import SOAK, longer, patience
from tests.system.property import scenarios
from tests.system.property.comparison import judge
from tests.system.property.engine import Stage

numbers = count()


def examples(share: float) -> settings:
    return settings(
        max_examples=round(share * longer(__file__, 200)),
        deadline=None,
        print_blob=True,
        # CI sees the same histories every time; new ones are looked for in `make soak`
        derandomize=not SOAK,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


def played(scenario: scenarios.Scenario, room: Path) -> None:
    path = room / f"{next(numbers)}.db"

    async def main(clock: VirtualClock) -> None:
        loop = clock._loop
        assert isinstance(loop, VirtualLoop)
        stage = Stage(clock, VirtualClock(loop, START), path, scenario)
        await stage.play()
        await judge(stage)
        await stage.stop()

    try:
        run_virtual(main)
    finally:
        for file in room.glob(f"{path.name}*"):
            file.unlink()


@pytest.mark.timeout(patience(1_800))
class TestEachOccurrenceStartsOneRun:
    @examples(0.3)
    @given(scenario=scenarios.scenarios("listing"))
    def test_of_a_listing(self, scenario: scenarios.Scenario, room: Path) -> None:
        played(scenario, room)

    @examples(0.25)
    @given(scenario=scenarios.scenarios("since"))
    def test_of_changes_since_a_time(self, scenario: scenarios.Scenario, room: Path) -> None:
        played(scenario, room)

    @examples(0.15)
    @given(scenario=scenarios.scenarios("forward"))
    def test_of_a_source_that_only_goes_forward(self, scenario: scenarios.Scenario, room: Path) -> None:
        played(scenario, room)

    @examples(0.1)
    @given(scenario=scenarios.scenarios("log"))
    def test_of_a_log(self, scenario: scenarios.Scenario, room: Path) -> None:
        played(scenario, room)

    @examples(0.3)
    @given(scenario=scenarios.scenarios("listing", more=True))
    def test_with_schedules_webhooks_and_listeners_to_runs(self, scenario: scenarios.Scenario, room: Path) -> None:
        played(scenario, room)
