"""Calls of git: bounded in time, never asking, with nothing of a repository's own configuration that runs programs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from harken.errors import NeedsAttention, RetryLater

__all__ = ["GitFailed", "GitReply", "Remote", "check_branch", "git", "reason", "try_git"]

TIMEOUT = 900.0
_SAFE = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "protocol.ext.allow=never",
    "gc.auto=0",
    "commit.gpgSign=false",
)
_KEPT_GIT_NAMES = ("GIT_SSH", "GIT_SSL", "GIT_ASKPASS", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_NOSYSTEM", "GIT_CONFIG_SYSTEM")
_PERSON = {"NAME": "Harken", "EMAIL": "harken@localhost"}
_USERINFO = re.compile(r"://[^/\s@]+@")
_BRANCH = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._/+-]*[A-Za-z0-9_+-])?")


class GitFailed(RetryLater):
    """git ended with an error. `reply` has what it said; the message has its last line without credentials."""

    def __init__(self, message: str, reply: GitReply, *, fix: str = "") -> None:
        super().__init__(message, fix=fix)
        self.reply = reply


class Remote(msgspec.Struct, frozen=True, kw_only=True):
    """A git server's address, and an HTTP header with a credential for it, such as `Authorization: Basic …`."""

    url: str
    header: str = ""

    def __repr__(self) -> str:
        return f"Remote(url={self.url!r})"


class GitReply(msgspec.Struct, frozen=True):
    code: int
    out: str
    error: str


def check_branch(name: str) -> str:
    """Return the name if it is a plain name of a branch. Raise NeedsAttention for one that git might take otherwise."""
    parts = name.split("/")
    plain = _BRANCH.fullmatch(name) and not any(not part or part[0] == "." or part.endswith(".lock") for part in parts)
    if not plain or ".." in name or len(name) > 200:
        shown = ascii(name[:60])
        raise NeedsAttention(f"{shown} cannot be the name of a branch", fix="Use letters, digits, - . _ and /")
    return name


async def git(*args: str, at: Path, remote: Remote | None = None, stdin: str = "", fix: str = "") -> str:
    """Run git on the repository at `at` and return what it printed. Raise GitFailed."""
    reply = await try_git(*args, at=at, remote=remote, stdin=stdin)
    if reply.code != 0:
        raise GitFailed(f"git {args[0]} failed{reason(reply)}", reply, fix=fix)
    return reply.out.strip()


async def try_git(*args: str, at: Path, remote: Remote | None = None, stdin: str = "") -> GitReply:
    """Run git on the repository at `at`. The credential of `remote` never gets into argv, and to no other address."""
    options = [word for setting in _SAFE for word in ("-c", setting)]
    command = ["git", *options, f"--git-dir={at}", *args]
    return await _execute(command, _environment(remote), stdin)


def _environment(remote: Remote | None) -> Mapping[str, str]:
    kept = {name: value for name, value in os.environ.items() if _is_kept(name)}
    own = {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    person = {f"GIT_{role}_{what}": text for role in ("AUTHOR", "COMMITTER") for what, text in _PERSON.items()}
    if remote is None or not remote.header:
        return {**own, **person, **kept}
    key = f"http.{remote.url}.extraHeader"
    secret = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": key, "GIT_CONFIG_VALUE_0": remote.header}
    return {**own, **person, **kept, **secret}


def _is_kept(name: str) -> bool:
    return not name.startswith("GIT_") or name.startswith(_KEPT_GIT_NAMES)


async def _execute(command: Sequence[str], env: Mapping[str, str], stdin: str) -> GitReply:
    pipe = asyncio.subprocess.PIPE
    # a file and not a pipe: writing to a process that has ended already is an error of its own
    with tempfile.TemporaryFile() as file:
        file.write(stdin.encode())
        file.seek(0)
        try:
            process = await asyncio.create_subprocess_exec(
                *command, env=dict(env), stdin=file, stdout=pipe, stderr=pipe, start_new_session=True
            )
        except FileNotFoundError:
            fix = "Install git: agent steps with a repository need it"
            raise NeedsAttention("git is not installed", fix=fix) from None
    try:
        async with asyncio.timeout(TIMEOUT):
            out, error = await process.communicate()
    except TimeoutError:
        raise RetryLater(f"git did not end within {TIMEOUT:g} s", reason="timeout") from None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    return GitReply(process.returncode or 0, out.decode("utf-8", "replace"), error.decode("utf-8", "replace"))


def reason(reply: GitReply) -> str:
    """The line that tells most, without a credential that stands in an address."""
    lines = [line.strip() for line in reply.error.splitlines() if line.strip()]
    told = [line for line in lines if line.startswith(("fatal:", "error:", "remote:", "!"))] or lines
    return f": {_USERINFO.sub('://', told[0])[:200]}" if told else ""
