"""Real processes of the command line `harken`, forked by one that has imported everything: no half second of imports.

Each is a process of its own, with its own environment, output, signals and exit code. What is told to the loader of
programs (`LD_PRELOAD`, limits that a shell sets) does not reach it: start those as a program.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path

__all__ = ["ForkedHarken", "fork_harken"]

ROOT = Path(__file__).parents[1]
NEEDED = (
    "aiohttp",
    "apsw",
    "encodings.idna",
    "encodings.utf_8_sig",
    "harken.api.app",
    "harken.api.origin_guard",
    "harken.app.run_until_signal",
    "harken.app.feed_alerts",
    "harken.app.file_watch",
    "harken.app.stale_triggers",
    "harken.app.housekeeping",
    "harken.app.logs",
    "harken.app.server",
    "harken.app.metrics_and_health",
    "harken.backends.sqlite",
    "harken.cli.client",
    "harken.cli.events",
    "harken.cli.runs",
    "harken.cli.start",
    "harken.cli.triggers",
    "harken.config.loader",
    "harken.config.pollers.load",
    "harken.config.trackers.read",
    "harken.ingest.intake",
    "harken.ingest.internal_event_matcher",
    "harken.run.steps",
    "harken.run.worker",
    "harken.services.json",
    "harken.services.webhook",
    "uvloop",
)
MESSAGE = 1 << 20


class ForkedHarken:
    """A process as `asyncio.subprocess.Process` shows it. Its standard input is empty."""

    def __init__(self, pid: int, ended: int, stdout: asyncio.StreamReader, stderr: asyncio.StreamReader | None) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.stdout = stdout
        self._stderr = stderr
        self._over: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().add_reader(ended, self._note_end, ended)

    @classmethod
    async def start(cls, args: Sequence[str], env: Mapping[str, str], *, stderr: int | None = None) -> ForkedHarken:
        """Start `harken` with these arguments. Errors go to the file `stderr`; without, `communicate` reads them."""
        out, stdout = await _pipe()
        err, errors = await _pipe() if stderr is None else (stderr, None)
        ended, end = os.pipe()
        pid = fork_harken({"args": list(args), "env": dict(env), "directory": os.getcwd()}, [out, err, end])
        for given in {out, err, end} - {stderr}:
            os.close(given)
        return cls(pid, ended, stdout, errors)

    def _note_end(self, ended: int) -> None:
        asyncio.get_running_loop().remove_reader(ended)
        with os.fdopen(ended) as told:
            self.returncode = int(told.read())
        self._over.set_result(self.returncode)

    async def wait(self) -> int:
        return await asyncio.shield(self._over)

    async def communicate(self) -> tuple[bytes, bytes]:
        assert self._stderr is not None
        out, err, _ = await asyncio.gather(self.stdout.read(), self._stderr.read(), self.wait())
        return out, err

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


async def _pipe() -> tuple[int, asyncio.StreamReader]:
    """The end for the process, and what comes out of it."""
    read, write = os.pipe()
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read, "rb", 0))
    return write, reader


def fork_harken(order: Mapping[str, object], files: Sequence[int]) -> int:
    """Fork a process with `args`, `env` and `directory` of the order, and return its id.

    The files are its output, its errors, a pipe that its exit code is written into, and if it has one its input.
    """
    forker = _forker()
    socket.send_fds(forker, [json.dumps(order).encode()], list(files))
    return int(forker.recv(MESSAGE))


@functools.cache
def _forker() -> socket.socket:
    """The way to the forker of this process, which ends with it."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, "-m", "tests.forked_harken", str(its.fileno())]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, pass_fds=[its.fileno()])
    its.close()

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


def fork_on_demand(orders: socket.socket) -> int:
    """Fork a process for each order, and tell its end. Returns in each of these processes its exit code."""
    for name in NEEDED:
        import_module(name)
    gc.freeze()  # a forked process does not look at what it shares with the others, which would copy it
    ends: dict[int, int] = {}
    woken, wake = socket.socketpair()
    wake.setblocking(False)
    before = signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake.fileno())
    while True:
        ready, _, _ = select.select([orders, woken], [], [])
        if woken in ready:
            woken.recv(MESSAGE)
            _tell_ends(ends)
        if orders in ready:
            order, files, _, _ = socket.recv_fds(orders, MESSAGE, 4)
            if not order:
                return 0
            out, err, end, *given = files
            pid = os.fork()
            if not pid:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, before)
                for one in (orders, woken, wake):
                    one.close()
                for inherited in [*ends.values(), end]:
                    os.close(inherited)
                return _be_harken(json.loads(order), out, err, *given)
            ends[pid] = end
            for passed in (out, err, *given):
                os.close(passed)
            orders.send(str(pid).encode())


def _tell_ends(ends: dict[int, int]) -> None:
    for pid, end in list(ends.items()):
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            os.write(ends.pop(pid), str(os.waitstatus_to_exitcode(status)).encode())
            os.close(end)


def _be_harken(order: dict[str, object], out: int, err: int, given: int | None = None) -> int:
    from harken.cli.root import run

    if given is not None:
        os.setsid()  # a question must not go to the terminal at which the tests run
    for file, number in ((given, 0), (out, 1), (err, 2)):
        if file is not None:
            os.dup2(file, number)
            os.close(file)
    os.chdir(str(order["directory"]))
    os.environ.clear()
    os.environ.update(order["env"])  # type: ignore[call-overload]
    # packages of a test, which an interpreter would look for there as it starts
    sys.path[:0] = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
    time.tzset()
    return run(order["args"])  # type: ignore[arg-type]


if __name__ == "__main__":
    sys.exit(fork_on_demand(socket.socket(fileno=int(sys.argv[1]))))
