"""The workspace of a ticket: a directory with a worktree of the project's repository, made from a shared mirror."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import re
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from harken.errors import NeedsAttention
from harken.private_files import make_private, write_private
from harken.run.agents.git_command import Remote, check_branch, git, try_git

__all__ = [
    "CodeSource",
    "Workspace",
    "WorkspaceState",
    "load_state",
    "mirror_of",
    "prepare_workspace",
    "reset_config",
    "save_state",
    "slug",
]

TREE = "tree"
_STATE = "state.json"
_UNSAFE = re.compile(r"[^A-Za-z0-9_]+")
_LOCK_PAUSE = 0.05
_MIRROR_CONFIG = """\
[core]
\trepositoryformatversion = 0
\tfilemode = true
\tbare = true
[user]
\tname = Harken
\temail = harken@localhost
[push]
\tdefault = nothing
"""


class CodeSource(msgspec.Struct, frozen=True, kw_only=True):
    """Where code is cloned from. An empty `base` is the default branch of the repository.

    `header` is an HTTP header with a credential for it, such as `Authorization: Basic …`. Agents never see it.
    `sign_in` makes a new header each time, for credentials that do not last as long as an agent works."""

    url: str
    base: str = ""
    header: str = ""
    sign_in: Callable[[], Awaitable[str]] | None = None

    @property
    def remote(self) -> Remote:
        return Remote(url=self.url, header=self.header)

    def __repr__(self) -> str:
        return f"CodeSource(url={self.url!r}, base={self.base!r})"


class WorkspaceState(msgspec.Struct, kw_only=True):
    """What a later attempt, and a push, must know of a workspace; kept in a file beside the worktree.

    `sessions` are those of the run's agents, by the path of their step. `remote` is what the branch was on the server
    when we last saw it, `claim` the object that `claim_ref` names there, set by the claim `run` with `token`."""

    run: str = ""
    token: int = 0
    url: str = ""
    branch: str = ""
    base: str = ""
    remote: str = ""
    claim: str = ""
    claim_ref: str = ""
    sessions: dict[str, str] = msgspec.field(default_factory=dict)


class Workspace(msgspec.Struct, frozen=True, kw_only=True):
    """A directory that is ready for an agent. `resumed`: the worktree is that of an earlier attempt of the run."""

    directory: Path
    state: WorkspaceState
    mirror: Path | None = None
    resumed: bool = False

    @property
    def tree(self) -> Path:
        return self.directory / TREE


def slug(text: str) -> str:
    """A short name for paths and branches; what had to be changed for it is made up for by a hash."""
    short = _UNSAFE.sub("-", text).strip("-")[:60]
    return short if short == text else f"{short or 'x'}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def load_state(directory: Path) -> WorkspaceState:
    """The state of the workspace, or an empty one."""
    try:
        return msgspec.json.decode((directory / _STATE).read_bytes(), type=WorkspaceState)
    except (FileNotFoundError, msgspec.MsgspecError):
        return WorkspaceState()


def save_state(directory: Path, state: WorkspaceState) -> None:
    write_private(directory / _STATE, msgspec.json.encode(state))


async def prepare_workspace(directory: Path, run: str, source: CodeSource | None, branch: str) -> Workspace:
    """Make the workspace ready. The caller holds its lock.

    A later attempt of the same run finds everything as the earlier one left it. A new run begins with the branch as it
    is on the server, or with the base; the branch gets a number if what was on it is merged already."""
    state = load_state(directory)
    wanted = source.url if source else ""
    if state.run == run and state.url == wanted and (directory / TREE).is_dir():
        mirror = mirror_of(directory, wanted) if source else None
        if mirror is not None:
            _remove_stale_locks(mirror, directory, state.branch)
        return Workspace(directory=directory, state=state, mirror=mirror, resumed=True)
    await asyncio.to_thread(shutil.rmtree, directory / TREE, ignore_errors=True)
    state = WorkspaceState(run=run, url=wanted)
    if source is None:
        make_private(directory / TREE)
        save_state(directory, state)
        return Workspace(directory=directory, state=state)
    mirror = mirror_of(directory, source.url)
    async with _mirror_lock(mirror):
        await _fetch(mirror, source)
        await _add_worktree(mirror, directory, source, check_branch(branch), state)
    save_state(directory, state)
    return Workspace(directory=directory, state=state, mirror=mirror)


def mirror_of(directory: Path, url: str) -> Path:
    """The mirror that the worktrees of a repository share."""
    name = slug(url.rstrip("/").removesuffix(".git").rpartition("/")[2].rpartition(":")[2])
    return directory.parent.parent / "mirrors" / f"{name}-{hashlib.sha256(url.encode()).hexdigest()[:12]}.git"


def reset_config(mirror: Path) -> None:
    """Write the configuration anew: an agent could have put programs into it that git would run for us."""
    write_private(mirror / "config", _MIRROR_CONFIG.encode())
    make_private(mirror / "info")
    write_private(mirror / "info" / "exclude", b"/.harken/\n")
    (mirror / "info" / "attributes").unlink(missing_ok=True)


async def _fetch(mirror: Path, source: CodeSource) -> None:
    if not (mirror / "HEAD").exists():
        make_private(mirror)
        await git("init", "--quiet", "--bare", at=mirror)
    reset_config(mirror)
    fix = "Check the address, and that this machine may read the repository: git ls-remote"
    refs = "+refs/heads/*:refs/remotes/origin/*"
    command = ("fetch", "--quiet", "--prune", "--no-tags", "--no-write-fetch-head", "--", source.url, refs)
    await git(*command, at=mirror, remote=source.remote, fix=fix)


async def _add_worktree(mirror: Path, directory: Path, source: CodeSource, branch: str, state: WorkspaceState) -> None:
    base = check_branch(source.base) if source.base else await _default_branch(mirror, source)
    start = await _tip(mirror, base)
    if not start:
        raise NeedsAttention(f"the repository has no branch {base}", fix="Check base: of the step or the project")
    state.base = base
    state.branch, state.remote = await _pick_branch(mirror, branch, base)
    await git("worktree", "prune", at=mirror)
    command = ("worktree", "add", "--quiet", "--no-track", "-B", state.branch)
    await git(*command, str(directory / TREE), state.remote or start, at=mirror)


async def _pick_branch(mirror: Path, branch: str, base: str) -> tuple[str, str]:
    """The branch to work on and its commit on the server; the next number if all that is on it is in the base."""
    name, number = branch, 1
    while (remote := await _tip(mirror, name)) and await _is_merged(mirror, remote, base):
        number += 1
        name = f"{branch}-r{number}"
    return name, remote


async def _is_merged(mirror: Path, commit: str, base: str) -> bool:
    """Whether merging the commit would change nothing: it was merged, also if its commits were squashed."""
    onto = f"refs/remotes/origin/{base}"
    merged = await try_git("merge-tree", "--write-tree", onto, commit, at=mirror)
    tree = await git("rev-parse", f"{onto}^{{tree}}", at=mirror)
    return merged.code == 0 and merged.out.split()[:1] == [tree]


async def _tip(mirror: Path, branch: str) -> str:
    reply = await try_git("rev-parse", "--verify", "--quiet", f"refs/remotes/origin/{branch}^{{commit}}", at=mirror)
    return reply.out.strip()


async def _default_branch(mirror: Path, source: CodeSource) -> str:
    told = await git("ls-remote", "--symref", "--", source.url, "HEAD", at=mirror, remote=source.remote)
    found = re.match(r"ref: refs/heads/(\S+)\s+HEAD", told)
    if found is None:
        raise NeedsAttention("the repository has no default branch", fix="Set base: of the step or the project")
    return check_branch(found[1])


def _remove_stale_locks(mirror: Path, directory: Path, branch: str) -> None:
    """Remove the lock files of git that a killed agent left. Nobody else uses this worktree and this branch."""
    for meta in (mirror / "worktrees").glob("*"):
        if (meta / "gitdir").is_file() and (meta / "gitdir").read_text().strip() == str(directory / TREE / ".git"):
            for name in ("index.lock", "HEAD.lock"):
                (meta / name).unlink(missing_ok=True)
    (mirror / "refs" / "heads" / f"{branch}.lock").unlink(missing_ok=True)


@asynccontextmanager
async def _mirror_lock(mirror: Path) -> AsyncIterator[None]:
    """One fetch at a time per mirror, of all processes on this machine."""
    make_private(mirror.parent)
    handle = os.open(mirror.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(_LOCK_PAUSE)
        yield
    finally:
        os.close(handle)
