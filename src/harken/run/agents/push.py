"""Pushes of a ticket's branch that the git server refuses when the run has been claimed by somebody else.

Beside each branch there is a ref that names the claim: `refs/harken/claims/<branch>`. An attempt takes it when it
begins, and each push replaces it together with the branch, in one transaction of the server and only if it is still
ours. An attempt that was thought dead and wakes up later cannot push any more.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from harken.errors import LeaseLost, NeedsAttention, NotFound
from harken.run.agents.git import GitFailed, GitReply, Remote, git, reason, try_git
from harken.run.agents.workspace import WorkspaceState, load_state, mirror_of, reset_config, save_state

__all__ = ["Claim", "claim_ref", "push", "take_claim"]

_TAKEN = "another attempt of this ticket has claimed the branch on the git server"
_ACCESS = "Check that this machine may push to the repository"


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """The claim of a run: each attempt has its own token, and later ones have higher tokens."""

    run: str
    token: int


def claim_ref(branch: str) -> str:
    return f"refs/harken/claims/{branch}"


async def take_claim(worktree: Path, claim: Claim, header: str = "") -> None:
    """Make the claim ref of the worktree's branch ours, whoever had it: the store says that the run is ours now.

    Raise LeaseLost if somebody else took it at the same time."""
    directory, state = _state_for(worktree, claim)
    mirror, ref = mirror_of(directory, state.url), claim_ref(state.branch)
    told = await git("ls-remote", "--", state.url, ref, at=mirror, remote=_remote(state, header), fix=_ACCESS)
    before = told.split()[0] if told else ""
    state.claim = await _push(mirror, state, claim, header, before)
    save_state(directory, state)


async def push(worktree: Path, branch: str, claim: Claim, header: str = "") -> str:
    """Push what is committed on the branch, and return the commit; an empty text if there is nothing to push.

    Changes that the agent did not commit are committed. Raise LeaseLost if another attempt has claimed the branch, and
    NeedsAttention if somebody else changed it."""
    directory, state = _state_for(worktree, claim)
    if branch != state.branch:
        raise NotFound(f"the worktree has another branch than {branch}", fix=f"It has {state.branch}")
    mirror = mirror_of(directory, state.url)
    if not state.claim:
        await take_claim(worktree, claim, header)
        state = load_state(directory)
    reset_config(mirror)
    await _commit_rest(mirror, worktree, claim)
    commit = await git("rev-parse", "--verify", f"refs/heads/{branch}^{{commit}}", at=mirror)
    start = state.remote or await git("rev-parse", f"refs/remotes/origin/{state.base}^{{commit}}", at=mirror)
    if commit == start:
        return state.remote
    state.claim = await _push(mirror, state, claim, header, state.claim, commit)
    state.remote = commit
    save_state(directory, state)
    return commit


def _state_for(worktree: Path, claim: Claim) -> tuple[Path, WorkspaceState]:
    """The state of the workspace, as one of this claim. Raise LeaseLost if a later claim works in it."""
    directory = worktree.parent
    state = load_state(directory)
    if not state.branch:
        raise NotFound("there is no worktree of this ticket on this machine", fix="Run the agent step again")
    if state.run != claim.run or state.token > claim.token:
        raise LeaseLost(_TAKEN)
    if state.token < claim.token:
        state.token, state.claim = claim.token, ""
    return directory, state


def _remote(state: WorkspaceState, header: str) -> Remote:
    return Remote(url=state.url, header=header)


async def _commit_rest(mirror: Path, worktree: Path, claim: Claim) -> None:
    meta = _worktree_meta(mirror, worktree)
    # the repository is named by us: the agent can write the file .git of its worktree
    tree = (f"--work-tree={worktree}",)
    if await git(*tree, "status", "--porcelain", at=meta):
        await git(*tree, "add", "--all", at=meta)
        message = f"Changes by run {claim.run}\n"
        await git(*tree, "commit", "--quiet", "--no-verify", "--file=-", at=meta, stdin=message)


def _worktree_meta(mirror: Path, worktree: Path) -> Path:
    for meta in (mirror / "worktrees").glob("*"):
        if (meta / "gitdir").is_file() and (meta / "gitdir").read_text().strip() == str(worktree / ".git"):
            return meta
    raise NotFound("the worktree is no longer known to its mirror", fix="Run the agent step again")


async def _push(mirror: Path, state: WorkspaceState, claim: Claim, header: str, before: str, commit: str = "") -> str:
    """Replace the claim ref, and with `commit` the branch too. Return what the claim ref names then."""
    ref, target = claim_ref(state.branch), f"refs/heads/{state.branch}"
    # a new object each time: a ref that does not change is not compared by the server
    text = f"claimed by run {claim.run}, claim {claim.token}, after {before or 'nothing'}\n"
    nothing = await git("mktree", at=mirror)
    ours = await git("commit-tree", nothing, "-F", "-", at=mirror, stdin=text)
    leases, refs = [f"--force-with-lease={ref}:{before}"], [f"{ours}:{ref}"]
    if commit:
        leases.append(f"--force-with-lease={target}:{state.remote}")
        refs.append(f"{commit}:{target}")
    command = ("push", "--porcelain", "--atomic", "--no-verify", *leases, "--", state.url, *refs)
    reply = await try_git(*command, at=mirror, remote=_remote(state, header))
    if reply.code != 0:
        _refuse(reply, ref, target, state.branch)
    return ours


def _refuse(reply: GitReply, ref: str, target: str, branch: str) -> None:
    refused = {line.split("\t")[1].rpartition(":")[2]: line for line in reply.out.splitlines() if line[:2] == "!\t"}
    own_fault = {name: line for name, line in refused.items() if "atomic" not in line.partition("\t[")[2]}
    if any(word in own_fault.get(ref, "") for word in ("stale info", "fetch first", "failed to update", "lock")):
        raise LeaseLost(_TAKEN)
    if "stale info" in own_fault.get(target, ""):
        fix = "Look at what is on it on the server. A new run of the ticket goes on from there"
        raise NeedsAttention(f"somebody else has changed the branch {branch}", fix=fix)
    if "atomic" in reply.error and "not support" in reply.error:
        raise NeedsAttention("the git server cannot push atomically", fix="Leave push: out, and push in another way")
    if not refused:
        raise GitFailed(f"git push failed{reason(reply)}", reply, fix=_ACCESS)
    raise NeedsAttention(f"the git server refused the push of {branch}{reason(reply)}", fix=_ACCESS)
