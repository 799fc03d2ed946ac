"""The GitHub of `harken demo tickets`: a stand-in with a real repository of git, and its webhooks."""

from __future__ import annotations

import hmac
import os
import shutil
import subprocess
from pathlib import Path

import aiohttp
import msgspec
from aiohttp import web

from harken.clock import Clock
from harken.errors import Misconfigured
from harken.testing.fakes.github import GitHub, Issue, Repository
from harken.testing.fakes.server import Handler

__all__ = ["BOT", "REPO", "STRANGER", "TOKEN", "Shop", "make_repository", "send_webhook"]

REPO = "acme/shop"
TOKEN = "demo"
BOT = "harken-demo[bot]"
PERSON, STRANGER = "leo", "eve"


class Shop(GitHub):
    """Leo may write to its repository, Eve may only read. Its branches are those of a real repository of git."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.code: Path | None = None
        self.tokens = {TOKEN: None}
        self.apps = {TOKEN: BOT}
        self.repo.roles |= {PERSON: "write", STRANGER: "read", BOT: "write"}

    @property
    def repo(self) -> Repository:
        return self.repos[REPO]

    @property
    def tickets(self) -> list[Issue]:
        return [issue for issue in self.repo.issues.values() if not issue.pull]

    @property
    def pulls(self) -> list[Issue]:
        return [issue for issue in self.repo.issues.values() if issue.pull]

    async def handle(self, request: web.Request, view: Handler) -> web.Response:
        if request.path.endswith("/pulls"):
            self.repo.branches = self._branches()
        return await super().handle(request, view)

    def _branches(self) -> list[str]:
        heads = self.code / "refs" / "heads" if self.code else Path()
        return sorted(str(path.relative_to(heads)) for path in heads.rglob("*") if path.is_file())


async def send_webhook(session: aiohttp.ClientSession, url: str, secret: str, action: str, issue: Issue) -> None:
    """Tell what happened to an issue, signed. One that is not accepted is not sent again, as GitHub does not either."""
    told = {"action": action, "issue": issue.to_json(), "repository": {"full_name": issue.repo}}
    body = msgspec.json.encode(told)
    signature = f"sha256={hmac.digest(secret.encode(), body, 'sha256').hex()}"
    headers = {"Content-Type": "application/json", "X-GitHub-Event": "issues", "X-Hub-Signature-256": signature}
    async with session.post(url, data=body, headers=headers) as reply:
        await reply.read()


def make_repository(at: Path) -> Path:
    """A bare repository with one commit on main, as a git server has it."""
    if shutil.which("git") is None:
        raise Misconfigured("the demo of tickets needs git, and it is not there", fix="Install git")
    work, bare = at / "work", at / "shop.git"
    work.mkdir(parents=True)
    (work / "README.md").write_text("# Shop\n", "utf-8")
    _git(work, "init", "--quiet")
    _git(work, "symbolic-ref", "HEAD", "refs/heads/main")
    _git(work, "add", "README.md")
    _git(work, "commit", "--quiet", "--message=The shop opens")
    _git(at, "clone", "--quiet", "--bare", str(work), str(bare))
    # loose references: branches are listed as files
    (bare / "packed-refs").unlink(missing_ok=True)
    _git(work, "push", "--quiet", str(bare), "main:main")
    shutil.rmtree(work)
    return bare


def _git(at: Path, *arguments: str) -> None:
    # without the settings of the person who looks at the demo
    names = (f"GIT_{role}_{what}" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL"))
    person = dict.fromkeys(names, "leo@example.com")
    env = {**os.environ, **person, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    subprocess.run(["git", "-C", str(at), *arguments], env=env, check=True, capture_output=True)
