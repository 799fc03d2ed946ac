"""Pushes of a ticket's branch that the git server refuses when the run has been claimed by somebody else.

Beside each branch there is a ref that names the claim: `refs/harken/claims/<branch>`, or a branch of that name at
servers that allow nothing but branches and tags. An attempt takes it when it begins, and each push replaces it
together with the branch, in one transaction of the server and only if it is still ours. An attempt that was thought
dead and wakes up later cannot push any more. At a server without such transactions the claim is replaced just before
the branch.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from harken.errors import LeaseLost, NeedsAttention, NotFound
from harken.run.agents.git_command import GitFailed, GitReply, Remote, git, reason, try_git
from harken.run.agents.workspace import WorkspaceState, load_state, mirror_of, reset_config, save_state

__all__ = ["Claim", "claim_refs", "push", "take_claim"]

_TAKEN = "another attempt of this ticket has claimed the branch on the git server"
_ACCESS = "Check that this machine may push to the repository"
_MOVED = ("stale info", "fetch first", "failed to update ref", "cannot lock ref", "incorrect old value")
"""How git and its servers say that a ref is not what we thought it was."""


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """The claim of a run: each attempt has its own token, and later ones have higher tokens."""

    run: str
    token: int

    def __str__(self) -> str:
        return f"claimed by run {self.run}, claim {self.token}"


class _NotAllowed(Exception):
    """The server does not allow a ref of this name."""


def claim_refs(branch: str) -> tuple[str, str]:
    """The refs that may name the claim of a branch, the best one first."""
    return f"refs/harken/claims/{branch}", f"refs/heads/harken-claims/{branch}"


async def take_claim(worktree: Path, claim: Claim, header: str = "") -> None:
    """Make the claim ref of the worktree's branch ours, whoever had it: the store says that the run is ours now.

    Raise LeaseLost if somebody else took it at the same time."""
    await _Server(worktree, claim, header).take_claim()


async def push(worktree: Path, branch: str, claim: Claim, header: str = "") -> str:
    """Push what is committed on the branch, and return the commit; an empty text if there is nothing to push.

    Changes that the agent did not commit are committed. Raise LeaseLost if another attempt has claimed the branch, and
    NeedsAttention if somebody else changed it."""
    server = _Server(worktree, claim, header)
    if branch != server.state.branch:
        raise NotFound(f"the worktree has another branch than {branch}", fix=f"It has {server.state.branch}")
    if not server.state.claim:
        await server.take_claim()
    return await server.push()


class _Server:
    """The git server, as one attempt of a run sees it."""

    def __init__(self, worktree: Path, claim: Claim, header: str) -> None:
        self.state = _state_for(worktree.parent, claim)
        self._claim = claim
        self._tree = worktree
        self._mirror = mirror_of(worktree.parent, self.state.url)
        self._remote = Remote(url=self.state.url, header=header)
        self._branch = f"refs/heads/{self.state.branch}"

    async def take_claim(self) -> None:
        refs = claim_refs(self.state.branch)
        seen = await self._look(*refs)
        for ref in refs:
            self.state.claim_ref = ref
            try:
                await self._replace_claim(seen.get(ref, ""))
            except _NotAllowed:
                continue
            self._save()
            return
        raise NeedsAttention("the git server refuses the ref that names the claim", fix=_ACCESS)

    async def push(self) -> str:
        reset_config(self._mirror)
        await self._commit_rest()
        state = self.state
        commit = await self._git("rev-parse", "--verify", f"{self._branch}^{{commit}}")
        start = state.remote or await self._git("rev-parse", f"refs/remotes/origin/{state.base}^{{commit}}")
        if commit == start:
            return state.remote
        seen = await self._look(state.claim_ref, self._branch)
        if seen.get(self._branch) != commit:
            # after an answer that got lost, the server may be further than we know
            claimed = seen.get(state.claim_ref, "")
            ours = claimed != state.claim and await self._is_ours(claimed)
            await self._replace_claim(claimed if ours else state.claim, commit)
        state.remote = commit
        self._save()
        return commit

    async def _look(self, *refs: str) -> dict[str, str]:
        told = await self._git("ls-remote", "--", self.state.url, *refs, remote=True)
        return {name: found for found, _, name in (line.partition("\t") for line in told.splitlines())}

    async def _is_ours(self, claimed: str) -> bool:
        reply = await try_git("log", "-1", "--format=%s", claimed, "--", at=self._mirror)
        return reply.code == 0 and reply.out.startswith(f"{self._claim}, ")

    async def _replace_claim(self, before: str, commit: str = "") -> None:
        """Replace the claim ref if it is `before`, and with `commit` the branch too."""
        # a new object each time: a ref that does not change is not compared by the server
        text = f"{self._claim}, after {before or 'nothing'}\n"
        nothing = await self._git("mktree")
        ours = await self._git("commit-tree", nothing, "-F", "-", stdin=text)
        claim = (self.state.claim_ref, before, ours)
        branch = (self._branch, self.state.remote, commit)
        reply = await self._send(claim, *([branch] if commit else []), atomic=bool(commit))
        if reply.code != 0 and commit and "support --atomic" in reply.error:
            await self._send_all(claim, branch)
        elif reply.code != 0:
            self._refuse(reply)
        self.state.claim = ours

    async def _send_all(self, *updates: tuple[str, str, str]) -> None:
        for update in updates:
            reply = await self._send(update, atomic=False)
            if reply.code != 0:
                self._refuse(reply)

    async def _send(self, *updates: tuple[str, str, str], atomic: bool) -> GitReply:
        """Push each commit to its ref, if the ref is what we expect: (ref, expected, commit)."""
        leases = [f"--force-with-lease={ref}:{expected}" for ref, expected, _ in updates]
        refs = [f"{commit}:{ref}" for ref, _, commit in updates]
        options = ("--porcelain", "--no-verify", *(("--atomic",) if atomic else ()))
        return await try_git(
            "push", *options, *leases, "--", self.state.url, *refs, at=self._mirror, remote=self._remote
        )

    def _refuse(self, reply: GitReply) -> None:
        lines = [line.split("\t") for line in reply.out.splitlines() if line.startswith("!\t")]
        # in a transaction the others are refused only because of the one that cannot be done
        refused = {parts[1].rpartition(":")[2]: parts[2] for parts in lines if "atomic" not in parts[2]}
        of_claim, of_branch = refused.get(self.state.claim_ref, ""), refused.get(self._branch, "")
        if any(word in of_claim for word in _MOVED):
            raise LeaseLost(_TAKEN)
        if any(word in of_branch for word in _MOVED):
            fix = "Look at what is on it on the server. A new run of the ticket goes on from there"
            raise NeedsAttention(f"somebody else has changed the branch {self.state.branch}", fix=fix)
        if not refused:
            raise GitFailed(f"git push failed{reason(reply)}", reply, fix=_ACCESS)
        if of_claim and not of_branch:
            raise _NotAllowed
        raise NeedsAttention(f"the git server refused the push of {self.state.branch}{reason(reply)}", fix=_ACCESS)

    async def _commit_rest(self) -> None:
        meta = _worktree_meta(self._mirror, self._tree)
        # the repository is named by us: the agent can write the file .git of its worktree
        tree = (f"--work-tree={self._tree}",)
        if await git(*tree, "status", "--porcelain", at=meta):
            await git(*tree, "add", "--all", at=meta)
            message = f"Changes by run {self._claim.run}\n"
            await git(*tree, "commit", "--quiet", "--no-verify", "--file=-", at=meta, stdin=message)

    async def _git(self, *args: str, stdin: str = "", remote: bool = False) -> str:
        return await git(*args, at=self._mirror, remote=self._remote if remote else None, stdin=stdin, fix=_ACCESS)

    def _save(self) -> None:
        save_state(self._tree.parent, self.state)


def _state_for(directory: Path, claim: Claim) -> WorkspaceState:
    """The state of the workspace, as one of this claim. Raise LeaseLost if a later claim works in it."""
    state = load_state(directory)
    if not state.branch:
        raise NotFound("there is no worktree of this ticket on this machine", fix="Run the agent step again")
    if state.run != claim.run or state.token > claim.token:
        raise LeaseLost(_TAKEN)
    if state.token < claim.token:
        state.token, state.claim = claim.token, ""
    return state


def _worktree_meta(mirror: Path, worktree: Path) -> Path:
    for meta in (mirror / "worktrees").glob("*"):
        if (meta / "gitdir").is_file() and (meta / "gitdir").read_text().strip() == str(worktree / ".git"):
            return meta
    raise NotFound("the worktree is no longer known to its mirror", fix="Run the agent step again")
