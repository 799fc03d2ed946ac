"""A person at a real terminal is asked field by field, and what they type as a secret is not shown."""

from __future__ import annotations

import asyncio
import os
import pty
import select
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.cli.terminal import Terminal, at_a_terminal
from tests.credentials.parcel_server import TOKEN

pytestmark = [pytest.mark.process, pytest.mark.worker_group("cli-prompts")]


@pytest.fixture
async def terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> AsyncIterator[Terminal]:
    async with at_a_terminal(tmp_path, monkeypatch, capsys) as found:
        yield found


def converse(args: list[str], pythonpath: str, *turns: tuple[str, str]) -> tuple[int, str]:
    """Answer each question once it is asked; the exit code, and everything that the screen showed."""
    pid, screen = pty.fork()
    if pid == 0:
        os.environ["PYTHONPATH"] = pythonpath
        os.execv(sys.executable, [sys.executable, "-m", "harken.cli", *args])
    shown = b""
    waiting = list(turns)
    while piece := _read(screen):
        shown += piece
        if waiting and waiting[0][0].encode() in shown.rpartition(b"\n")[2]:
            os.write(screen, waiting.pop(0)[1].encode() + b"\n")
    _, status = os.waitpid(pid, 0)
    os.close(screen)
    return os.waitstatus_to_exitcode(status), shown.decode()


def _read(screen: int) -> bytes:
    ready, _, _ = select.select([screen], [], [], 90)
    assert ready, "nothing was said for 90 seconds"
    try:
        return os.read(screen, 4096)
    except OSError:
        return b""  # Linux says so when the other side has ended


async def test_each_field_is_asked_for_until_it_is_right_and_secrets_are_not_shown(
    terminal: Terminal, tmp_path: Path
) -> None:
    args = ["--config", str(terminal.directory), "integrations", "parcel", "configure", "--allow-private-networks"]
    code, shown = await asyncio.to_thread(
        converse,
        args,
        str(tmp_path / "installed"),
        ("token: API token of your depot, from Settings", "user-5ecret-123456"),
        ("token: API token of your depot, from Settings", TOKEN),
        ("user: your e-mail address (Enter: none)", "ada@example.org"),
        ("base_url: address of the depot's API (Enter: https://parcel.invalid)", terminal.depot.url),
        ("scopes: what the token may do (Enter: none)", "read, write"),
    )
    assert code == 0, shown
    assert "token: *** is a user token" in shown
    assert "parcel knows us: id u7, name Ada" in shown
    assert TOKEN not in shown
    assert "user-5ecret-123456" not in shown
    assert (await terminal.json("integrations", "parcel", "whoami"))["name"] == "Ada"


async def test_a_changed_mind_keeps_what_is_stored(terminal: Terminal, tmp_path: Path) -> None:
    await terminal.configures("parcel")
    args = ["--config", str(terminal.directory), "integrations", "parcel", "configure", "--user", "eve@example.org"]
    code, shown = await asyncio.to_thread(
        converse, args, str(tmp_path / "installed"), ("Replace the stored credential of parcel?", "n")
    )
    assert code == 130, shown
    assert terminal.depot.seen[-1].path == "/me"
    assert len(terminal.depot.seen) == 1
