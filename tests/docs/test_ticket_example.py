"""The pipelines of examples/tickets load, and do with their scripted agent what they say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harken.config.loaded import Loaded
from harken.config.loader import load
from harken.run.compiled_workflows import check_workflow
from harken.services import registry
from tests.run.agents.scripts import agent_world, end_of_ticket, git, make_repository, start_ticket

EXAMPLE = Path(__file__).parents[2] / "examples" / "tickets"
ENVIRON = {"GITHUB_TOKEN": "not-a-token", "GITHUB_WEBHOOK_SECRET": "not-a-secret"}


def loaded() -> Loaded:
    return load(EXAMPLE, plugins=registry(), check_workflow=check_workflow, environ=ENVIRON)


def agent_of(pipeline: str, repository: Path) -> dict[str, Any]:
    """The agent step of a pipeline, on a repository of this machine."""
    step = loaded().workflows[pipeline].definition["steps"][0]
    return {**step, "repository": str(repository)}


HOST = {"configuration": EXAMPLE}


def test_the_example_loads_without_a_complaint() -> None:
    configuration = loaded()
    assert [str(finding) for finding in configuration.findings] == []
    assert set(configuration.workflows) == {"fix-bug", "security-scan"}
    assert [trigger.name for trigger in configuration.triggers] == ["hub/shop"]


async def test_fix_bug_pushes_a_branch_with_a_commit_of_its_agent(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "server")
    async with agent_world(tmp_path, agent_of("fix-bug", repository), host=HOST) as world:
        run = await end_of_ticket(world)

        output = run.journal[-1].output
        assert (run.status, output["summary"], output["branch"]) == ("done", "Wrote fixes/12.md.", "harken/12")
        assert "# It is broken" in git(repository, "show", "harken/12:fixes/12.md")
        assert sum(record.usd for record in run.journal) == 0.01


async def test_a_second_run_of_a_ticket_finds_the_work_of_the_first_and_is_done_too(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "server")
    async with agent_world(tmp_path, agent_of("fix-bug", repository), host=HOST) as world:
        first = await end_of_ticket(world)
        run_id = await start_ticket(world, text="Once more, please.")
        second = await world.until(run_id)

        assert (first.status, second.status) == ("done", "done")
        assert git(repository, "rev-list", "--count", "main..harken/12") == "1"


async def test_fix_bug_asks_when_the_ticket_is_unclear(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "server")
    async with agent_world(tmp_path, agent_of("fix-bug", repository), host=HOST) as world:
        run_id = await start_ticket(world, labels=["bug", "unclear"])
        await world.until(run_id, "waiting")
        await world.sqlite.answer(run_id, {"answer": "It should be green.", "by": "kim"})
        world.worker.nudge()
        run = await world.until(run_id)
        assert run.status == "done"
        assert "It should be green." in git(repository, "show", "harken/12:fixes/12.md")


async def test_security_scan_reports_and_pushes_nothing(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "server")
    work = tmp_path / "server" / "work"
    (work / "settings.py").write_text('debug = True\npassword = "hunter2hunter2"\n')
    git(work, "add", "settings.py")
    git(work, "commit", "--quiet", "--message=settings")
    git(work, "push", "--quiet", str(repository), "main")
    async with agent_world(tmp_path, agent_of("security-scan", repository), host=HOST) as world:
        run = await end_of_ticket(world)
        assert run.journal[-1].output["response"] == "Lines that look like secrets: settings.py:2."
        assert git(repository, "branch", "--format=%(refname:short)") == "main"
