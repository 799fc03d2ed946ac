"""Agents that are small scripts, repositories on this disk, and a world in which they run."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from harken.clock import SystemClock
from harken.event import Event
from harken.run.agents.host_settings import AgentHost
from harken.runs import Run
from harken.store import Commit, Entry, Intent, Stale
from harken.timings import Timings
from tests.run.world import World, running_world, steps

QUICK = Timings(claim_seconds=12.0, agent_grace=5.0, worker_sleep=0.2)


def git(at: Path, *args: str) -> str:
    """Run git as a person does, with an identity of their own."""
    names = [f"GIT_{role}_{what}" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")]
    person = dict.fromkeys(names, "somebody@example.com")
    env = {**os.environ, **person, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    done = subprocess.run(["git", "-C", str(at), *args], env=env, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def make_repository(at: Path) -> Path:
    """A bare repository with one commit on main, as a git server has it."""
    work = at / "work"
    work.mkdir(parents=True)
    git(work, "init", "--quiet", "--initial-branch=main")
    (work / "README.md").write_text("hello\n")
    git(work, "add", "README.md")
    git(work, "commit", "--quiet", "--message=first")
    git(at, "clone", "--quiet", "--bare", str(work), str(at / "shop.git"))
    return at / "shop.git"


def script(path: Path, body: str) -> str:
    """A program of /bin/sh; returns its path."""
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


def agent(command: str | list[str], **more: Any) -> dict[str, Any]:
    return {"action": "agent", "id": "fix", "command": [command] if isinstance(command, str) else command, **more}


TICKET = {
    "tracker": "hub",
    "project": "shop",
    "pipeline": "main",
    "id": "I_1",
    "ref": "acme/shop#12",
    "number": "12",
    "title": "It is broken",
    "text": "Please repair it.",
    "url": "https://example.com/12",
    "labels": ["bug"],
}


@asynccontextmanager
async def agent_world(tmp_path: Path, *given: Any, **options: Any) -> AsyncIterator[World]:
    host = AgentHost(directory=tmp_path / "agents", **options.pop("host", {}))
    options.setdefault("timings", QUICK)
    async with running_world(SystemClock(), tmp_path, steps(*given), agents=host, **options) as world:
        yield world


async def start_ticket(world: World, **data: Any) -> str:
    """Let an event about the ticket start a run, and return the run's id."""
    world.started += 1
    state = world.opened.triggers["main"]
    key = f"ticket-{world.started}"
    intent = Intent(
        trigger=state.uid,
        epoch=state.epoch,
        run_key=key,
        workflow_rev="main@1",
        due_at=world.clock.now(),
        slot=str(TICKET["id"]),
        overlap="queue",
    )
    event = Event(subject=str(TICKET["id"]), type="ticket.ready", data={**TICKET, **data}, key=key)
    entry = Entry(event=event, memory_id=key, decisions=(intent,))
    answer = await world.sqlite.commit(
        Commit(feed="inbox", revision=world.opened.feeds["inbox"].revision, entries=[entry])
    )
    assert not isinstance(answer, Stale)
    world.worker.nudge()
    return str(answer.verdicts[0][0].run_id)


async def end_of_ticket(world: World, **data: Any) -> Run:
    return await world.until(await start_ticket(world, **data))


def lives(pid: int) -> bool:
    try:
        return "zombie" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that nobody tells us of."""
    give_up = time.monotonic() + 200
    while not condition():
        assert time.monotonic() < give_up, "it did not come"
        await asyncio.sleep(0.02)


def numbers_in(path: Path) -> list[int]:
    """The numbers that scripts wrote, one in each line."""
    return [int(word) for word in path.read_text().split()] if path.exists() else []
