"""A laptop with Harken on it: files as people write them, the whole engine on virtual time, fakes on loopback."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from harken.app import App
from harken.operate.load_and_check_configuration import load_directory
from harken.testing import VirtualClock
from tests.system.hostile.world import House
from tests.system.integrations.service_scenarios import Scene

MAIN = "models: {default: echo}\nintegrations:\n"


class Laptop(House):
    """`write` the files, then bring it `up`, `down` or let it `die`."""

    def __init__(self, directory: Path, clock: VirtualClock, *scenes: Scene) -> None:
        super().__init__(directory, clock)
        (directory / "workflows").mkdir()
        self.write_accounts(*(scene.account() for scene in scenes))
        for scene in scenes:
            self.write(scene.workflow)

    def write_accounts(self, *accounts: str) -> None:
        (self.directory / "harken.yaml").write_text(MAIN + "".join(f"  {account}\n" for account in accounts), "utf-8")

    def write(self, workflow: str) -> None:
        (self.directory / "workflows" / f"{name_of(workflow)}.yaml").write_text(workflow, "utf-8")

    async def up(self) -> App:
        findings = [str(finding) for finding in load_directory(self.directory).findings]
        assert findings == []
        return await super().up()

    async def ran(self, trigger: str) -> Counter[str]:
        """How often the trigger ran for each occurrence, all runs being done."""
        runs = await self.runs(trigger)
        assert {run.status for run in runs} <= {"done"}, [run.error for run in runs]
        return Counter(key for run in runs for key in run.event_keys)

    async def said(self, trigger: str) -> dict[str, str]:
        """What the last step of each run said, by the occurrence; nothing in any run was without a value."""
        said = {}
        for run in await self.runs(trigger):
            shown: Any = await self.ask("runs.show", id=run.id)
            assert "<no value>" not in str(shown)
            said[run.event_keys[0]] = str(shown["steps"][-1]["output"]["response"])
        return said


def name_of(workflow: str) -> str:
    return workflow.partition("\n")[0].removeprefix("name: ")
