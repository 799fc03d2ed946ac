"""A running agent as Harken sees it: started under a supervisor that ends it without us, renewed, ended, waited for."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Literal

import msgspec

from harken.errors import NeedsAttention, RetryLater

__all__ = ["AgentExit", "AgentProcess", "Cause", "start_agent"]

Cause = Literal["exited", "asked", "signal", "parent", "claim", "crashed"]
"""Why an agent is no longer there: it exited, we ended it, the system stopped it, we seemed to be gone, its claim was
not renewed, or its supervisor was killed."""

OnOutput = Callable[[bytes, bool], None]

_SUPERVISOR = str(Path(__file__).with_name("process_tree_supervisor.py"))
_CHUNK = 65_536
_DRAIN_SECONDS = 2.0
"""How long we wait for the end of the output of an agent that is gone: a process that escaped may hold it open."""


class AgentExit(msgspec.Struct, frozen=True, kw_only=True):
    """`code` is None if the agent was never started, or was gone without a trace. `left`: processes that live on."""

    cause: Cause
    code: int | None = None
    left: int = 0


class _Report(msgspec.Struct):
    """A line of the supervisor."""

    pid: int = 0
    cause: Cause | None = None
    exit: int | None = None
    left: int = 0


class AgentProcess:
    """An agent under its supervisor. `exited` ends with its exit, once all of its processes and its output are over."""

    def __init__(self, process: subprocess.Popen[bytes], reports: IO[bytes], on_output: OnOutput) -> None:
        assert process.stdin is not None
        self._process = process
        self._control = process.stdin
        self._pid = 0
        self.exited = asyncio.create_task(self._wait(reports, on_output), name="agent")

    def renew(self, until: float) -> None:
        """The claim belongs to us until then, by the clock of `boot_seconds`."""
        self._tell(f"until {until!r}")

    def end(self, *, grace: float | None = None) -> None:
        """SIGTERM, then SIGKILL when the grace is over; `exited` ends after that. A second call can shorten it."""
        self._tell("end" if grace is None else f"end {grace!r}")

    def _tell(self, line: str) -> None:
        # it may have ended
        with contextlib.suppress(OSError, ValueError):
            self._control.write(f"{line}\n".encode())

    async def _wait(self, reports: IO[bytes], on_output: OnOutput) -> AgentExit:
        assert self._process.stdout and self._process.stderr
        pipes = ((self._process.stdout, True), (self._process.stderr, False))
        reading = [asyncio.create_task(_copy(pipe, out, on_output), name="agent output") for pipe, out in pipes]
        found = await self._read_reports(reports)
        await asyncio.to_thread(self._process.wait)
        if found.cause == "crashed" and self._pid:
            # on Linux the kernel has killed the agent with its supervisor, but not what it started
            with contextlib.suppress(OSError):
                os.killpg(self._pid, signal.SIGKILL)
        self._control.close()
        _, left = await asyncio.wait(reading, timeout=_DRAIN_SECONDS)
        for task in left:
            task.cancel()
        return found

    async def _read_reports(self, pipe: IO[bytes]) -> AgentExit:
        found = AgentExit(cause="crashed")
        reader, transport = await _reader_of(pipe)
        while line := await reader.readline():
            report = msgspec.json.decode(line, type=_Report)
            self._pid = report.pid or self._pid
            if report.cause is not None:
                found = AgentExit(cause=report.cause, code=report.exit, left=report.left)
        transport.close()
        return found


async def start_agent(
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    directory: Path,
    lock: int,
    until: float,
    margin: float,
    grace: float,
    on_output: OnOutput,
) -> AgentProcess:
    """Start the agent. It is ended by itself `margin` seconds before `until`, if it is not renewed.

    `lock` is the descriptor of a locked file: the agent's processes hold it as long as one of them lives.
    `on_output` gets what it writes, and whether that was its standard output.
    """
    program = find_program(command[0], env, directory)
    reports, told = os.pipe()
    own = [sys.executable, "-I", "-S", _SUPERVISOR, str(told), repr(until), repr(margin), repr(grace)]
    pipe = subprocess.PIPE
    try:
        # not by asyncio, which kills its child processes when its loop is closed: this one must end the agent first
        process = subprocess.Popen(  # noqa: ASYNC220 (it returns at once)
            [*own, program, *command[1:]],
            bufsize=0,
            env=dict(env),
            cwd=directory,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            start_new_session=True,
            pass_fds=(told, lock),
        )
    except (OSError, ValueError) as error:
        os.close(reports)
        fix = "Check the command and the workspace"
        raise RetryLater(f"{command[0]} could not be started ({type(error).__name__})", fix=fix) from None
    finally:
        os.close(told)
    assert process.stdin is not None
    # a supervisor that does not read must not stop us
    os.set_blocking(process.stdin.fileno(), False)
    return AgentProcess(process, os.fdopen(reports, "rb"), on_output)


def find_program(name: str, env: Mapping[str, str], directory: Path) -> str:
    """The whole path of the program. Raise NeedsAttention if there is none."""
    wanted = os.path.join(directory, os.path.expanduser(name)) if os.path.dirname(name) else name
    found = shutil.which(wanted, path=env.get("PATH"))
    if found is None:
        fix = "Install it, or write its whole path. A relative path starts in the agent's worktree"
        raise NeedsAttention(f"there is no program {name} that may be executed", fix=fix)
    return os.path.abspath(found)


async def _copy(pipe: IO[bytes], out: bool, on_output: OnOutput) -> None:
    reader, transport = await _reader_of(pipe)
    try:
        while chunk := await reader.read(_CHUNK):
            on_output(chunk, out)
    finally:
        transport.close()


async def _reader_of(pipe: IO[bytes]) -> tuple[asyncio.StreamReader, asyncio.ReadTransport]:
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    return reader, transport
