"""An agent ends when its claim is not renewed, when Harken is gone, and when it is told to; nothing of it is left."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harken.clock import SystemClock
from harken.errors import Deferred, NeedsAttention
from harken.run.agents import process_tree_supervisor
from harken.run.agents.orphan_processes import WORKSPACE_VARIABLE, kill_leftovers
from harken.run.agents.process import AgentProcess, start_agent
from harken.run.agents.process_tree_supervisor import boot_seconds
from harken.run.agents.workspace_lock import lock_workspace
from tests.run.agents.scripts import lives, numbers_in, script, until

STUBBORN = """
trap '' TERM
echo $$ >> {pids}
setsid sh -c 'trap "" TERM; echo $$ >> {pids}; while :; do sleep 0.1; done' &
while :; do sleep 0.1; done"""


async def started(tmp_path: Path, body: str, *, lease: float, margin: float = 2.0, grace: float = 60.0) -> AgentProcess:
    lock = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        return await start_agent(
            [script(tmp_path / "agent", body.format(pids=tmp_path / "pids"))],
            env={"PATH": os.environ["PATH"]},
            directory=tmp_path,
            lock=lock,
            until=boot_seconds() + lease,
            margin=margin,
            grace=grace,
            on_output=lambda chunk, out: None,
        )
    finally:
        os.close(lock)


def is_locked(tmp_path: Path) -> bool:
    with (tmp_path / "lock").open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


async def test_without_a_renewal_everything_is_dead_before_the_lease_ends(tmp_path: Path) -> None:
    lease, began = 20.0, boot_seconds()
    process = await started(tmp_path, STUBBORN, lease=lease, margin=10.0)
    await until(lambda: len(numbers_in(tmp_path / "pids")) == 2)
    assert is_locked(tmp_path)

    ended = await process.exited

    assert boot_seconds() - began < lease
    assert (ended.cause, ended.code, ended.left) == ("claim", -signal.SIGKILL, 0)
    assert [pid for pid in numbers_in(tmp_path / "pids") if lives(pid)] == []
    assert not is_locked(tmp_path)


async def test_each_renewal_lets_it_live_on(tmp_path: Path) -> None:
    process = await started(tmp_path, "sleep 11", lease=10.0)
    for _ in range(40):
        process.renew(boot_seconds() + 20.0)
        await asyncio.sleep(0.05)
    ended = await process.exited
    assert (ended.cause, ended.code) == ("exited", 0)


async def test_a_claim_that_is_over_starts_nothing(tmp_path: Path) -> None:
    process = await started(tmp_path, "echo 1 > {pids}", lease=1.0, margin=2.0)
    ended = await process.exited
    assert (ended.cause, ended.code) == ("claim", None)
    assert not (tmp_path / "pids").exists()


async def test_who_is_asked_to_end_may_clean_up(tmp_path: Path) -> None:
    process = await started(
        tmp_path, "trap 'sleep 1; exit 7' TERM; echo $$ > {pids}; while :; do sleep 0.1; done", lease=60.0
    )
    await until(lambda: bool(numbers_in(tmp_path / "pids")))
    process.end()
    ended = await process.exited
    assert (ended.cause, ended.code) == ("asked", 7)


async def test_a_grace_can_be_cut_short(tmp_path: Path) -> None:
    process = await started(tmp_path, STUBBORN, lease=600.0, grace=500.0)
    await until(lambda: len(numbers_in(tmp_path / "pids")) == 2)
    process.end()
    await asyncio.sleep(0.5)
    assert not process.exited.done()
    process.end(grace=0.0)
    assert (await process.exited).code == -signal.SIGKILL


async def test_one_that_is_stopped_ends_too(tmp_path: Path) -> None:
    process = await started(tmp_path, "echo $$ > {pids}; while :; do sleep 0.1; done", lease=60.0)
    await until(lambda: bool(numbers_in(tmp_path / "pids")))
    os.kill(numbers_in(tmp_path / "pids")[0], signal.SIGSTOP)
    process.end()
    ended = await process.exited
    assert (ended.cause, ended.code) == ("asked", -signal.SIGTERM)


HARKEN = """
import os, subprocess, sys, time
reports, told = os.pipe()
subprocess.Popen([sys.executable, "-I", "-S", {supervisor!r}, str(told), repr(time.clock_gettime(7) + 60), "10", "1",
    {agent!r}], stdin=subprocess.PIPE, pass_fds=(told,), start_new_session=True)
time.sleep(600)
"""


async def test_it_ends_when_harken_is_killed(tmp_path: Path) -> None:
    agent = script(tmp_path / "agent", STUBBORN.format(pids=tmp_path / "pids"))
    code = HARKEN.format(supervisor=process_tree_supervisor.__file__, agent=agent)
    harken = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
    await until(lambda: len(numbers_in(tmp_path / "pids")) == 2)
    harken.kill()
    await harken.wait()
    await until(lambda: not any(map(lives, numbers_in(tmp_path / "pids"))))


async def test_a_program_that_is_not_there_needs_a_person(tmp_path: Path) -> None:
    with pytest.raises(NeedsAttention, match="there is no program no-such-agent"):
        await start_agent(
            ["no-such-agent"],
            env={"PATH": os.environ["PATH"]},
            directory=tmp_path,
            lock=0,
            until=0.0,
            margin=1.0,
            grace=1.0,
            on_output=lambda chunk, out: None,
        )


def leftover(workspace: Path, *, lock: int | None = None) -> subprocess.Popen[bytes]:
    """A process that an agent left, after Harken and the supervisor were killed."""
    env = {**os.environ, WORKSPACE_VARIABLE: str(workspace)}
    return subprocess.Popen(["sleep", "600"], env=env, pass_fds=(lock,) if lock is not None else ())


async def test_leftovers_are_known_by_their_workspace(tmp_path: Path) -> None:
    mine, other = leftover(tmp_path / "12"), leftover(tmp_path / "123")
    try:
        await until(lambda: kill_leftovers(tmp_path / "12") > 0 or mine.poll() is not None)
        assert mine.wait(60) == -signal.SIGKILL
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


async def test_a_workspace_is_locked_once_and_its_holder_is_waited_for(tmp_path: Path) -> None:
    clock = SystemClock()
    first = await lock_workspace(tmp_path / "12", "r1", clock, 1.0)
    first.note_until(boot_seconds() + 60.0)
    with pytest.raises(Deferred, match="another agent still works on this ticket"):
        await lock_workspace(tmp_path / "12", "r2", clock, 0.3)
    # a branch of the same run waits however long it takes
    waiting = asyncio.create_task(lock_workspace(tmp_path / "12", "r1", clock, 0.0))
    await asyncio.sleep(0.3)
    assert not waiting.done()
    first.release()
    (await waiting).release()


async def test_a_lock_that_leftovers_hold_is_freed_once_their_claim_is_over(tmp_path: Path) -> None:
    clock = SystemClock()
    lock = await lock_workspace(tmp_path / "12", "r1", clock, 1.0)
    lock.note_until(boot_seconds() + 1.0)
    left = leftover(tmp_path / "12", lock=lock.descriptor)
    lock.release()
    waiting = asyncio.create_task(lock_workspace(tmp_path / "12", "r1", clock, 60.0))
    await asyncio.sleep(0.5)
    assert left.poll() is None, "it may live as long as its claim"
    (await waiting).release()
    assert left.wait(60) == -signal.SIGKILL
