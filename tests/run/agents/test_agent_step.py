"""The agent step with real processes and real repositories."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from harken.run.workflows import check_workflow
from harken.source import Act
from tests.run.agents.scripts import agent, agent_world, end_of_ticket, git, make_repository, script
from tests.run.world import running_world, steps

HAND_IN = """printf '%s' '{"status": "done", "summary": "repaired", "pr_url": "https://example.com/pr/1"}' > .harken/result.json"""
SAY = """echo '{"type": "result", "session_id": "s-1", "total_cost_usd": 0.25, "usage": {"input_tokens": 100, "output_tokens": 20}}'"""


async def test_an_agent_works_in_a_worktree_and_hands_in_its_result(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "server")
    program = script(tmp_path / "agent", f"echo fixed >> README.md\ngit commit -qam fix\n{SAY}\n{HAND_IN}")
    async with agent_world(tmp_path, agent(program, repository=str(repository), push=True)) as world:
        run = await end_of_ticket(world)

        record = run.journal[-1]
        assert (run.status, run.error) == ("done", "")
        assert record.output["response"] == record.output["summary"] == "repaired"
        assert record.output["pr_url"] == "https://example.com/pr/1"
        assert (record.output["branch"], record.output["base"]) == ("harken/12", "main")
        assert (record.output["session"], record.tokens, record.usd) == ("s-1", 120, 0.25)
        assert git(repository, "rev-parse", "harken/12") == record.output["commit"]
        assert git(repository, "show", "harken/12:README.md") == "hello\nfixed"
        assert "session_id" in Path(record.output["artifact"]).read_text()


async def test_agent_steps_are_off_until_they_are_allowed(tmp_path: Path) -> None:
    program = script(tmp_path / "agent", f"touch {tmp_path}/ran")
    from harken.clock import SystemClock

    async with running_world(SystemClock(), tmp_path, steps(agent(program))) as world:
        run = await world.end()
        assert (run.status, "steps.allow_agents" in run.error) == ("dead", True)
        assert not (tmp_path / "ran").exists()
