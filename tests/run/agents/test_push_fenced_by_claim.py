"""The git server refuses the push of an attempt that no longer has the claim."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harken.errors import LeaseLost, NeedsAttention, NotFound, RetryLater
from harken.run.agents.push_fenced_by_claim import Claim, claim_refs, push, take_claim
from harken.run.agents.workspace import CodeSource, Workspace, prepare_workspace
from tests.run.agents.scripts import git, make_repository

BRANCH = "harken/12"
FIRST, SECOND = Claim(run="r1", token=1), Claim(run="r1", token=2)


async def workspace_on(machine: Path, repository: Path, claim: Claim) -> Workspace:
    """The workspace of the ticket as one machine has it, with the claim taken and a commit made by the agent."""
    directory = machine / "tickets" / "12"
    directory.mkdir(parents=True, exist_ok=True)
    workspace = await prepare_workspace(directory, claim.run, CodeSource(url=str(repository)), BRANCH)
    await take_claim(workspace.tree, claim)
    (workspace.tree / f"{machine.name}-{claim.token}.txt").write_text("done\n")
    return workspace


async def test_a_branch_is_pushed_again_and_again(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "server")
    workspace = await workspace_on(tmp_path / "a", repository, FIRST)
    first = await push(workspace.tree, BRANCH, FIRST)
    assert await push(workspace.tree, BRANCH, FIRST) == first
    (workspace.tree / "more.txt").write_text("more\n")
    second = await push(workspace.tree, BRANCH, FIRST)

    assert git(repository, "rev-parse", BRANCH) == second
    assert git(repository, "rev-parse", f"{BRANCH}~1") == first
    assert "claimed by run r1, claim 1" in git(repository, "log", "-1", "--format=%B", claim_refs(BRANCH)[0])


async def test_nothing_is_pushed_when_the_agent_changed_nothing(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "server")
    workspace = await workspace_on(tmp_path / "a", repository, FIRST)
    (workspace.tree / "a-1.txt").unlink()
    assert await push(workspace.tree, BRANCH, FIRST) == ""
    assert git(repository, "branch", "--list", BRANCH) == ""


async def test_a_zombie_on_another_machine_cannot_push(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "server")
    zombie = await workspace_on(tmp_path / "a", repository, FIRST)
    living = await workspace_on(tmp_path / "b", repository, SECOND)

    with pytest.raises(LeaseLost):
        await push(zombie.tree, BRANCH, FIRST)
    assert git(repository, "branch", "--list", BRANCH) == ""
    commit = await push(living.tree, BRANCH, SECOND)
    with pytest.raises(LeaseLost):
        await push(zombie.tree, BRANCH, FIRST)
    assert git(repository, "rev-parse", BRANCH) == commit


async def test_a_zombie_on_the_same_machine_cannot_push(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "server")
    await workspace_on(tmp_path / "a", repository, FIRST)
    living = await workspace_on(tmp_path / "a", repository, SECOND)
    with pytest.raises(LeaseLost):
        await push(living.tree, BRANCH, FIRST)
    assert await push(living.tree, BRANCH, SECOND)


async def test_a_branch_that_somebody_else_changed_is_left_alone(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "server")
    workspace = await workspace_on(tmp_path / "a", repository, FIRST)
    await push(workspace.tree, BRANCH, FIRST)
    person = git(repository, "commit-tree", f"{BRANCH}^{{tree}}", "-p", BRANCH, "-m", "by a person")
    git(repository, "update-ref", f"refs/heads/{BRANCH}", person)
    (workspace.tree / "more.txt").write_text("more\n")

    with pytest.raises(NeedsAttention, match="somebody else has changed the branch"):
        await push(workspace.tree, BRANCH, FIRST)
    assert git(repository, "rev-parse", BRANCH) == person


def branches_only(repository: Path) -> None:
    """Make it a server that allows branches and tags only, as some do."""
    hook = repository / "hooks" / "update"
    hook.write_text('#!/bin/sh\ncase "$1" in refs/heads/*|refs/tags/*) exit 0;; esac; exit 1\n')
    hook.chmod(0o755)


def no_transactions(repository: Path) -> None:
    git(repository, "config", "receive.advertiseAtomic", "false")


@pytest.mark.parametrize("limits", [[branches_only], [no_transactions], [branches_only, no_transactions]])
async def test_a_zombie_cannot_push_to_a_simpler_server_either(
    limits: list[Callable[[Path], None]], tmp_path: Path
) -> None:
    repository = make_repository(tmp_path / "server")
    for limit in limits:
        limit(repository)
    zombie = await workspace_on(tmp_path / "a", repository, FIRST)
    living = await workspace_on(tmp_path / "b", repository, SECOND)
    with pytest.raises(LeaseLost):
        await push(zombie.tree, BRANCH, FIRST)
    commit = await push(living.tree, BRANCH, SECOND)
    with pytest.raises(LeaseLost):
        await push(zombie.tree, BRANCH, FIRST)
    assert git(repository, "rev-parse", BRANCH) == commit
    named = git(repository, "for-each-ref", "--format=%(refname)", *claim_refs(BRANCH))
    assert named == claim_refs(BRANCH)[branches_only in limits]


async def test_a_push_whose_answer_got_lost_is_known_to_be_done(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "server")
    workspace = await workspace_on(tmp_path / "a", repository, FIRST)
    before = (workspace.directory / "state.json").read_bytes()
    commit = await push(workspace.tree, BRANCH, FIRST)
    # as if we had been killed before we could note it
    (workspace.directory / "state.json").write_bytes(before)
    assert await push(workspace.tree, BRANCH, FIRST) == commit

    (workspace.directory / "state.json").write_bytes(before)
    (workspace.tree / "more.txt").write_text("more\n")
    git(repository, "update-ref", "-d", f"refs/heads/{BRANCH}")
    assert await push(workspace.tree, BRANCH, FIRST) == git(repository, "rev-parse", BRANCH)


async def test_a_server_that_is_away_is_tried_again_later(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "server")
    workspace = await workspace_on(tmp_path / "a", repository, FIRST)
    repository.rename(tmp_path / "elsewhere")
    with pytest.raises(RetryLater):
        await push(workspace.tree, BRANCH, FIRST)


async def test_a_hook_or_filter_that_an_agent_planted_is_not_run(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "server")
    workspace = await workspace_on(tmp_path / "a", repository, FIRST)
    assert workspace.mirror is not None
    for name in ("pre-commit", "pre-push", "post-commit", "reference-transaction"):
        hook = workspace.mirror / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
        hook.chmod(0o755)
    with (workspace.mirror / "config").open("a") as config:
        config.write(f'[filter "x"]\n\tclean = touch {tmp_path}/ran\n\trequired = true\n')
    (workspace.tree / ".gitattributes").write_text("* filter=x\n")
    other = tmp_path / "other"
    git(tmp_path, "init", "--quiet", str(other))
    git(other, "config", "core.fsmonitor", f"touch {tmp_path}/ran; true")
    (workspace.tree / ".git").write_text(f"gitdir: {other}/.git\n")

    assert await push(workspace.tree, BRANCH, FIRST)
    assert not (tmp_path / "ran").exists()


async def test_a_push_needs_the_worktree(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        await push(tmp_path / "tickets" / "12" / "tree", BRANCH, FIRST)
