"""Worktrees and outputs do not pile up."""

from __future__ import annotations

import os
import time
from pathlib import Path

from harken.clock import SystemClock
from harken.run.agents.prune import prune_workspaces
from harken.run.agents.workspace_lock import lock_workspace
from tests.run.agents.scripts import agent, agent_world, end_of_ticket, script

DAY = 86_400.0


def make_old(*paths: Path) -> None:
    for path in paths:
        os.utime(path, (time.time() - 40 * DAY,) * 2)


def workspace(directory: Path, name: str) -> Path:
    (directory / "tickets" / name / "tree").mkdir(parents=True)
    (directory / "tickets" / name / "state.json").write_text("{}")
    return directory / "tickets" / name


async def test_what_nobody_used_for_long_is_removed_unless_an_agent_works_there(tmp_path: Path) -> None:
    old, new, busy = (workspace(tmp_path, name) for name in ("old", "new", "busy"))
    outputs = [tmp_path / "outputs" / name for name in ("old", "new")]
    for output in outputs:
        output.mkdir(parents=True)
    make_old(old / "state.json", busy / "state.json", outputs[0])
    lock = await lock_workspace(busy, "r1", SystemClock(), 1.0)

    await prune_workspaces(tmp_path, 30 * DAY)

    assert [(place / "tree").exists() for place in (old, new, busy)] == [False, True, True]
    assert [output.exists() for output in outputs] == [False, True]
    lock.release()
    await prune_workspaces(tmp_path, 30 * DAY)
    assert (busy / "tree").exists(), "it is looked at once an hour"
    make_old(tmp_path / "pruned")
    await prune_workspaces(tmp_path, 30 * DAY)
    assert not (busy / "tree").exists()


async def test_a_step_prunes_before_it_begins(tmp_path: Path) -> None:
    old = workspace(tmp_path / "agents", "old")
    make_old(old / "state.json")
    async with agent_world(tmp_path, agent(script(tmp_path / "agent", "true"))) as world:
        assert (await end_of_ticket(world)).status == "done"
    assert not (old / "tree").exists()
